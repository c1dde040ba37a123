"""A transcript as a row of the page: its score, and of one that does not comply where it fell short."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from evalq.evalcore.contract.claims import judged_evidence
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.charts import State
from evalq.evalcore.views.rows import Column, Evidence, Row, Rows

__all__ = ["ROWS"]

_STATES: Mapping[str, State] = {"passed": "good", "failed": "bad", "error": "bad", "dead": "bad"}


class _Line(msgspec.Struct):
    record: str
    id: str = ""
    status: str = ""
    reason: str = ""
    score: float | None = None
    band: str = ""
    components: dict[str, float] = {}
    unsubstantiated: list[str] = []
    judged: dict[str, Any] = {}


def _reader(report: Mapping[str, Json]) -> Callable[[_Line], Row | None]:
    threshold = 1.0 if report["params"]["strict"] else report["params"]["threshold"]

    def see(line: _Line) -> Row:
        state = _STATES.get(line.status, "none")
        cells = (line.score, line.band)
        return Row(
            line.record, line.id, line.status, state, line.reason, cells, lambda: tuple(_evidence(line, threshold))
        )

    return see


def _evidence(line: _Line, threshold: float) -> Iterator[Evidence]:
    if line.score is None:
        yield Evidence("record", "an object with the transcript", line.reason)
        return
    yield Evidence("score", f"at least {threshold:g}", f"{line.score:g}", line.status == "passed")
    said = [part.strip() for part in line.reason.split("; ")]
    for name, value in line.components.items():
        words = name.replace("_", " ")
        why = next((part.partition(": ")[2] for part in said if part.startswith(words)), "")
        yield Evidence(words, "1", f"{value:g}: {why}" if why else f"{value:g}", value == 1.0)
    for claim in line.unsubstantiated:
        yield Evidence("claim", "substantiated", claim)
    yield from judged_evidence(line.judged)


ROWS = Rows((Column("Score", "number"), Column("Band")), _Line, _reader)
