"""How many records went which way, and what was wrong with those that went wrong."""

from __future__ import annotations

import heapq

import msgspec

from evalq.evalcore.model.left_out import LeftOut
from evalq.evalcore.model.merging import Merging

__all__ = ["LISTED", "Faults", "Tally"]

LISTED = 100
"""How many faults of one kind are kept word for word; beyond that they are counted."""


class Faults(Merging):
    """The first LISTED (line, reason) pairs, by line, and how many there were in all."""

    total: int = 0
    first: list[tuple[int, str]] = msgspec.field(default_factory=list)

    def add(self, line: int, reason: str) -> None:
        """Note one fault."""
        self.merge(Faults(1, [(line, reason)]))

    def merge(self, later: Faults) -> None:
        """Take in ``later``; the lowest lines are kept, so the order of merging cannot matter."""
        if not later.total:
            return
        self.total += later.total
        # A full list changes only by lower lines, so most merges of an input full of faults add numbers.
        if len(self.first) < LISTED or later.first < self.first[-1:]:
            self.first = list(heapq.merge(self.first, later.first))[:LISTED]


class Tally(Merging):
    """Counts of records by what became of them, and their faults.

    ``scored`` records have a result, ``unscored`` ones cannot have one by the rules, ``errors`` are broken
    records (never a score), ``dead`` ones killed their worker. ``fatal`` faults fail the run (exit 2),
    ``listed`` ones are shown in its report. ``left_out`` is what its numbers leave out of their denominators.
    """

    scored: int = 0
    unscored: int = 0
    errors: int = 0
    dead: int = 0
    fatal: Faults = msgspec.field(default_factory=Faults)
    listed: Faults = msgspec.field(default_factory=Faults)
    left_out: LeftOut = msgspec.field(default_factory=LeftOut)

    @property
    def total(self) -> int:
        """Records of any kind."""
        return self.scored + self.unscored + self.errors + self.dead

    def merge(self, later: Tally) -> None:
        """Take in the tally of another piece of the same input."""
        self.scored += later.scored
        self.unscored += later.unscored
        self.errors += later.errors
        self.dead += later.dead
        self.fatal.merge(later.fatal)
        self.listed.merge(later.listed)
        self.left_out.merge(later.left_out)
