"""Records as the rows of a report's page: a few columns each, and of failed ones what was expected beside what came."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from evalq.evalcore.model.canonical import Json, canonical_json
from evalq.evalcore.views.charts import State

__all__ = ["Cell", "Column", "Evidence", "Row", "Rows", "generic_rows", "row_faults", "state_of"]

Cell = str | float | int | None
"""What a table can sort: a text, a number, or nothing."""

_STATES: Mapping[str, State] = {
    "passed": "good",
    "failed": "bad",
    "error": "bad",
    "dead": "bad",
    "undecided": "doubtful",
    "inconclusive": "doubtful",
}


def state_of(status: str) -> State:
    """The state of a record with this ``status``, in capitals or not; "none" for a status without a verdict."""
    return _STATES.get(status.lower(), "none")


class Column(msgspec.Struct, frozen=True):
    """A column besides those that every table has (record, id, status and reason)."""

    title: str
    kind: Literal["text", "number", "share"] = "text"


class Evidence(msgspec.Struct, frozen=True):
    """One thing that was asked of a record: what it is, what was expected, what came, and whether that is ``fine``."""

    what: str
    expected: str
    came: str
    fine: bool = False


def _no_evidence() -> tuple[Evidence, ...]:
    return ()


class Row(msgspec.Struct, frozen=True, gc=False):
    """A record: its place in the input, its id, its status in a word, and a cell for each column.

    What failed (state "bad") or cannot be decided ("doubtful") always has a row. ``evidence`` is called for those
    alone.
    """

    record: str
    id: str
    status: str
    state: State
    reason: str = ""
    cells: tuple[Cell, ...] = ()
    evidence: Callable[[], tuple[Evidence, ...]] = _no_evidence


class Rows(msgspec.Struct, frozen=True):
    """How records.jsonl becomes a table.

    ``line`` is what a line is decoded as: a type with only the keys that are read makes a page fast. ``reader`` is
    given report.json's content and returns what makes such a line a row, or None for a line about no record.
    """

    columns: tuple[Column, ...]
    line: Any
    reader: Callable[[Mapping[str, Json]], Callable[[Any], Row | None]]


def _generic_reader(report: Mapping[str, Json]) -> Callable[[Any], Row | None]:
    return _generic


def _generic(line: Mapping[str, Any]) -> Row | None:
    status = str(line.get("status", "")).lower()
    reason = line.get("reason") or line.get("issue") or ""
    return Row(
        str(line.get("record", "")),
        str(line.get("id") or ""),
        status,
        state_of(status),
        str(reason),
        evidence=lambda: tuple(_everything(line)),
    )


def _everything(line: Mapping[str, Any]) -> Iterator[Evidence]:
    """All that is known of a record whose evaluator does not say what it expected."""
    for key, value in line.items():
        if key not in ("record", "id", "status"):
            yield Evidence(key, "", value if isinstance(value, str) else canonical_json(value).decode())


generic_rows = Rows((), dict[str, Any], _generic_reader)
"""Of an evaluator that declares none: status and reason, and of failed records all keys of their line."""


def row_faults(rows: Rows, report: Mapping[str, Json], lines: list[bytes]) -> Iterator[str]:
    """What is wrong with an evaluator's rows over records of its own, a sentence each; nothing when all is well."""
    see = rows.reader(report)
    for data in lines:
        row = see(msgspec.json.decode(data, type=rows.line))
        if row is None:
            continue
        where = f"row of {row.record!r}"
        if len(row.cells) != len(rows.columns):
            yield f"{where}: {len(row.cells)} cells for {len(rows.columns)} columns"
        if row.state in ("bad", "doubtful") and not (row.reason or row.evidence()):
            yield f"{where}: it {row.status}, and nothing says why"
