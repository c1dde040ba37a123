"""A page as plain data: what stands on it, and nothing of how it looks."""

from __future__ import annotations

from dataclasses import dataclass, field

from evalq.evalcore.views.charts import Mark, State, Tile
from evalq.evalcore.views.metrics import Unit
from evalq.evalcore.views.rows import Column, Evidence

__all__ = [
    "ChartSection",
    "ChartTable",
    "FailedRecord",
    "FailedSection",
    "Listing",
    "Page",
    "ProseSection",
    "Section",
    "TableSection",
    "TileSection",
]


@dataclass(frozen=True)
class TileSection:
    """A handful of numbers."""

    title: str
    tiles: tuple[Tile, ...]


@dataclass(frozen=True)
class ChartTable:
    """A chart with its rows."""

    title: str
    caption: str
    kind: str
    unit: Unit
    label: str
    marks: tuple[Mark, ...]
    low: float
    high: float
    line: float | None = None


@dataclass(frozen=True)
class ChartSection:
    """Charts, one below the other."""

    title: str
    charts: tuple[ChartTable, ...]


@dataclass(frozen=True)
class ProseSection:
    """Sentences."""

    title: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class TableSection:
    """A plain table; all cells are text."""

    title: str
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class FailedRecord:
    """A record that failed or cannot be decided, with what was expected of it beside what came."""

    record: str
    id: str
    status: str
    state: State
    reason: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class FailedSection:
    """The first records that failed, readable without scripts; ``total`` says how many there are."""

    title: str
    total: int
    first: tuple[FailedRecord, ...]


Section = TileSection | ChartSection | ProseSection | TableSection | FailedSection


@dataclass
class Listing:
    """What the table of records has in it, as it was packed: ``kept`` rows of ``total``.

    ``statuses`` counts all records by (status, state), ``explained`` are failed ones whose evidence came along.
    """

    columns: tuple[Column, ...] = ()
    total: int = 0
    kept: int = 0
    failed: int = 0
    explained: int = 0
    statuses: dict[tuple[str, State], int] = field(default_factory=dict)
    first: list[FailedRecord] = field(default_factory=list)


@dataclass(frozen=True)
class Page:
    """A page: what it is about, its headline, its sections, and the table of records where there is one."""

    subject: str
    headline: str
    sentence: str
    state: State
    sections: tuple[Section, ...]
    notices: tuple[str, ...] = ()
    listing: Listing | None = None
    facts: tuple[tuple[str, str], ...] = ()
    params: str = ""
