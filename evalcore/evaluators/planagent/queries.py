"""The rows of each Query ID: with their lines while there are not too many, then only which rounds there are."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from evalq.evalcore.model.state import LISTED, Merging

# Rows with their lines in 16 bytes or a few more, as compiled code packs them, too.

UNSCORED = 255
"""Stands for the score of a row that has none."""

_PAD = 8
_REST = struct.Struct("<BH")
_LINE_BYTES = 5
_MOST = 0xFFFF
_SHORT_ROW = _LINE_BYTES + _REST.size + _PAD
_NAMED = _LINE_BYTES + 1
"""Where a row says how long its round's name is, and then which."""


def pack_row(round_: str, score: int, line: int) -> bytes:
    """One row in 16 bytes or a few more; lines up to 2**40, names of rounds up to 65,535 bytes (then cut)."""
    return pack_line(line) + pack_rest(round_, score)


def pack_line(line: int) -> bytes:
    """The first part of a packed row, which differs from row to row."""
    return line.to_bytes(_LINE_BYTES, "little")


def pack_rest(round_: str, score: int) -> bytes:
    """The second part, which many rows have in common."""
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
    """The name of a round as a packed row has it."""
    # A character takes four bytes at most, so that nothing of such a name can have been cut.
    return round_ if len(round_) <= _MOST // 4 else _unpack_rest(pack_rest(round_, UNSCORED))[0]


def split(packed: bytes) -> list[bytes]:
    """Each packed row by itself."""
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
    if len(packed) == _SHORT_ROW:  # as nearly all rows of a chunk are where there are many Query IDs
        return [packed[_LINE_BYTES:]]
    if _all_short(packed):
        return [packed[at : at + _SHORT_ROW - _LINE_BYTES] for at in range(_LINE_BYTES, len(packed), _SHORT_ROW)]
    return [row[_LINE_BYTES:] for row in split(packed)]


def no_round_twice(packed: bytes) -> bool:
    """Whether no two rows are of one round; False also where names are long, and only `unpack_rows` can tell."""
    if not _all_short(packed):
        return False
    names = {packed[at : at + _SHORT_ROW - _NAMED] for at in range(_NAMED, len(packed), _SHORT_ROW)}
    return len(names) * _SHORT_ROW == len(packed)


def _all_short(packed: bytes) -> bool:
    """Whether each row has a short name, and so as many bytes as all of the others.

    The first row begins at 0, and behind one with a short name the next begins _SHORT bytes on: so where no size that
    is looked at is larger, these were the sizes.
    """
    return (
        not len(packed) % _SHORT_ROW
        and not any(packed[_NAMED + 1 :: _SHORT_ROW])
        and max(packed[_NAMED::_SHORT_ROW], default=0) <= _PAD
    )


