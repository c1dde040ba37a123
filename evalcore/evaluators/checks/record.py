"""One line of records.jsonl: what became of an output, with every check of it."""

from __future__ import annotations

import msgspec

from evalq.evalcore.evaluators.checks.check import Verdict
from evalq.evalcore.evaluators.checks.score import Judgement
from evalq.evalcore.naming import shorten

__all__ = ["record_line"]

_REASON = 300
_SHOWN = 200


class _Line(msgspec.Struct):
    """``id`` is the case; ``passed`` and ``score`` are null where there is no verdict. ``kind`` is that of the text,
    where answers are counted by kind: equal ones are one text. ``took`` has seconds, cost and tokens, as far as they
    are known. ``plain`` is whether it passes by its checks that are not fallible, in runs that have others; ``labels``
    what people said.
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
    took: dict[str, float] | msgspec.UnsetType = msgspec.UNSET
    plain: bool | msgspec.UnsetType | None = msgspec.UNSET
    labels: dict[str, bool] | msgspec.UnsetType = msgspec.UNSET


def record_line(record: str, test: Judgement, *, apart: bool = False) -> bytes:
    """The line of the output that is called ``record``; of one that failed or is counted by kind with its
    beginning.

    ``apart``: whether some of the run's checks are fallible, so that it is told how the others went.
    """
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
        _took(test) or msgspec.UNSET,
        _plain(test) if apart else msgspec.UNSET,
        {check.name: said for check, said in zip(test.checks, test.heard.labels, strict=False) if said is not None}
        or msgspec.UNSET,
    )
    return _encode(line)


def _took(test: Judgement) -> dict[str, float]:
    """What an output with a verdict took, as far as it is known: what the report's quantiles are over."""
    if test.score is None:
        return {}
    usage = test.usage
    told = {"latency_seconds": usage.latency, "cost": usage.cost, "tokens": usage.tokens}
    return {name: value for name, value in told.items() if value is not None}


def _plain(test: Judgement) -> bool | None:
    """By checks that are not fallible; None for an output without a verdict, and where there are only others."""
    if test.plan is not None and any(test.plan.judged):
        return test.heard.plain
    return {"passed": True, "failed": False}.get(test.status)


_encode = msgspec.json.Encoder().encode
