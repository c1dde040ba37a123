"""The set of turns that a log has rows for, small enough to travel with every chunk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import msgspec

from evalq.evalcore.model.state import Merging

__all__ = ["TurnSet"]

# A power of two: block and bit of a turn are a shift and a mask, for negative turns as well.
_BLOCK_BITS = 8
MOST_BLOCKS = 8192


class TurnSet(Merging):
    """Distinct turns as bitmaps of 256 neighbours each (hexadecimal), by block number.

    Up to MOST_BLOCKS blocks: two million turns in a row, some MB. A set that would need more is ``full`` and
    empty for good: it no longer knows its turns. How many blocks a union has can only grow with what it is a union
    of, so whether a merged set is full does not depend on how it was merged.
    """

    blocks: dict[str, str] = msgspec.field(default_factory=dict)
    full: bool = False

    @classmethod
    def of(cls, turns: Iterable[int]) -> Self:
        """The set of ``turns``."""
        masks: dict[int, int] = {}
        for turn in turns:
            block = turn >> _BLOCK_BITS
            masks[block] = masks.get(block, 0) | 1 << (turn & 255)
        return cls({str(block): format(mask, "x") for block, mask in masks.items()})._capped()

    @classmethod
    def of_blocks(cls, blocks: dict[str, str]) -> Self:
        """The set of which ``blocks`` are the bitmaps, however many."""
        return cls(blocks)._capped()

    def merge(self, later: TurnSet) -> None:
        """Take in the turns of ``later``, in place, at a cost in the size of ``later``."""
        self.full = self.full or later.full
        for block, mask in later.blocks.items():
            mine = self.blocks.get(block)
            self.blocks[block] = mask if mine is None else format(int(mine, 16) | int(mask, 16), "x")
        self._capped()

    def count(self) -> int:
        """How many distinct turns; meaningless when ``full``."""
        return sum(int(mask, 16).bit_count() for mask in self.blocks.values())

    def _capped(self) -> Self:
        if self.full or len(self.blocks) > MOST_BLOCKS:
            self.full, self.blocks = True, {}
        return self
