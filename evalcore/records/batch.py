"""One chunk's bytes as records: rows of a CSV or lines of a JSONL, each with its line number.

Faults depend on the record alone, never on its chunk: if the fast way over a whole chunk fails, each record is decoded
by itself.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from evalq.evalcore.model.manifest import MAX_RECORD_BYTES, Format, location

_NEWLINE = re.compile(rb"\n")
_NEWLINE_OR_QUOTED = re.compile(rb'\n|"[^"]*"')
Report = Callable[[int, str], None]


class Batch(msgspec.Struct, frozen=True):
    """Whole records of one input.

    ``source`` is the input's name in faults, ``first_line`` the 1-based line on which ``data`` begins, ``columns`` the
    header of a CSV (empty for JSONL), ``members`` the files of the lines, one each, if the input is a folder.
    """

    source: str
    first_line: int
    data: bytes
    columns: tuple[str, ...] = ()
    members: tuple[str, ...] = ()

    def where(self, line: int) -> str:
        """The name of the record on ``line``: "<source>:<line>", or "<source>/<file>" if it comes from a file."""
        return location(self.source, line, self.members, self.first_line)

    def rows(self, fault: Report) -> Iterator[tuple[int, list[str]]]:
        """(line, fields) of each CSV row, as many fields as columns; blank rows, and rows of empty cells, are skipped.

        For a row that is not UTF-8, not CSV, or of another width, it calls ``fault(line, reason)`` instead.
        """
        rows: Iterable[tuple[int, list[str]]]
        try:
            # Parse all rows before yielding one: if this fails, the slow way begins from the start.
            rows = list(_parse(self.data.decode(), self.first_line))
        except (UnicodeDecodeError, csv.Error):
            rows = self._row_by_row(fault)  # lazily, so that rows and faults come in the order of the file
        width = len(self.columns)
        for line, row in rows:
            if len(row) == width:
                yield line, row
            else:
                fault(line, f"{len(row)} fields where the header has {width}: is the delimiter or the quoting broken?")

    def first_row(self) -> tuple[str, ...]:
        """The fields of the first row, the header of a CSV. Raises UnicodeDecodeError, csv.Error."""
        return tuple(next(iter(_parse(self.data.decode(), self.first_line)), (0, []))[1])

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """(line, bytes) of each JSONL line that is not blank, without its newline."""
        for line, data in enumerate(self.data.split(b"\n"), start=self.first_line):
            if data and not data.isspace():
                yield line, data

    def ends(self, fmt: Format) -> list[int]:
        """The offset in ``data`` where each record (line or row, blank ones included) ends."""
        pattern = _NEWLINE_OR_QUOTED if fmt == "csv" else _NEWLINE
        ends = [match.end() for match in pattern.finditer(self.data) if match[0] == b"\n"]
        return ends if self.data.endswith(b"\n") and ends else [*ends, len(self.data)]

    def part(self, ends: Sequence[int], first: int, last: int) -> Batch:
        """A batch of the records ``first`` to ``last`` (exclusive); ``ends`` are the ends of this batch's records."""
        start = ends[first - 1] if first else 0
        stop = ends[last - 1] if last else 0
        # Count lines, not records: a row of a CSV may have several lines.
        skipped = self.data.count(b"\n", 0, start)
        part = Batch(self.source, self.first_line + skipped, self.data[start:stop], self.columns)
        if not self.members:
            return part
        return msgspec.structs.replace(part, members=self.members[skipped : skipped + last - first])

    def _row_by_row(self, fault: Report) -> Iterator[tuple[int, list[str]]]:
        line, start = self.first_line, 0
        for end in self.ends("csv"):
            record = self.data[start:end]
            try:
                yield from _parse(record.decode(), line)
            except UnicodeDecodeError as error:
                fault(line + record.count(b"\n", 0, error.start), not_utf8(record, error.start))
            except csv.Error as error:
                fault(line, f"not CSV: {csv_fault(error)}")
            line += record.count(b"\n")
            start = end


def _parse(text: str, first_line: int) -> Iterator[tuple[int, list[str]]]:
    # The module's limit of 128 KiB a field is too low for an agent's JSON.
    csv.field_size_limit(MAX_RECORD_BYTES)
    # Strict: otherwise the reader ignores a misplaced quote, and returns wrong fields.
    reader = csv.reader(io.StringIO(text, newline="\n"), strict=True)
    before = 0
    for row in reader:
        # Spreadsheets write rows of empty cells for deleted rows, and for cells that only have a colour.
        if any(map(str.strip, row)):
            yield first_line + before, row
        before = reader.line_num


def csv_fault(error: csv.Error) -> str:
    """The parser's reason, without its advice on how Python opens files."""
    if "new-line character" in str(error):
        return "a lone carriage return outside quotes (save the file with line feeds)"
    return str(error)


_KOREAN = re.compile("[가-힣]")


def not_utf8(data: bytes, at: int) -> str:
    """Why ``data``, whose byte ``at`` no UTF-8 has, cannot be read, and what to do."""
    return f"not UTF-8: byte 0x{data[at]:02x} ({other_encoding(data)})"


def other_encoding(data: bytes) -> str:
    """What to do with a text that begins with ``data`` and is not UTF-8, with its encoding if that is clear."""
    try:
        # Excel in Korean Windows saves a plain CSV so. The last character may be cut in two.
        text = codecs.getincrementaldecoder("cp949")().decode(data)
    except UnicodeDecodeError:
        text = ""
    korean = _KOREAN.search(text) is not None
    return "it reads as Korean in cp949: save the file as 'CSV UTF-8'" if korean else "save the file as UTF-8"
