"""Cutting a file into chunks that begin and end on record boundaries, in constant memory.

JSONL records end at a newline. CSV records end at a newline outside quotes (RFC 4180): a newline is outside if an even
number of quotes comes before it. That holds for every legal file, because an escaped quote is two quotes. The same
count finds illegal quotes, so broken quoting is an error with a line, never a misplaced boundary.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BufferedIOBase
from types import ModuleType
from typing import NoReturn, TypeAlias

from evalq.evalcore.errors import InputChanged, InputError
from evalq.evalcore.files import open_input
from evalq.evalcore.model.manifest import BLOCK_BYTES, BOM, MAX_CHUNK_BYTES, MAX_RECORD_BYTES, Format, Span, read_span
from evalq.evalcore.native import compiled
from evalq.evalcore.records.batch import Batch
from evalq.evalcore.records.digests import chunk_digest
from evalq.evalcore.records.inputs import HEAD_BYTES, Source, file_encoding, file_kind, read_columns

# Ends of records, and legal quoting: compiled code takes .2 milliseconds a megabyte, Python 4, with the same result.

_Positions: TypeAlias = "array[int]"  # in quotes: Python 3.11 has no array[int]
"""Offsets in ascending order."""
_Buffer = bytes | bytearray | memoryview

_QUOTE, _COMMA, _NEWLINE, _RETURN = b'",\n\r'
_BEFORE_OPENING = (_QUOTE, _COMMA, _NEWLINE)
_AFTER_CLOSING = (_QUOTE, _COMMA, _NEWLINE, _RETURN)
_OPENING = "broken quoting: a quote inside a field that does not begin with one"
_CLOSING = "broken quoting: text after a closing quote (write a quote inside a field twice)"
_UNCLOSED = "broken quoting: a quote opened here is never closed"
_LINES, _QUOTES = re.compile(b"\n"), re.compile(b'"')
# Python before 3.11.5 loses its position if a possessive group fails in a lookbehind. A count avoids that, and limits
# the memory for going back.
_LEGAL = re.compile(rb"""[^"]*+ (?: (?<![^",\n]) " [^"]*+ " (?![^",\n\r]) [^"]*+ ){0,4096}""", re.VERBOSE)
"""Matches as long as each quote has a legal neighbour, or 4,096 pairs: the same check as `_check_quotes`."""