def _room(size: int) -> int:
    """Bytes a name of ``size`` takes: padded, so that rows of short names are all as long."""
    return max(_PAD, -(-size // _PAD) * _PAD)


# Which rounds each Query ID has rows of, in a bit a row: how very many rows are held.

BLOCK = 1024
"""Rounds of one bitmap. Another block has its own, so that a Query ID with few rounds of very many takes few bytes."""

_ROUNDS = 2
"""What the specification requires of a Query ID, and a comparison needs."""
_SCORES, _SEVERAL, _REPEATED = 0x3F, 0x40, 0x80
_FLAGS = 8
"""Bits of a value before the rounds'.

Which scores there are, a bit each; whether more than one row has a score; whether a round came more than once.
"""


class QueryReview(msgspec.Struct):
    """All Query IDs compared over their rounds.

    ``both_pass`` and ``both_fail`` count those with the same side of the pass mark in every scored round, ``compared``
    those with two or more and none repeated; ``short`` (fewer scored rounds) and ``repeated`` list the others,
    ``incomplete`` those that lack a row in some round, two rounds being the least there must be. Each is in
    alphabetical order. ``queries`` is how many there are.
    """

    queries: int = 0
    both_pass: int = 0
    both_fail: int = 0
    compared: int = 0
    short: list[str] = []
    repeated: list[str] = []
    incomplete: list[str] = []


class _BlockPart(NamedTuple):
    """What is added to a Query ID's value in one block, and what came of it for each value that was there."""

    block: dict[str, bytes]
    value: bytes
    unions: dict[bytes, tuple[bytes, int]]


class RoundPairs(Merging, array_like=True):
    """Pairs of a Query ID and a round: ``rounds`` numbers the rounds' names, ``repeated`` counts rows of a pair that
    another row has, too.

    A block maps Query IDs to a little-endian number: in its lowest byte what `review` needs besides (in the first
    block alone, which has every Query ID), then a bit for each round of the block. Query IDs that have had the same
    rounds share one value, so in a file with all rounds of all Query IDs this is hardly more than their names.
    """

    repeated: int = 0
    rounds: dict[str, int] = msgspec.field(default_factory=dict)
    blocks: list[dict[str, bytes]] = msgspec.field(default_factory=lambda: [{}])

    def add(self, query: str, round_: str) -> bool:
        """Add a row without a score; whether there was one of its Query ID and round."""
        before = self.repeated
        self._add([(query, self._parts(0, [self._number(round_)]))])
        return self.repeated > before

    def take(self, rows: dict[str, bytes]) -> None:
        """Move packed rows by Query ID here, so that they need no room any more."""
        known: dict[bytes, list[_BlockPart]] = {}

        def parts(rest: bytes) -> list[_BlockPart]:
            found = known.get(rest)
            if found is None:
                name, score = _unpack_rest(rest)
                found = known[rest] = self._parts(0 if score == UNSCORED else 1 << score, [self._number(name)])
            return found

        self._add((query, parts(rest)) for query, packed in _emptied(rows) for rest in rests(packed))

    def merge(self, later: RoundPairs) -> None:
        """Take in the pairs of the rows that follow."""
        self.repeated += later.repeated
        numbers = [self._number(name) for name in sorted(later.rounds, key=later.rounds.__getitem__)]
        for at, block in enumerate(later.blocks):
            own = numbers[at * BLOCK : (at + 1) * BLOCK]
            known: dict[bytes, list[_BlockPart]] = {}
            for value in set(block.values()):
                bits = int.from_bytes(value, "little")
                flags = None if at else bits & 0xFF
                known[value] = self._parts(flags, [own[bit] for bit in _set_bits(bits >> _FLAGS)])
            # Both number their rounds as they came: a block of theirs may have its rounds in several of ours.
            self._add((query, known[value]) for query, value in block.items())

    def sort(self) -> None:
        """Number the rounds by name: their numbers must not depend on how the rows were cut."""
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
        # The seed requires two rounds of every Query ID, also of a file that has but one.
        needed = max(rounds, _ROUNDS)
        failing = (1 << pass_mark) - 1
        for query in sorted(first):
            bits = int.from_bytes(first[query], "little")
            if (bits >> _FLAGS).bit_count() + further.get(query, 0) < needed:
                review.incomplete.append(query)
            # A fault (SPEC, section 4), and nothing says which of two rows would be the round's: none is compared.
            if bits & _REPEATED:
                review.repeated.append(query)
            elif not bits & _SEVERAL:
                review.short.append(query)
            else:
                review.compared += 1
                # Which scores there are is all that consistency asks: no bit below the mark, or none from it on.
                review.both_pass += not bits & _SCORES & failing
                review.both_fail += not bits & _SCORES & ~failing
        return review

    def _number(self, name: str) -> int:
        return self.rounds.setdefault(name, len(self.rounds))

    def _parts(self, flags: int | None, numbers: Iterable[int]) -> list[_BlockPart]:
        """What rows of these rounds add to each block; ``flags``, which the first block alone has, are None where rows
        of the same Query IDs are added to that anyway.
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
        # One by one: rows that stay there until all are moved would take their room twice.
        yield rows.popitem()


def _union(one: bytes, other: bytes) -> tuple[bytes, int]:
    """What both say, and how many rounds both have."""
    mine, theirs = int.from_bytes(one, "little"), int.from_bytes(other, "little")
    both, common = mine | theirs, (mine & theirs) >> _FLAGS
    if mine & _SCORES and theirs & _SCORES:
        # Two rounds of one score set one bit: that there were two has to be noted by itself.
        both |= _SEVERAL
    return _value(both), common.bit_count()


def _counted(blocks: Iterable[dict[str, bytes]]) -> dict[str, int]:
    """How many rounds each Query ID has in ``blocks``: one pass over what is in them, since most are in few of many."""
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


HELD_BYTES = 1 << 24
"""How many bytes of packed rows are held: a million rows."""
MAX_BYTES = 1 << 14
"""How many are held of one Query ID, over 1,000 rows: adding one costs as many bytes as there are."""


# A tuple, not a Struct: every struct in a state has to say how it merges, and this has nothing to merge.
class RepeatedRow(NamedTuple):
    """A row whose Query ID and round another row had before."""

    line: int
    query: str
    round: str
    first_line: int


class Queries(Merging, array_like=True):
    """Rows by Query ID, in input order, as `pack_row` packs them: ``held`` bytes.

    Where they are more than HELD_BYTES, or one Query ID has more than MAX_BYTES, ``pairs`` has all of them in place
    of ``rows``. It has no lines: where rows repeat each other, `repeats.settle_repeats` finds the first of them in the
    input, but for the ``dead`` ones, whose lines are here, and they are ``found``.
    """

    rows: dict[str, bytes] = msgspec.field(default_factory=dict)
    held: int = 0
    pairs: RoundPairs | None = None
    dead: list[int] = msgspec.field(default_factory=list)
    found: list[RepeatedRow] = msgspec.field(default_factory=list)

    def add(self, query: str, row: bytes) -> None:
        """Add one packed row behind those of the same Query ID; `finish` after the last one."""
        old = self.rows.get(query)
        if old is None:
            self.rows[query] = row
        # By what was there before, as lines.h in the compiled code does: both must turn to pairs at the same row.
        elif len(old) < MAX_BYTES:
            self.rows[query] = old + row
        else:
            if self.pairs is None:
                self.pairs = RoundPairs()
            self.pairs.take({query: row})

    def finish(self) -> None:
        """All rows of a chunk were added."""
        self.held = sum(map(len, self.rows.values()))
        if self.pairs is not None or self.held > HELD_BYTES:
            self._to_pairs()

    def merge(self, later: Queries) -> None:
        """Take in the rows that follow behind these."""
        self.dead += later.dead
        self.found += later.found
        if self.pairs is None and later.pairs is None and self.held + later.held <= HELD_BYTES:
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
            # Of a copy: `take` empties what it is given, and `repeats` still reads the lines.
            pairs.take(self.rows.copy())
        return pairs.review(rounds, pass_mark)

    def repeats(self) -> tuple[int, list[RepeatedRow]]:
        """How many rows repeat a (Query ID, round), and the LISTED first of them, by line."""
        if self.pairs is not None:
            return self.pairs.repeated, self.found
        found = list(self._repeats())
        # By line, which is a repeat's first field: Query IDs stand in the order of their first rows.
        return len(found), heapq.nsmallest(LISTED, found)

    def drop_lines(self, found: list[RepeatedRow]) -> None:
        """Keep ``found`` of `repeats`, and no other line: `review` then has nothing to copy."""
        if self.pairs is None:
            self.found = found
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
        self.held += later.held
        for query, rows in later.rows.items():
            old = self.rows.get(query)
            if old is None:
                self.rows[query] = rows
            elif len(old) + len(rows) < MAX_BYTES:
                self.rows[query] = old + rows
            else:
                # Row by row: whether they are too many must not depend on where the input was cut.
                for row in split(rows):
                    self.add(query, row)
        if self.pairs is not None:
            self._to_pairs()

    def _to_pairs(self) -> RoundPairs:
        if self.pairs is None:
            self.pairs = RoundPairs()
        self.pairs.take(self.rows)
        self.held = 0
        return self.pairs
