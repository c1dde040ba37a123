"""An output as a row of the page: its case, and of a failed one each check beside what came."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.charts import State
from evalq.evalcore.views.rows import Column, Evidence, Row, Rows

__all__ = ["ROWS"]

_STATES: Mapping[str, State] = {"passed": "good", "failed": "bad", "error": "bad", "dead": "bad"}


class _Check(msgspec.Struct):
    name: str = ""
    passed: bool | None = None
    wanted: str = ""
    found: str = ""
    error: str = ""
    checks: list[_Check] = []


class _Line(msgspec.Struct):
    record: str
    id: str | None = None
    repeat: int | None = None
    status: str = ""
    score: float | None = None
    reason: str | None = None
    checks: msgspec.Raw = msgspec.Raw(b"[]")
    labels: dict[str, bool] = {}


_checks = msgspec.json.Decoder(list[_Check]).decode


def _reader(report: Mapping[str, Json]) -> Callable[[Any], Row | None]:
    return _see


def _see(line: _Line) -> Row:
    state = _STATES.get(line.status, "none")
    identity = line.id or ""
    name = identity if line.repeat is None else f"{identity}#{line.repeat}"
    cells = (identity or None, line.repeat, line.score)
    return Row(line.record, name, line.status, state, line.reason or "", cells, lambda: tuple(_evidence(line)))


def _evidence(line: _Line) -> Iterator[Evidence]:
    """What an output fell short of, then what it met."""
    found = list(_told(_checks(line.checks), ""))
    for name, passed in line.labels.items():
        said = "people say that it passes" if passed else "people say that it fails"
        found.append(Evidence(f"{name} › people", "a label", said, passed))
    yield from sorted(found, key=lambda piece: piece.fine)
    if not found:
        yield Evidence("output", "an answer", line.reason or "")


def _told(checks: Sequence[_Check], before: str) -> Iterator[Evidence]:
    for check in checks:
        name = f"{before}{check.name}"
        yield Evidence(name, check.wanted, check.error or check.found, check.passed is True)
        yield from _told(check.checks, f"{name} › ")


ROWS = Rows((Column("Case"), Column("Repeat", "number"), Column("Score", "number")), _Line, _reader)
