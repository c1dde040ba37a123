"""The records of a run, some at a time: what is shown is read, and a search stops after a while and says where."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.charts import Row, Rows
from evalq.producer.page.build import FailedRecord
from evalq.producer.page.packing import failed_record
from evalq.producer.viewing.lines import LONGEST, LinesOf

__all__ = ["ROWS", "FoundRecord", "RecordFilter", "RecordPage", "Records"]

ROWS = 100
_SECONDS = 1.0
"""Of searching; then whoever looks decides whether to go on."""
_FAILED = frozenset({"bad", "doubtful"})
_TEXT, _RAW = 400, 1 << 16


class RecordFilter(NamedTuple):
    """Which records: ``failed`` (or undecided) ones alone, and those in whose cells ``text`` stands, in any case."""

    failed: bool = False
    text: str = ""

    @property
    def all(self) -> bool:
        """Whether every record is."""
        return not self.failed and not self.text

    def takes(self, row: Row) -> bool:
        """Whether this is one."""
        if self.failed and row.state not in _FAILED:
            return False
        words = (row.record, row.id, row.status, row.reason, *(cell for cell in row.cells if isinstance(cell, str)))
        return not self.text or self.text.lower() in "\n".join(words).lower()


class FoundRecord(NamedTuple):
    """A record, by the number of its line."""

    number: int
    row: Row
    failed: FailedRecord | None = None


class RecordPage(NamedTuple):
    """What a look found: ``end`` is the line up to which it looked, ``more`` whether the file goes on there."""

    found: list[FoundRecord]
    end: int
    more: bool
    total: int | None


class Records:
    """The records.jsonl of one run, as its evaluator's rows."""

    def __init__(self, path: Path, lines: LinesOf, rows: Rows, report: Mapping[str, Json]) -> None:
        self._path = path
        self._lines = lines
        self._decode = msgspec.json.Decoder(rows.line).decode
        self._see: Callable[[Any], Row | None] = rows.reader(report)

    def look(
        self, first: int, wanted: RecordFilter, most: int = ROWS, *, explain: bool = False, seconds: float = _SECONDS
    ) -> RecordPage:
        """Up to ``most`` of those ``wanted`` from line ``first`` on, with what failed explained. Raises OSError."""
        found: list[FoundRecord] = []
        until = time.monotonic() + seconds
        stream, lines = self._lines.open(self._path)
        with stream:
            for number, line in lines.read(stream, first):
                if len(found) == most or (number % 64 == 0 and number > first and time.monotonic() > until):
                    return RecordPage(found, number, True, lines.total)
                row = self._row(line)
                if row is not None and wanted.takes(row):
                    found.append(FoundRecord(number, _short(row), failed_record(row) if explain else None))
        return RecordPage(found, lines.total or 0, False, lines.total)

    def one(self, number: int) -> tuple[FailedRecord, str] | None:
        """The record of line ``number`` with its evidence, and the line itself as far as a page has room.

        None where there is none. Raises OSError.
        """
        stream, lines = self._lines.open(self._path)
        with stream:
            for _, line in lines.read(stream, number):
                row = self._row(line)
                return None if row is None else (failed_record(row), _pretty(line))
        return None

    def _row(self, line: bytes) -> Row | None:
        try:
            return self._see(self._decode(line))
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
            why = "a line that is longer than is shown" if len(line) >= LONGEST else f"a damaged line: {error}"
            return Row("", "", "unreadable", "bad", why)


def _short(row: Row) -> Row:
    """Without the line it was made of, which may be long."""
    cells = tuple(cell[:_TEXT] if isinstance(cell, str) else cell for cell in row.cells)
    return Row(row.record[:_TEXT], row.id[:_TEXT], row.status[:_TEXT], row.state, row.reason[:_TEXT], cells)


def _pretty(line: bytes) -> str:
    """JSON with a line for each key; cut openly."""
    text = "".join(_formatted(line))
    return text if len(text) <= _RAW else f"{text[:_RAW]}\n… {len(text) - _RAW:,} more characters in records.jsonl"


def _formatted(line: bytes) -> Iterator[str]:
    try:
        yield msgspec.json.format(line, indent=2).decode(errors="replace")
    except (ValueError, RecursionError):
        yield line.decode(errors="replace")
