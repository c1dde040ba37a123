"""Which rounds each Query ID has rows of, in a bit a row: how very many rows are held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from evalq.evalcore.evaluators.planagent.packed_rows import UNSCORED, rests, unpack_rest
from evalq.evalcore.model.state import Merging

__all__ = ["BLOCK", "Pairs", "QueryReview"]

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


class _Part(NamedTuple):
    """What is added to a Query ID's value in one block, and what came of it for each value that was there."""

    block: dict[str, bytes]
    value: bytes
    unions: dict[bytes, tuple[bytes, int]]


class Pairs(Merging, array_like=True):
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
        known: dict[bytes, list[_Part]] = {}

        def parts(rest: bytes) -> list[_Part]:
            found = known.get(rest)
            if found is None:
                name, score = unpack_rest(rest)
                found = known[rest] = self._parts(0 if score == UNSCORED else 1 << score, [self._number(name)])
            return found

        self._add((query, parts(rest)) for query, packed in _emptied(rows) for rest in rests(packed))

    def merge(self, later: Pairs) -> None:
        """Take in the pairs of the rows that follow."""
        self.repeated += later.repeated
        numbers = [self._number(name) for name in sorted(later.rounds, key=later.rounds.__getitem__)]
        for at, block in enumerate(later.blocks):
            own = numbers[at * BLOCK : (at + 1) * BLOCK]
            known: dict[bytes, list[_Part]] = {}
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
            fresh = Pairs(rounds=order)
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

    def _parts(self, flags: int | None, numbers: Iterable[int]) -> list[_Part]:
        """What rows of these rounds add to each block; ``flags``, which the first block alone has, are None where rows
        of the same Query IDs are added to that anyway.
        """
        bits: dict[int, int] = {} if flags is None else {0: flags}
        for number in numbers:
            at, bit = divmod(number, BLOCK)
            bits[at] = bits.get(at, 0) | 1 << _FLAGS + bit
        while len(self.blocks) <= max(bits, default=0):
            self.blocks.append({})
        return [_Part(self.blocks[at], _value(bits[at]), {}) for at in sorted(bits)]

    def _add(self, rows: Iterable[tuple[str, list[_Part]]]) -> None:
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
