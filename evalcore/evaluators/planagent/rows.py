"""A row of a plan agent's file as a row of the page: its score, and of a low one each check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.charts import Column, Evidence, Row, Rows, State

__all__ = ["ROWS"]


class _Check(msgspec.Struct):
    kind: str
    want: str
    passed: bool | None = None


class _Line(msgspec.Struct, gc=False):
    record: str
    id: str = ""
    round: str = ""
    status: str = ""
    score: int | None = None
    checks: msgspec.Raw = msgspec.Raw(b"[]")
    unread: list[str] = []
    seconds: float | None = None
    reason: str = ""


_checks = msgspec.json.Decoder(list[_Check]).decode


def _reader(report: Mapping[str, Json]) -> Callable[[_Line], Row | None]:
    mark = report["params"]["pass_mark"]

    def see(line: _Line) -> Row:
        cells = (line.round, line.score, line.seconds)
        if line.score is None:
            state: State = "bad" if line.status == "dead" else "none"
            return Row(line.record, line.id, line.status, state, line.reason, cells)
        if line.score >= mark and not line.unread:
            return Row(line.record, line.id, "passed", "good", line.reason, cells)
        if line.score >= mark:
            # A pass by what could be read of it: whether the row does as it should is not known.
            why = f"passed, as far as it can be read: {len(line.unread)} of its conditions are in no known form"
            return Row(line.record, line.id, "passed", "doubtful", why, cells, lambda: tuple(_evidence(line)))
        return Row(
            line.record, line.id, "failed", "bad", line.reason or _missed(line), cells, lambda: tuple(_evidence(line))
        )

    return see


def _missed(line: _Line) -> str:
    missed = [f"{check.kind} = {check.want}" for check in _checks(line.checks) if not check.passed]
    return f"not found: {', '.join(missed)}"


def _evidence(line: _Line) -> Iterator[Evidence]:
    """Each check; where the row is 0 for another reason, that reason came instead."""
    for check in _checks(line.checks):
        came = "found" if check.passed else line.reason or "not found"
        yield Evidence(check.kind, check.want, came, bool(check.passed))
    for text in line.unread:
        yield Evidence("condition", text, "no form reads it", False)


ROWS = Rows((Column("Round"), Column("Score", "number"), Column("Seconds", "number")), _Line, _reader)
