"""Pages of a run's records: any line of a big file is found quickly, and a search stops after a while."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.contract.measures import Observation
from evalq.evalcore.files import open_input
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.charts import Row, Rows
from evalq.producer.page.answers import LONGEST, lines_with
from evalq.producer.page.build import FailedRecord
from evalq.producer.page.packing import failed_record

# An index of the lines of a big file: the offset of every 256th line, up to where it has been read. It takes 30 kB a
# million lines.

_STEP = 256
_FILES = 32

Observe = Callable[[Mapping[str, Any]], Observation | None]
_Identity = tuple[int, int, int, int]


class LineIndex:
    """The offsets of the lines of one file. Thread-safe."""

    def __init__(self) -> None:
        self._marks = array("Q", [0])
        self._adding = threading.Lock()
        self.total: int | None = None
        """The number of lines, once the file has been read to its end."""

    def read(self, stream: BufferedReader, first: int) -> Iterator[tuple[int, bytes]]:
        """(number, line) from line ``first`` on, counted from 0; an overlong line is cut."""
        at = min(first // _STEP, len(self._marks) - 1)
        stream.seek(self._marks[at])
        number = at * _STEP
        while line := stream.readline(LONGEST):
            if len(line) == LONGEST and not line.endswith(b"\n"):
                _skip_line(stream)
            if number >= first:
                yield number, line
            number += 1
            if number % _STEP == 0:
                self._mark(number, stream.tell())
        self.total = number

    def _mark(self, number: int, offset: int) -> None:
        with self._adding:
            if number // _STEP == len(self._marks):
                self._marks.append(offset)


class LineIndexes:
    """The indexes of the files that were read last; a file that was written again gets a new one."""

    def __init__(self) -> None:
        self._known: OrderedDict[_Identity, LineIndex] = OrderedDict()
        self._changing = threading.Lock()

    def open(self, path: Path) -> tuple[BufferedReader, LineIndex]:
        """Open the file at ``path``; returns the stream, which the caller closes, and its index. Raises OSError."""
        stream = open_input(path)
        found = os.fstat(stream.fileno())
        identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        with self._changing:
            lines = self._known.setdefault(identity, LineIndex())
            self._known.move_to_end(identity)
            while len(self._known) > _FILES:
                self._known.popitem(last=False)
        return stream, lines


def _skip_line(stream: BufferedReader) -> None:
    """Skip to the end of a line, in pieces."""
    while (piece := stream.readline(1 << 20)) and not piece.endswith(b"\n"):
        pass


ROWS = 100
_SEARCH_SECONDS = 1.0
"""A search stops after this time, and its page links to the rest."""
_FAILED = frozenset({"bad", "doubtful"})
_TEXT, _RAW = 400, 1 << 16


class RecordFilter(NamedTuple):
    """Selects records: only ``failed`` (or undecided) ones, and those with ``text`` in a cell, in any case."""

    failed: bool = False
    text: str = ""

    @property
    def all(self) -> bool:
        """Whether it selects every record."""
        return not self.failed and not self.text

    def takes(self, row: Row) -> bool:
        """Whether it selects this record."""
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
    """The result of a search up to line ``end``; ``more``: the file goes on there."""

    found: list[FoundRecord]
    end: int
    more: bool
    total: int | None


class RecordReader:
    """The records.jsonl of one run, as its evaluator's rows."""

    def __init__(self, path: Path, lines: LineIndexes, rows: Rows, report: Mapping[str, Json]) -> None:
        self._path = path
        self._lines = lines
        self._decode = msgspec.json.Decoder(rows.line).decode
        self._see: Callable[[Any], Row | None] = rows.reader(report)

    def search(
        self,
        first: int,
        wanted: RecordFilter,
        most: int = ROWS,
        *,
        explain: bool = False,
        seconds: float = _SEARCH_SECONDS,
    ) -> RecordPage:
        """Up to ``most`` of the ``wanted`` records from line ``first`` on, with explained failures. Raises OSError."""
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

    def one(self, number: int) -> tuple[FailedRecord, bytes] | None:
        """The record of line ``number`` with its evidence, and the line itself.

        None if there is no such line. Raises OSError.
        """
        stream, lines = self._lines.open(self._path)
        with stream:
            for _, line in lines.read(stream, number):
                row = self._row(line)
                return None if row is None else (failed_record(row), line)
        return None

    def of_case(self, case: str, observe: Observe | None, most: int) -> list[tuple[int, int | None, FailedRecord]]:
        """(number of the line, repeat, record) of up to ``most`` records about ``case``, in order. Raises OSError.

        ``observe`` says which case a record is about; without it, its id does.
        """
        found: list[tuple[int, int | None, FailedRecord]] = []
        stream, _ = self._lines.open(self._path)
        with stream, contextlib.suppress(UnicodeEncodeError):
            for number, line in lines_with(stream, msgspec.json.encode(case)):
                row = self._row(line) if self._is_of(line, case, observe) else None
                if row is not None:
                    found.append((number, _repeat_of(line), failed_record(row)))
                if len(found) == most:
                    break
        return found

    def _is_of(self, line: bytes, case: str, observe: Observe | None) -> bool:
        try:
            record = msgspec.json.decode(line)
            if observe is None:
                return bool(record.get("id") == case)
            observation = observe(record)
        except Exception:  # an evaluator's code, on a line that may be damaged
            return False
        return observation is not None and observation.case == case

    def _row(self, line: bytes) -> Row | None:
        try:
            return self._see(self._decode(line))
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
            why = "a line that is longer than is shown" if len(line) >= LONGEST else f"a damaged line: {error}"
            return Row("", "", "unreadable", "bad", why)


class _Repeat(msgspec.Struct):
    repeat: int | None = None


def _repeat_of(line: bytes) -> int | None:
    try:
        return msgspec.json.decode(line, type=_Repeat).repeat
    except (ValueError, RecursionError):
        return None


def _short(row: Row) -> Row:
    """A row with short cells, and without its line."""
    cells = tuple(cell[:_TEXT] if isinstance(cell, str) else cell for cell in row.cells)
    return Row(row.record[:_TEXT], row.id[:_TEXT], row.status[:_TEXT], row.state, row.reason[:_TEXT], cells)


def pretty(line: bytes) -> str:
    """Indented JSON; a note says if it is cut."""
    text = "".join(_formatted(line))
    return text if len(text) <= _RAW else f"{text[:_RAW]}\n… {len(text) - _RAW:,} more characters in records.jsonl"


def _formatted(line: bytes) -> Iterator[str]:
    try:
        yield msgspec.json.format(line, indent=2).decode(errors="replace")
    except (ValueError, RecursionError):
        yield line.decode(errors="replace")
