"""A log as a row of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.charts import State
from evalq.evalcore.views.rows import Column, Evidence, Row, Rows

__all__ = ["ROWS"]

# A log that was counted is neither good nor bad: no metric of the seed has a threshold.
_STATES: Mapping[str, State] = {"error": "bad", "dead": "bad"}


class _Line(msgspec.Struct):
    record: str
    id: str = ""
    status: str = ""
    reason: str = ""
    cooperation_rate: float | None = None
    average_contribution: float | None = None
    gini_coefficient: float | None = None
    dialogue_entropy: float | None = None


def _see(line: _Line) -> Row:
    cells = (line.cooperation_rate, line.average_contribution, line.gini_coefficient, line.dialogue_entropy)
    state = _STATES.get(line.status, "none")
    return Row(
        line.record, line.id, line.status, state, line.reason, cells, lambda: (Evidence("log", "events", line.reason),)
    )


def _reader(report: Mapping[str, Json]) -> Callable[[_Line], Row | None]:
    return _see


ROWS = Rows(
    (
        Column("Cooperation", "share"),
        Column("Contribution", "number"),
        Column("Gini", "number"),
        Column("Entropy", "number"),
    ),
    _Line,
    _reader,
)
