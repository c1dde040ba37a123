"""The answers to one case as they are counted by kind: what a chunk keeps of them, merged without loss."""

from __future__ import annotations

from collections import Counter
from typing import Self

import msgspec

from evalq.evalcore.evaluators.checks.diversity.texts import WIDTH
from evalq.evalcore.model.merging import Merging

__all__ = ["MOST_REPEATS", "Drawn"]

MOST_REPEATS = 1000
"""Answers of the repeats from 0 below this are counted by kind: so a case keeps no more than so many, in any cut."""


class Drawn(Merging, array_like=True):
    """``kinds`` has `WIDTH` bytes an answer, one behind the other; ``left_out`` is how many repeats were too high."""

    kinds: bytearray = msgspec.field(default_factory=bytearray)
    left_out: int = 0

    def add(self, repeat: int, kind: bytes) -> None:
        """Count an answer."""
        if repeat >= MOST_REPEATS:
            self.left_out += 1
        else:
            self.kinds += kind

    def merge(self, later: Self) -> None:
        """Take in the answers of later lines."""
        self.kinds += later.kinds
        self.left_out += later.left_out

    def sort(self) -> None:
        """Bring the answers into the one order of their bytes, whatever order they came in."""
        self.kinds = bytearray(b"".join(sorted(self._each())))

    def counts(self) -> Counter[bytes]:
        """How often each text came."""
        return Counter(self._each())

    def _each(self) -> list[bytes]:
        whole = bytes(self.kinds)
        return [whole[at : at + WIDTH] for at in range(0, len(whole) - WIDTH + 1, WIDTH)]
