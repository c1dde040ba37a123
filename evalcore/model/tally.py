"""How many records went which way, and what was wrong with those that went wrong."""

from __future__ import annotations

import heapq

import msgspec

__all__ = ["LISTED", "Faults", "Tally"]

LISTED = 100
"""How many faults of one kind are kept word for word; beyond that they are counted."""


class Faults(msgspec.Struct):
    """The first LISTED (line, reason) pairs, by line, and how many there were in all."""

    total: int = 0
    first: list[tuple[int, str]] = []

    def add(self, line: int, reason: str) -> None:
        """Note one fault."""
        self.merge(Faults(1, [(line, reason)]))

    def merge(self, other: Faults) -> None:
        """Take in ``other``; the lowest lines are kept, so the order of merging cannot matter."""
        if not other.total:
            return
        self.total += other.total
        if len(self.first) < LISTED or other.first < self.first[-1:]:
            self.first = list(heapq.merge(self.first, other.first))[:LISTED]


class Tally(msgspec.Struct):
    """Counts of records by what became of them, and their faults.

    ``scored`` records have a result, ``unscored`` ones cannot have one by the rules, ``errors`` are broken
    records (never a score), ``dead`` ones killed their worker. ``fatal`` faults fail the run (exit 2),
    ``listed`` ones are shown in its report.
    """

    scored: int = 0
    unscored: int = 0
    errors: int = 0
    dead: int = 0
    fatal: Faults = msgspec.field(default_factory=Faults)
    listed: Faults = msgspec.field(default_factory=Faults)

    @property
    def total(self) -> int:
        """Records of any kind."""
        return self.scored + self.unscored + self.errors + self.dead

    def merge(self, other: Tally) -> None:
        """Take in the tally of another piece of the same input."""
        self.scored += other.scored
        self.unscored += other.unscored
        self.errors += other.errors
        self.dead += other.dead
        self.fatal.merge(other.fatal)
        self.listed.merge(other.listed)
