"""Counts by text in bounded memory, exact under any chunking for every text that is kept."""

from __future__ import annotations

import zlib

import msgspec

from evalq.evalcore.model.merging import Merging

__all__ = ["KEPT", "Table"]

KEPT = 2000
"""How many texts a table keeps; the counts of any further ones are known only as a sum."""


class Table(Merging, array_like=True):
    """A vector of counts for each of many texts, and the sum over all texts.

    When there are more than KEPT texts, those of the lowest checksums are kept, wherever they stood: such a text is
    among the lowest in every part of the input that has it, so it was never dropped and its counts are complete.
    """

    counts: dict[str, list[int]] = msgspec.field(default_factory=dict)
    total: list[int] = msgspec.field(default_factory=list)

    def add(self, text: str, counts: list[int]) -> None:
        """Add ``counts`` (of the same length in all calls) to those of ``text``."""
        self._add(text, counts)
        self._add_total(counts)

    def merge(self, later: Table) -> None:
        """Take in another table."""
        for text, counts in later.counts.items():
            self._add(text, counts)
        self._add_total(later.total)
        if len(self.counts) > 2 * KEPT:
            self.trim()

    def trim(self) -> None:
        """Drop the texts beyond KEPT. Between trims there may be more, so that merging stays cheap."""
        if len(self.counts) > KEPT:
            lowest = sorted(self.counts, key=lambda text: (zlib.crc32(text.encode()), text))[:KEPT]
            self.counts = {text: self.counts[text] for text in lowest}

    def top(self, limit: int, by: int = 0) -> list[tuple[str, list[int]]]:
        """The texts with the most of count number ``by``, none of those without any; ties in alphabetical order."""
        self.trim()
        present = [item for item in self.counts.items() if item[1][by]]
        return sorted(present, key=lambda item: (-item[1][by], item[0]))[:limit]

    def sum(self, by: int = 0) -> int:
        """Count number ``by`` over all texts, kept or not."""
        return self.total[by] if self.total else 0

    def _add(self, text: str, counts: list[int]) -> None:
        old = self.counts.get(text)
        if old is None:
            self.counts[text] = counts.copy()
        else:
            _increase(old, counts)

    def _add_total(self, counts: list[int]) -> None:
        if not self.total:
            self.total = counts.copy()
        elif counts:
            _increase(self.total, counts)


def _increase(counts: list[int], more: list[int]) -> None:
    for at, count in enumerate(more):
        counts[at] += count
