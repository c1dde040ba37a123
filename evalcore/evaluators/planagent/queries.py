"""The rows of each Query ID: with their lines while they are few, then only their rounds."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from evalq.evalcore.model.state import LISTED, Merging

# Packed rows with their lines: 16 bytes or a few more, the same as in compiled code.

UNSCORED = 255
"""The score of an unscored row."""

_PAD = 8
_REST = struct.Struct("<BH")
_LINE_BYTES = 5
_MOST = 0xFFFF
_SHORT_ROW = _LINE_BYTES + _REST.size + _PAD
_NAMED = _LINE_BYTES + 1
"""The offset of the size of the round's name, which the name follows."""


def pack_row(round_: str, score: int, line: int) -> bytes:
    """One row in 16 bytes or a few more; lines up to 2**40, names of rounds up to 65,535 bytes (then cut)."""
    return pack_line(line) + pack_rest(round_, score)


def pack_line(line: int) -> bytes:
    """The first part of a packed row, different for each row."""
    return line.to_bytes(_LINE_BYTES, "little")


def pack_rest(round_: str, score: int) -> bytes:
    """The second part of a packed row, which many rows share."""
    name = round_.encode()[:_MOST]
    return _REST.pack(score, len(name)) + name.ljust(_room(len(name)), b"\0")


def _unpack_rest(rest: bytes) -> tuple[str, int]:
    """(round, score) of a row's second part."""
    score, size = _REST.unpack_from(rest)
    return rest[_REST.size : _REST.size + size].decode("utf-8", "replace"), score


def unpack_rows(packed: bytes) -> Iterator[tuple[str, int, int]]:
    """(round, score, line) of each packed row."""
    for row in split(packed):
        yield *_unpack_rest(row[_LINE_BYTES:]), int.from_bytes(row[:_LINE_BYTES], "little")


def kept_name(round_: str) -> str:
    """The name of a round as in a packed row."""
    # A character takes at most four bytes: such a name is not cut.
    return round_ if len(round_) <= _MOST // 4 else _unpack_rest(pack_rest(round_, UNSCORED))[0]


def split(packed: bytes) -> list[bytes]:
    """The packed rows as a list."""
    if _all_short(packed):
        return [packed[at : at + _SHORT_ROW] for at in range(0, len(packed), _SHORT_ROW)]
    rows, at = [], 0
    while at < len(packed):
        _, size = _REST.unpack_from(packed, at + _LINE_BYTES)
        start, at = at, at + _LINE_BYTES + _REST.size + _room(size)
        rows.append(packed[start:at])
    return rows


def rests(packed: bytes) -> list[bytes]:
    """The second part of each packed row."""
    if len(packed) == _SHORT_ROW:  # the usual case in a chunk with many Query IDs
        return [packed[_LINE_BYTES:]]
    if _all_short(packed):
        return [packed[at : at + _SHORT_ROW - _LINE_BYTES] for at in range(_LINE_BYTES, len(packed), _SHORT_ROW)]
    return [row[_LINE_BYTES:] for row in split(packed)]


def no_round_twice(packed: bytes) -> bool:
    """Whether no two rows are of one round; False, too, if names are long and `unpack_rows` must decide."""
    if not _all_short(packed):
        return False
    names = {packed[at : at + _SHORT_ROW - _NAMED] for at in range(_NAMED, len(packed), _SHORT_ROW)}
    return len(names) * _SHORT_ROW == len(packed)


def _all_short(packed: bytes) -> bool:
    """Whether each row has a short name, and so all rows have the same size.

    The first row begins at 0, and the next one _SHORT_ROW bytes after a row with a short name. So if no size at these
    offsets is larger, they are the sizes of all rows.
    """
    return (
        not len(packed) % _SHORT_ROW
        and not any(packed[_NAMED + 1 :: _SHORT_ROW])
        and max(packed[_NAMED::_SHORT_ROW], default=0) <= _PAD
    )


