"""Which rounds each Query ID was run in, and with what score: packed, because there may be very many."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from evalq.evalcore.model.merging import Merging

__all__ = [
    "MAX_BYTES",
    "UNSCORED",
    "Queries",
    "QueryReview",
    "Repeat",
    "pack_line",
    "pack_rest",
    "pack_row",
    "unpack_rows",
]

UNSCORED = 255
"""Stands for the score of a row that has none."""
MAX_BYTES = 1 << 14
"""How much is kept of one Query ID: over 1,000 rows. One with more is repeated anyway."""

_ROUNDS = 2
"""What the specification requires of a Query ID, and a comparison needs."""
_PAD = 8
_HEAD = struct.Struct("<IBBH")
_REST = struct.Struct("<BH")
_LINE_BYTES = _HEAD.size - _REST.size
_SHORT = struct.Struct(f"{_HEAD.format}{_PAD}s")


class Repeat(NamedTuple):
    """A row whose Query ID and round another row had before."""

    query: str
    round: str
    line: int
    first_line: int


class QueryReview(msgspec.Struct):
    """All Query IDs compared over their rounds.

    ``both_pass`` and ``both_fail`` count those with the same side of the pass mark in every scored round, ``compared``
    those with two or more and none repeated; ``short`` (fewer scored rounds) and ``repeated`` list the others,
    ``incomplete`` those that lack a row in some round, two rounds being the least there must be. Each is in
    alphabetical order.
    """

    both_pass: int = 0
    both_fail: int = 0
    compared: int = 0
    short: list[str] = []
    repeated: list[str] = []
    incomplete: list[str] = []


class Queries(Merging, array_like=True):
    """Rows by Query ID, in input order, as `pack_row` packs them; ``dropped`` counts rows beyond MAX_BYTES."""

    rows: dict[str, bytes] = msgspec.field(default_factory=dict)
    dropped: dict[str, int] = msgspec.field(default_factory=dict)

    def add(self, query: str, row: bytes) -> None:
        """Add one packed row behind those of the same Query ID."""
        old = self.rows.get(query)
        if old is None:
            self.rows[query] = row
        elif len(old) < MAX_BYTES:
            self.rows[query] = old + row
        else:
            self.dropped[query] = self.dropped.get(query, 0) + 1

    def merge(self, later: Queries) -> None:
        """Take in the rows that follow behind these."""
        for query, rows in later.rows.items():
            old = self.rows.get(query)
            if old is None:
                self.rows[query] = rows
            elif len(old) + len(rows) < MAX_BYTES:
                self.rows[query] = old + rows
            else:
                # Row by row: which rows are kept must not depend on where the input was cut.
                for row in _split(rows):
                    self.add(query, row)
        for query, count in later.dropped.items():
            self.dropped[query] = self.dropped.get(query, 0) + count

    def repeats(self) -> Iterator[Repeat]:
        """Every row that repeats a (Query ID, round), as far as rows are kept."""
        for query, packed in self.rows.items():
            rows = _fields(packed)
            if len({row[3:] for row in rows}) == len(rows):
                continue
            first: dict[str, int] = {}
            for round_, _, line in unpack_rows(packed):
                seen = first.setdefault(round_, line)
                if seen != line:
                    yield Repeat(query, round_, line, seen)

    def review(self, rounds: int, pass_mark: int) -> QueryReview:
        """Compare every Query ID over its rounds, of which the input has ``rounds``."""
        review = QueryReview()
        for query in sorted(self.rows):
            rows = _fields(self.rows[query])
            present = len({row[3:] for row in rows})
            passes = [row[2] >= pass_mark for row in rows if row[2] != UNSCORED]
            if present < max(rounds, _ROUNDS):
                review.incomplete.append(query)
            if present < len(rows) or query in self.dropped:
                review.repeated.append(query)
            elif len(passes) < _ROUNDS:
                review.short.append(query)
            else:
                review.compared += 1
                review.both_pass += all(passes)
                review.both_fail += not any(passes)
        return review


def pack_row(round_: str, score: int, line: int) -> bytes:
    """One row in 16 bytes or a few more; lines up to 2**40, names of rounds up to 65,535 bytes (then cut)."""
    return pack_line(line) + pack_rest(round_, score)


def pack_line(line: int) -> bytes:
    """The first part of a packed row, which differs from row to row."""
    return line.to_bytes(_LINE_BYTES, "little")


def pack_rest(round_: str, score: int) -> bytes:
    """The second part, which many rows have in common."""
    name = round_.encode()[:0xFFFF]
    return _REST.pack(score, len(name)) + name.ljust(_room(len(name)), b"\0")


def unpack_rows(packed: bytes) -> Iterator[tuple[str, int, int]]:
    """(round, score, line) of each packed row."""
    for low, high, score, size, name in _fields(packed):
        yield name[:size].decode("utf-8", "replace"), score, low | high << 32


def _split(packed: bytes) -> Iterator[bytes]:
    for low, high, score, size, name in _fields(packed):
        yield _HEAD.pack(low, high, score, size) + name


def _fields(packed: bytes) -> list[tuple[int, int, int, int, bytes]]:
    """(line's low part, its high part, score, size of the name, padded name) of each row; fast for short names."""
    if len(packed) % _SHORT.size == 0:
        rows = list(_SHORT.iter_unpack(packed))
        if all(row[3] <= _PAD for row in rows):
            return rows
    rows, at = [], 0
    while at < len(packed):
        low, high, score, size = _HEAD.unpack_from(packed, at)
        start, at = at + _HEAD.size, at + _HEAD.size + _room(size)
        rows.append((low, high, score, size, packed[start:at]))
    return rows


def _room(size: int) -> int:
    """Bytes a name of ``size`` takes: padded, so that rows of short names are all as long."""
    return max(_PAD, -(-size // _PAD) * _PAD)