class QuoteFault(ValueError):
    """Illegal quoting at byte ``position`` of the scanned block."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


def record_ends(block: _Buffer, fmt: Format) -> _Positions:
    """Positions just after each complete record of ``block``, which begins on a record boundary.

    Raises QuoteFault for an illegal CSV quote before the end of the last complete record.
    """
    return scan(block, fmt)[1]


def scan(block: _Buffer, fmt: Format) -> tuple[_Positions, _Positions]:
    """Positions of the newlines, and those just after each complete record. Raises QuoteFault as `record_ends` does."""
    native = compiled() if fmt == "csv" else None
    return python_scan(block, fmt) if native is None else _by_compiled(native, block)


def _by_compiled(native: ModuleType, block: _Buffer) -> tuple[_Positions, _Positions]:
    newlines, ends = array("q"), array("q")
    packed_newlines, packed_ends, bad, opens = native.record_ends(block)
    newlines.frombytes(packed_newlines)
    ends.frombytes(packed_ends)
    # Check whole records only: the next block may make a later quote legal.
    if ends and 0 <= bad < ends[-1]:
        raise QuoteFault(bad, _OPENING if opens else _CLOSING)
    return newlines, ends


def _newlines_counter() -> Callable[[_Buffer], int] | None:
    """The compiled counter of newlines, faster than finding them; None without compiled code."""
    native = compiled()
    return None if native is None else native.count_newlines


def python_scan(block: _Buffer, fmt: Format) -> tuple[_Positions, _Positions]:
    """`scan` in Python: the reference."""
    data = bytes(block)
    newlines = array("q", [match.start() for match in _LINES.finditer(data)])
    if fmt != "csv":
        return newlines, array("q", [newline + 1 for newline in newlines])
    ends, quotes, start = array("q"), 0, 0
    for newline in newlines:
        quotes += data.count(b'"', start, newline)
        start = newline
        if quotes % 2 == 0:
            ends.append(newline + 1)
    if quotes and ends and not _is_legal(data, ends[-1]):
        _check_quotes(data)
    return newlines, ends


def _is_legal(data: bytes, end: int) -> bool:
    at, before = 0, -1
    while before < at < end:
        match = _LEGAL.match(data, at, end)
        before, at = at, match.end() if match else at
    return at == end


def _check_quotes(data: bytes) -> None:
    """Raise QuoteFault at the first opening or closing quote with an illegal neighbour."""
    for number, match in enumerate(_QUOTES.finditer(data)):
        at = match.start()
        # At 0 the block begins a record, so there is no byte before.
        if number % 2 == 0 and at and data[at - 1] not in _BEFORE_OPENING:
            raise QuoteFault(at, _OPENING)
        # Each closing quote has a byte after it: at least the newline that ends its record.
        if number % 2 and data[at + 1] not in _AFTER_CLOSING:
            raise QuoteFault(at, _CLOSING)


def _raise_open(block: _Buffer) -> NoReturn:
    """Raise QuoteFault for a last record that never ends: at its first illegal quote, or else at the open one."""
    data = bytes(block)
    _check_quotes(data)
    raise QuoteFault(data.rindex(b'"'), _UNCLOSED)


_GROWS = 8
"""A chunk is at most this part of the bytes before it, once these are more than a block."""
MANY_RECORDS = 10_000
"""A chunk with this many records grows no further: the cost of a chunk is small beside theirs."""
_FIRST_BYTES = 1 << 16
"""The first buffer, enough for most inputs: allocating a whole block takes longer than cutting a small input."""
_REST_BYTES = BLOCK_BYTES // 16
"""Space for the rest of a record before a block."""


class Cutter:
    """Cuts one open file; after the last span, ``sha256`` and ``records`` describe the whole input.

    With ``required`` it reads the header first: ``columns`` are the columns of a CSV, which must have all required ones
    (see `_columns`). Without it, the caller reads the header, or wants the plain bytes.
    ``size`` is the number of records in a chunk. None means about ``block`` bytes a chunk, and later more if records
    are long (a chunk never grows far beyond MAX_CHUNK_BYTES). ``limit`` stops after that many records. ``resume_after``
    continues an earlier cut after its last span. ``key`` is the key of the run. Without one, for callers that read each
    span at once, spans have no digest.
    """

    def __init__(
        self,
        stream: BufferedIOBase,
        fmt: Format,
        name: str,
        required: Sequence[str] | None = None,
        *,
        size: int | None = None,
        limit: int | None = None,
        key: str = "",
        block: int | None = None,
    ) -> None:
        self._stream = stream
        self._format: Format = fmt
        self._name = name
        self._size = size
        self._limit = limit
        self._key = key
        self._block = BLOCK_BYTES if block is None else block
        self._sha256 = hashlib.sha256()
        # The bytes to cut are buffer[at:end]; the buffer is used again and again.
        self._buffer = bytearray(_FIRST_BYTES)
        self._at = self._end = 0
        self._newlines: _Positions | None = None
        self._ended = False
        self.position = 0
        self.line = 1
        self.records = 0
        self._skip_bom()
        self.columns: tuple[str, ...] = () if required is None else self._columns(required)

    @property
    def sha256(self) -> str:
        """SHA-256 of the input's bytes so far, BOM and header included."""
        return self._sha256.hexdigest()

    def _columns(self, required: Sequence[str]) -> tuple[str, ...]:
        """Read the header of a CSV, its first record that is not blank; () if there is none.

        Raises InputError as `read_columns` does, and for broken quoting or another kind of file.
        """
        while self._left() < HEAD_BYTES and not self._ended:
            self._fill()
        head = bytes(self._rest()[:HEAD_BYTES])
        if self._format != "csv":
            if encoding := file_encoding(head):
                raise InputError(f"{self._name} is no JSONL in UTF-8", [(f"{self._name}:1", encoding)])
            return ()
        try:
            while True:
                line, first = self.line, self.header()
                # Excel writes rows of commas for empty rows above a table.
                if not first or first.strip(b" \t\r\n,"):
                    return read_columns(first, self._name, required, line) if first else ()
        except InputError as error:
            # Check the kind only after a failure: a readable CSV may begin with anything.
            kind = file_kind(head)
            if kind is None:
                raise
            raise InputError(f"{self._name} is no CSV in UTF-8", [(f"{self._name}:1", kind)]) from error

    def header(self) -> bytes:
        """Read the next record; empty at the end of the file. Raises InputError on broken quoting."""
        ends = self._ends()
        while not len(ends) and not self._ended:
            self._fill()
            ends = self._ends()
        if not len(ends):
            return b""
        first = bytes(self._rest()[: int(ends[0])])
        self._take(len(first), 0)
        return first

    def resume_after(self, spans: Iterable[Span]) -> int:
        """Skip ``spans``, all earlier chunks of this file in order, and return their number.

        Raises InputChanged if the bytes differ, or the last record has become longer.
        """
        count = 0
        for count, span in enumerate(spans, 1):  # noqa: B007  # the last count is the result
            while self._left() < span.end - self.position and not self._ended:
                self._fill()
            if self._take(min(span.end - self.position, self._left()), span.records) != span:
                where = f"{self._name}:{span.first_line}"
                raise InputChanged("an input changed since its run began", [(where, "not the bytes that were planned")])
        # If the last chunk ended at the end of the file, bytes added later belong to its last record.
        if count and self._buffer[self._at - 1] != _NEWLINE and self._more():
            where = f"{self._name}:{self.line}"
            raise InputChanged("an input changed since its run began", [(where, "its last record has become longer")])
        return count

    def spans(self) -> Iterator[Span]:
        """The chunks from here to the end (or the limit). Raises InputError with file:line on broken quoting."""
        # Count newlines only if no chunk ends at a certain record; otherwise each newline must be found.
        counted = (
            _newlines_counter() if self._format == "jsonl" and self._size is None and self._limit is None else None
        )
        if counted is not None:
            yield from self._whole_lines(counted)
            return
        while self._wanted() > 0:
            while self._size is None and self._left() < self._enough() and not self._ended:
                self._fill()
            ends = self._ends()
            wanted = self._wanted()
            if len(ends) >= wanted:
                yield from self._groups(ends, wanted)
            elif len(ends) and (self._ended or self._left() >= self._enough()):
                yield self._take(int(ends[-1]), len(ends))
            elif self._ended:
                return
            else:
                self._fill()

    def _whole_lines(self, counted: Callable[[memoryview], int]) -> Iterator[Span]:
        """The chunks of whole lines, for which only the last newline must be found."""
        while True:
            while self._left() < self._enough() and not self._ended:
                self._fill()
            stop = self._end if self._ended else self._buffer.rfind(b"\n", self._at, self._end) + 1
            if stop > self._at:
                with self._rest() as rest, rest[: stop - self._at] as piece:
                    lines = counted(piece)
                    # The file's last line may lack its newline.
                    records = lines + (piece[-1] != _NEWLINE)
                yield self._take(stop - self._at, records, lines)
            elif self._ended:
                return
            else:
                self._fill()

    def _wanted(self) -> int:
        """How many records the next chunk takes at most."""
        left = None if self._limit is None else self._limit - self.records
        sizes = [n for n in (self._size, left) if n is not None]
        return min(sizes) if sizes else 1 << 62

    def _enough(self) -> int:
        """The bytes that make a chunk; a block without the header or another chunk's rest is enough.

        It depends only on earlier chunks, so that a resumed cut has the same chunks.
        """
        if self._size is not None:
            return MAX_CHUNK_BYTES
        # A chunk costs every process a few milliseconds, so chunks of few records grow. They grow slowly, since an
        # input of a few blocks must keep all processes busy.
        most = min(self.position // _GROWS, MAX_CHUNK_BYTES - BLOCK_BYTES)
        return max(self._block * 3 // 4, min(most, self.position * MANY_RECORDS // max(1, self.records)))

    def _left(self) -> int:
        return self._end - self._at

    def _more(self) -> bool:
        """Whether there are bytes left to cut."""
        while not self._left() and not self._ended:
            self._fill()
        return self._left() > 0

    def _rest(self) -> memoryview:
        return memoryview(self._buffer)[self._at : self._end]

    def _groups(self, ends: _Positions, wanted: int) -> Iterator[Span]:
        """As many chunks of ``wanted`` records as the block holds: one scan serves them all."""
        base, used = self.position, 0
        while 0 < wanted <= len(ends) - used:
            used += wanted
            yield self._take(ends[used - 1] - (self.position - base), wanted)
            wanted = self._wanted()

    def _ends(self) -> _Positions:
        """Ends of the records at hand, counted from the next byte; the file's last one may lack its newline."""
        self._compact()
        closed = self._left()
        if self._ended and closed and self._buffer[closed - 1] != _NEWLINE:
            # The last record may lack its newline: add one for the scan only, which no span counts.
            self._buffer[closed : closed + 1] = b"\n"
            closed += 1
        with memoryview(self._buffer) as view:
            try:
                self._newlines, ends = scan(view[:closed], self._format)
                if self._ended and closed and (not len(ends) or ends[-1] < closed):
                    _raise_open(view[:closed])
            except QuoteFault as fault:
                line = self.line + bytes(view[: fault.position]).count(b"\n")
                where = f"{self._name}:{line}"
                raise InputError(f"{self._name} is not valid CSV", [(where, fault.reason)]) from None
        if len(ends):
            # The added newline is no byte of the file.
            ends[-1] = min(ends[-1], self._left())
        return ends

    def _compact(self) -> None:
        """Move the bytes to cut to the buffer's front."""
        if self._at:
            left = self._left()
            with memoryview(self._buffer) as view:
                view[:left] = view[self._at : self._end]  # this also works if the two overlap
            self._at, self._end = 0, left
            self._newlines = None

    def _take(self, length: int, records: int, lines: int | None = None) -> Span:
        """Remove ``length`` bytes from the front as a span; ``lines`` is the number of lines, if known."""
        start, stop = self._at, self._at + length
        if lines is None:
            lines = self._lines_between(start, stop)
        with memoryview(self._buffer) as view:
            data = view[start:stop]
            # Two digests: the input's, for the report, and the chunk's, which workers check.
            self._sha256.update(data)
            digest = chunk_digest(data, self._key) if self._key else ""
            data.release()
        span = Span(self.position, self.position + length, self.line, records, digest)
        self._at = stop
        self.position += length
        self.line += lines
        self.records += records
        return span

    def _lines_between(self, start: int, stop: int) -> int:
        if self._newlines is None:
            return self._buffer.count(b"\n", start, stop)
        return bisect_left(self._newlines, stop) - bisect_left(self._newlines, start)

    def _fill(self) -> None:
        """Read another block into the buffer."""
        # A quote that is never closed makes the rest of the file one record; refuse it before it fills the memory.
        if self._left() > MAX_RECORD_BYTES:
            reason = f"a record longer than {MAX_RECORD_BYTES >> 20} MiB; is a quote never closed?"
            raise InputError(f"{self._name} cannot be cut", [(f"{self._name}:{self.line}", reason)])
        self._compact()
        read, full = 0, True
        while full and read < self._block:
            # Let the buffer grow only when it is full, which is rare at the end of a file.
            if self._end == len(self._buffer):
                self._buffer.extend(bytes(min(len(self._buffer), self._block - read + _REST_BYTES)))
            room = min(self._block - read, len(self._buffer) - self._end)
            more = self._read(room)
            read, full = read + more, more == room
        self._ended = not read
        self._newlines = None

    def _read(self, most: int) -> int:
        """Read up to ``most`` bytes into the buffer, and return how many."""
        with memoryview(self._buffer) as view:
            read = self._stream.readinto(view[self._end : self._end + most])
        self._end += read
        return read

    def _skip_bom(self) -> None:
        while self._left() < len(BOM) and not self._ended:
            self._fill()
        if self._buffer.startswith(BOM):
            self._sha256.update(BOM)
            self._at = self.position = len(BOM)


# An open input and its chunks as batches, for code that reads whole inputs in one process.


@contextlib.contextmanager
def opened(
    source: Source,
    fmt: Format,
    required: Sequence[str] | None,
    *,
    size: int | None = None,
    limit: int | None = None,
) -> Iterator[Cutter]:
    """The cutter of a plain file, behind its header; arguments as in `Cutter`. Raises InputError, OSError."""
    with open_input(source.cut_path) as stream:
        yield Cutter(stream, fmt, source.name, required, size=size, limit=limit)


def batches(cutter: Cutter, source: Source) -> Iterator[Batch]:
    """The records of ``source``, chunk by chunk; this reads the file a second time. Raises InputError."""
    for span in cutter.spans():
        data = read_span(source.cut_path, span)
        yield Batch(source.name, span.first_line, data, cutter.columns, span.of(source.members))