def _room(size: int) -> int:
    """The bytes for a name of ``size``, padded so that all rows with short names have the same size."""
    return max(_PAD, -(-size // _PAD) * _PAD)


# The rounds of each Query ID, one bit for each row: the form for very many rows.

BLOCK = 1024
"""Rounds in one bitmap. Each block has its own, so a Query ID with few of very many rounds takes few bytes."""

_ROUNDS = 2
"""The least rounds of a Query ID that the specification requires and a comparison needs."""
_SCORES, _SEVERAL, _REPEATED = 0x3F, 0x40, 0x80
_FLAGS = 8
"""Bits of a value before those of the rounds.

A bit for each score that occurs; one if several rows have a score; one if a round came more than once.
"""


class QueryReview(msgspec.Struct):
    """All Query IDs compared over their rounds.

    ``compared`` counts those with two or more scored rounds and none repeated. Of these, ``both_pass`` and
    ``both_fail`` count those on one side of the pass mark in all rounds. ``short`` (fewer scored rounds) and
    ``repeated`` list the others. ``incomplete`` lists those without a row in some round, or with less than two rounds.
    Lists are in alphabetical order. ``queries`` counts all.
    """

    queries: int = 0
    both_pass: int = 0
    both_fail: int = 0
    compared: int = 0
    short: list[str] = []
    repeated: list[str] = []
    incomplete: list[str] = []


class _BlockPart(NamedTuple):
    """An addition to a Query ID's value in one block, with its results for values that were there before."""

    block: dict[str, bytes]
    value: bytes
    unions: dict[bytes, tuple[bytes, int]]


class RoundPairs(Merging, array_like=True):
    """Pairs of a Query ID and a round: ``rounds`` numbers the rounds' names, ``repeated`` counts repeated pairs.

    A block maps Query IDs to a little-endian number. Its lowest byte has flags for `review` (only in the first block,
    which has every Query ID), then comes a bit for each round of the block. Query IDs with the same rounds share one
    value, so in a file with all rounds of all Query IDs this takes little more than their names.
    """

    repeated: int = 0
    rounds: dict[str, int] = msgspec.field(default_factory=dict)
    blocks: list[dict[str, bytes]] = msgspec.field(default_factory=lambda: [{}])

    def add(self, query: str, round_: str) -> bool:
        """Add a row without a score; return whether its Query ID had a row of this round before."""
        before = self.repeated
        self._add([(query, self._parts(0, [self._number(round_)]))])
        return self.repeated > before

    def take(self, rows: dict[str, bytes]) -> None:
        """Move packed rows by Query ID here, which empties ``rows``."""
        known: dict[bytes, list[_BlockPart]] = {}

        def parts(rest: bytes) -> list[_BlockPart]:
            result = known.get(rest)
            if result is None:
                name, score = _unpack_rest(rest)
                result = known[rest] = self._parts(0 if score == UNSCORED else 1 << score, [self._number(name)])
            return result

        self._add((query, parts(rest)) for query, packed in _emptied(rows) for rest in rests(packed))

    def merge(self, later: RoundPairs) -> None:
        """Take in the pairs of the rows that follow."""
        self.repeated += later.repeated
        numbers = [self._number(name) for name in sorted(later.rounds, key=later.rounds.__getitem__)]
        for at, block in enumerate(later.blocks):
            ours = numbers[at * BLOCK : (at + 1) * BLOCK]
            known: dict[bytes, list[_BlockPart]] = {}
            for value in set(block.values()):
                bits = int.from_bytes(value, "little")
                flags = None if at else bits & 0xFF
                known[value] = self._parts(flags, [ours[bit] for bit in _set_bits(bits >> _FLAGS)])
            # Each side numbers its rounds as they came: a block of theirs may belong to several of ours.
            self._add((query, known[value]) for query, value in block.items())

    def sort(self) -> None:
        """Number the rounds by name, so that their numbers do not depend on the cut into chunks."""
        order = {name: number for number, name in enumerate(sorted(self.rounds))}
        if order != self.rounds:
            fresh = RoundPairs(rounds=order)
            fresh.merge(self)
            self.rounds, self.blocks = fresh.rounds, fresh.blocks

    def has_repeats(self, query: str) -> bool:
        """Whether a round of ``query`` came more than once."""
        return bool(self.blocks[0].get(query, b"\0")[0] & _REPEATED)

    def review(self, rounds: int, pass_mark: int) -> QueryReview:
        """Compare every Query ID over its rounds, of which the input has ``rounds``."""
        review = QueryReview(len(self.blocks[0]))
        first, *others = self.blocks
        further = _counted(others)
        # The seed requires two rounds of every Query ID, even in a file with one round.
        needed = max(rounds, _ROUNDS)
        failing = (1 << pass_mark) - 1
        for query in sorted(first):
            bits = int.from_bytes(first[query], "little")
            if (bits >> _FLAGS).bit_count() + further.get(query, 0) < needed:
                review.incomplete.append(query)
            # A fault (SPEC, section 4): nothing says which of two rows is the round's, so none is compared.
            if bits & _REPEATED:
                review.repeated.append(query)
            elif not bits & _SEVERAL:
                review.short.append(query)
            else:
                review.compared += 1
                # Consistent: no score below the mark, or none from the mark on.
                review.both_pass += not bits & _SCORES & failing
                review.both_fail += not bits & _SCORES & ~failing
        return review

    def _number(self, name: str) -> int:
        return self.rounds.setdefault(name, len(self.rounds))

    def _parts(self, flags: int | None, numbers: Iterable[int]) -> list[_BlockPart]:
        """The additions of rows of these rounds to each block. ``flags`` belong to the first block; None adds nothing
        there, since another part does.
        """
        bits: dict[int, int] = {} if flags is None else {0: flags}
        for number in numbers:
            at, bit = divmod(number, BLOCK)
            bits[at] = bits.get(at, 0) | 1 << _FLAGS + bit
        while len(self.blocks) <= max(bits, default=0):
            self.blocks.append({})
        return [_BlockPart(self.blocks[at], _value(bits[at]), {}) for at in sorted(bits)]

    def _add(self, rows: Iterable[tuple[str, list[_BlockPart]]]) -> None:
        for query, parts in rows:
            for block, value, unions in parts:
                old = block.get(query)
                if old is None:
                    block[query] = value
                    continue
                union = unions.get(old)
                if union is None:
                    union = unions[old] = _union(old, value)
                block[query], common = union
                if common:
                    self.repeated += common
                    first = self.blocks[0]
                    first[query] = _union(first[query], _value(_REPEATED))[0]


def _emptied(rows: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    while rows:
        # One by one, so that no row is in memory twice.
        yield rows.popitem()


def _union(one: bytes, other: bytes) -> tuple[bytes, int]:
    """The union of two values, and how many rounds are in both."""
    mine, theirs = int.from_bytes(one, "little"), int.from_bytes(other, "little")
    both, common = mine | theirs, (mine & theirs) >> _FLAGS
    if mine & _SCORES and theirs & _SCORES:
        # Two rounds of one score set one bit, so this flag notes that there were two.
        both |= _SEVERAL
    return _value(both), common.bit_count()


def _counted(blocks: Iterable[dict[str, bytes]]) -> dict[str, int]:
    """How many rounds each Query ID has in ``blocks``, in one pass, since most are in few of many blocks."""
    rounds: dict[str, int] = {}
    for block in blocks:
        for query, value in block.items():
            rounds[query] = rounds.get(query, 0) + (int.from_bytes(value, "little") >> _FLAGS).bit_count()
    return rounds


def _value(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8 or 1, "little")


def _set_bits(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


MAX_BYTES = 1 << 24
"""The most bytes of packed rows: a million rows."""
MAX_QUERY_BYTES = 1 << 14
"""The most bytes of one Query ID, over 1,000 rows: adding a row copies them all."""


# A tuple, not a Struct: every struct in a state has to say how it merges, and this has nothing to merge.
class RepeatedRow(NamedTuple):
    """A row with the Query ID and round of an earlier row."""

    line: int
    query: str
    round: str
    first_line: int


class Queries(Merging, array_like=True):
    """Rows by Query ID, in input order, packed by `pack_row` into ``size`` bytes.

    If they are more than MAX_BYTES, or one Query ID has more than MAX_QUERY_BYTES, ``pairs`` has all of them in place
    of ``rows``. It has no lines: `evaluator.settle_repeats` then finds the first repeated rows in the input, without
    those on the lines ``dead``, and puts them into ``first_repeats``.
    """

    rows: dict[str, bytes] = msgspec.field(default_factory=dict)
    size: int = 0
    pairs: RoundPairs | None = None
    dead: list[int] = msgspec.field(default_factory=list)
    first_repeats: list[RepeatedRow] = msgspec.field(default_factory=list)

    def add(self, query: str, row: bytes) -> None:
        """Add one packed row after those of the same Query ID; call `finish` after the last one."""
        old = self.rows.get(query)
        if old is None:
            self.rows[query] = row
        # By the size before, as in lines.h of the compiled code: both must turn to pairs at the same row.
        elif len(old) < MAX_QUERY_BYTES:
            self.rows[query] = old + row
        else:
            if self.pairs is None:
                self.pairs = RoundPairs()
            self.pairs.take({query: row})

    def finish(self) -> None:
        """End the chunk: all its rows were added."""
        self.size = sum(map(len, self.rows.values()))
        if self.pairs is not None or self.size > MAX_BYTES:
            self._to_pairs()

    def merge(self, later: Queries) -> None:
        """Take in the rows that follow behind these."""
        self.dead += later.dead
        self.first_repeats += later.first_repeats
        if self.pairs is None and later.pairs is None and self.size + later.size <= MAX_BYTES:
            self._extend(later)
            return
        pairs = self._to_pairs()
        if later.pairs is None:
            pairs.take(later.rows)
        else:
            pairs.merge(later.pairs)

    def review(self, rounds: int, pass_mark: int) -> QueryReview:
        """Compare every Query ID over its rounds, of which the input has ``rounds``."""
        pairs = self.pairs
        if pairs is None:
            pairs = RoundPairs()
            # From a copy: `take` empties its argument, and `repeats` still reads the lines.
            pairs.take(self.rows.copy())
        return pairs.review(rounds, pass_mark)

    def repeats(self) -> tuple[int, list[RepeatedRow]]:
        """How many rows repeat a (Query ID, round), and the LISTED first of them, by line."""
        if self.pairs is not None:
            return self.pairs.repeated, self.first_repeats
        repeats = list(self._repeats())
        # By line, the first field: Query IDs are in the order of their first rows.
        return len(repeats), heapq.nsmallest(LISTED, repeats)

    def drop_lines(self, first_repeats: list[RepeatedRow]) -> None:
        """Keep the ``first_repeats``, and no other line: `review` then copies nothing."""
        if self.pairs is None:
            self.first_repeats = first_repeats
            self._to_pairs()

    def _repeats(self) -> Iterator[RepeatedRow]:
        for query, packed in self.rows.items():
            if no_round_twice(packed):
                continue
            first: dict[str, int] = {}
            for round_, _, line in unpack_rows(packed):
                seen = first.setdefault(round_, line)
                if seen != line:
                    yield RepeatedRow(line, query, round_, seen)

    def _extend(self, later: Queries) -> None:
        self.size += later.size
        for query, rows in later.rows.items():
            old = self.rows.get(query)
            if old is None:
                self.rows[query] = rows
            elif len(old) + len(rows) < MAX_QUERY_BYTES:
                self.rows[query] = old + rows
            else:
                # Row by row: the turn to pairs must not depend on where the input was cut.
                for row in split(rows):
                    self.add(query, row)
        if self.pairs is not None:
            self._to_pairs()

    def _to_pairs(self) -> RoundPairs:
        if self.pairs is None:
            self.pairs = RoundPairs()
        self.pairs.take(self.rows)
        self.size = 0
        return self.pairs
