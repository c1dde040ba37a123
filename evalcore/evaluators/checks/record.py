"""One line of records.jsonl: what became of an output, with every check of it."""

from __future__ import annotations

import msgspec

from evalq.evalcore.evaluators.checks.compiling import Verdict
from evalq.evalcore.evaluators.checks.score import Judgement
from evalq.evalcore.naming import shorten

__all__ = ["record_line"]

_REASON = 300
_SHOWN = 200


class _Line(msgspec.Struct):
    """``id`` is the case; ``passed`` and ``score`` are null where there is no verdict. ``kind`` is that of the text,
    where answers are counted by kind: equal ones are one text.
    """

    record: str
    id: str | None
    repeat: int | None
    status: str
    passed: bool | None
    score: float | None
    reason: str | None
    checks: tuple[Verdict, ...]
    output: str | None = None
    kind: str | msgspec.UnsetType = msgspec.UNSET


def record_line(record: str, test: Judgement) -> bytes:
    """The line of the output that is called ``record``; of one that failed or is counted by kind with its beginning."""
    line = _Line(
        record,
        test.plan.case.id if test.plan else None,
        test.repeat,
        test.status,
        {"passed": True, "failed": False}.get(test.status),
        test.score,
        shorten(test.reason, _REASON) or None,
        test.checks,
        None if test.status == "passed" and not test.mark.text else shorten(test.text, _SHOWN) or None,
        test.mark.text.hex() or msgspec.UNSET,
    )
    return _encode(line)


_encode = msgspec.json.Encoder().encode
