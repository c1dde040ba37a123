"""Where the records of a block of bytes end, and whether its quoting is legal, in one of three ways with one answer.

Compiled code takes .2 milliseconds a megabyte. By numpy it is 1.5, without it 4; but importing numpy takes 50 and more,
a fifth of what a small input takes in all. So where nothing is compiled, a process begins without it, and changes over
once it has read more than a little.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from evalq.evalcore.model.span import Format
from evalq.evalcore.native import compiled

if TYPE_CHECKING:
    from numpy import int64, uint8
    from numpy.typing import NDArray

    Positions = NDArray[int64] | array[int]
    """Offsets in ascending order."""
else:
    Positions = object

__all__ = [
    "PLAIN_BYTES",
    "Positions",
    "QuoteFault",
    "newlines_counter",
    "plainly",
    "quickly",
    "raise_open",
    "record_ends",
    "scan",
]

Buffer = bytes | bytearray | memoryview

PLAIN_BYTES = 8 << 20
"""So much of a process's input is read without numpy."""

_QUOTE, _COMMA, _NEWLINE, _RETURN = b'",\n\r'
_BEFORE_OPENING = (_QUOTE, _COMMA, _NEWLINE)
_AFTER_CLOSING = (_QUOTE, _COMMA, _NEWLINE, _RETURN)
_OPENING = "broken quoting: a quote inside a field that does not begin with one"
_CLOSING = "broken quoting: text after a closing quote (write a quote inside a field twice)"
_UNCLOSED = "broken quoting: a quote opened here is never closed"
_LINES, _QUOTES = re.compile(b"\n"), re.compile(b'"')
# Python before 3.11.5 forgets where it was if a possessive group fails in a lookbehind: hence a count, which has the
# room that is kept to go back bounded too.
_LEGAL = re.compile(rb"""[^"]*+ (?: (?<![^",\n]) " [^"]*+ " (?![^",\n\r]) [^"]*+ ){0,4096}""", re.VERBOSE)
"""As far as each quote has a neighbour that it may have, or 4,096 pairs: what `_check_quotes` asks."""


class QuoteFault(ValueError):
    """Illegal quoting at byte ``position`` of the scanned block."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


class _Way:
    """How many bytes more this process reads without numpy."""

    left = PLAIN_BYTES


def record_ends(block: Buffer, fmt: Format) -> Positions:
    """Positions just after each complete record of ``block``, which begins on a record boundary.

    Raises QuoteFault where a CSV quote before the last complete record's end is illegal.
    """
    return scan(block, fmt)[1]


def scan(block: Buffer, fmt: Format) -> tuple[Positions, Positions]:
    """Positions of the newlines, and those just after each complete record. Raises QuoteFault as `record_ends` does."""
    native = compiled() if fmt == "csv" else None
    if native is not None:
        return _swiftly(native, block)
    if len(block) > _Way.left:
        # For good: once numpy is imported it is the faster way for every block.
        _Way.left = 0
        return quickly(block, fmt)
    _Way.left -= len(block)
    return plainly(block, fmt)


def _swiftly(native: ModuleType, block: Buffer) -> tuple[array[int], array[int]]:
    """`scan` of a CSV by compiled code."""
    newlines, ends = array("q"), array("q")
    packed_newlines, packed_ends, bad, opens = native.record_ends(block)
    newlines.frombytes(packed_newlines)
    ends.frombytes(packed_ends)
    # Only in whole records: a quote behind them may be judged by what the next block brings.
    if ends and 0 <= bad < ends[-1]:
        raise QuoteFault(bad, _OPENING if opens else _CLOSING)
    return newlines, ends


def newlines_counter() -> Callable[[Buffer], int] | None:
    """What counts the newlines of a block in less time than finding them takes; None where nothing is compiled."""
    native = compiled()
    return None if native is None else native.count_newlines


def plainly(block: Buffer, fmt: Format) -> tuple[array[int], array[int]]:
    """`scan` without numpy."""
    data = bytes(block)
    newlines = array("q", [found.start() for found in _LINES.finditer(data)])
    if fmt != "csv":
        return newlines, array("q", [newline + 1 for newline in newlines])
    ends, quotes, start = array("q"), 0, 0
    for newline in newlines:
        quotes += data.count(b'"', start, newline)
        start = newline
        if quotes % 2 == 0:
            ends.append(newline + 1)
    if quotes and ends and not _is_legal(data, ends[-1]):
        raise _first_fault(data)
    return newlines, ends


def _is_legal(data: bytes, end: int) -> bool:
    at, before = 0, -1
    while before < at < end:
        found = _LEGAL.match(data, at, end)
        before, at = at, found.end() if found else at
    return at == end


def _first_fault(data: bytes) -> QuoteFault:
    """The first illegal quote of ``data``, which has one."""
    for number, found in enumerate(_QUOTES.finditer(data)):
        at = found.start()
        if number % 2 == 0 and at and data[at - 1] not in _BEFORE_OPENING:
            return QuoteFault(at, _OPENING)
        if number % 2 and data[at + 1] not in _AFTER_CLOSING:
            return QuoteFault(at, _CLOSING)
    raise AssertionError("a legal block has no fault")


def quickly(block: Buffer, fmt: Format) -> tuple[NDArray[int64], NDArray[int64]]:
    """`scan` by numpy."""
    import numpy as np

    data = np.frombuffer(block, dtype=np.uint8)
    newlines = np.flatnonzero(data == _NEWLINE)
    quotes = np.flatnonzero(data == _QUOTE) if fmt == "csv" else newlines[:0]
    outside = (np.searchsorted(quotes, newlines) & 1) == 0
    ends: NDArray[int64] = newlines[outside] + 1
    if len(ends) and len(quotes):
        _check_quotes(data, quotes[: np.searchsorted(quotes, ends[-1])])
    return newlines, ends


def _check_quotes(data: NDArray[uint8], quotes: NDArray[int64]) -> None:
    """Raise QuoteFault at the first opening or closing quote with an illegal neighbour."""
    opening, closing = quotes[0::2], quotes[1::2]
    # A byte stands behind each closing quote: at the least the newline that ends its record.
    before, after = data[opening - 1], data[closing + 1]
    # At 0 the byte before is the block's last one, which says nothing: there the block begins a record.
    opens = (before == _QUOTE) | (before == _COMMA) | (before == _NEWLINE) | (opening == 0)
    closes = (after == _QUOTE) | (after == _COMMA) | (after == _NEWLINE) | (after == _RETURN)
    bad_open, bad_close = opening[~opens], closing[~closes]
    if len(bad_open) and (not len(bad_close) or bad_open[0] < bad_close[0]):
        raise QuoteFault(int(bad_open[0]), _OPENING)
    if len(bad_close):
        raise QuoteFault(int(bad_close[0]), _CLOSING)


def raise_open(block: Buffer) -> NoReturn:
    """Raise QuoteFault for a last record that never ends: at its first illegal quote, else at the one left open."""
    import numpy as np

    data = np.frombuffer(block, dtype=np.uint8)
    quotes = np.flatnonzero(data == _QUOTE)
    _check_quotes(data, quotes)
    raise QuoteFault(int(quotes[-1]), _UNCLOSED)
