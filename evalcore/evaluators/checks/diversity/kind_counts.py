"""The answers to one case as they are counted by kind: what a chunk keeps of them, merged without loss."""

from __future__ import annotations

from collections import Counter
from typing import Self

import msgspec

from evalq.evalcore.evaluators.checks.diversity.embeddings import VectorKinds
from evalq.evalcore.evaluators.checks.diversity.marks import Mark
from evalq.evalcore.evaluators.checks.diversity.near import Kinds
from evalq.evalcore.evaluators.checks.diversity.pairs import PairHalf
from evalq.evalcore.evaluators.checks.diversity.texts import WIDTH
from evalq.evalcore.evaluators.checks.params import Diversity
from evalq.evalcore.model.state import Merging

__all__ = ["MOST_REPEATS", "KindCounts"]

MOST_REPEATS = 1000
"""Answers of the repeats from 0 below this are counted by kind: so a case keeps no more than so many, in any cut."""


class KindCounts(Merging, array_like=True):
    """``texts`` has `WIDTH` bytes an answer, one behind the other; ``left_out`` is how many repeats were too high.

    ``likeness`` has what tells how near texts are (a sketch, a vector), by their bytes in hexadecimal, where near ones
    are one kind; ``without`` is how many answers are not counted since they have no vector,
    ``embedders`` how many vectors are whose. ``halves`` has the answers of which a judge compares pairs.
    """

    texts: bytearray = msgspec.field(default_factory=bytearray)
    left_out: int = 0
    likeness: dict[str, bytes] = msgspec.field(default_factory=dict)
    without: int = 0
    embedders: dict[str, int] = msgspec.field(default_factory=dict)
    halves: list[PairHalf] = msgspec.field(default_factory=list)

    def add(self, repeat: int, mark: Mark) -> None:
        """Count an answer."""
        if mark.half is not None and repeat < MOST_REPEATS:
            self.halves.append(mark.half)
        if repeat >= MOST_REPEATS:
            self.left_out += 1
        # Not a kind of its own: answers that an embedder failed on would look like so many different ones.
        elif mark.lacks:
            self.without += 1
        else:
            self.texts += mark.text
            if mark.likeness:
                self._keep(mark.text.hex(), mark.likeness)
            if mark.embedder:
                self.embedders[mark.embedder] = self.embedders.get(mark.embedder, 0) + 1

    def merge(self, later: Self) -> None:
        """Take in the answers of later lines."""
        self.texts += later.texts
        self.left_out += later.left_out
        self.without += later.without
        self.halves += later.halves
        for embedder, count in later.embedders.items():
            self.embedders[embedder] = self.embedders.get(embedder, 0) + count
        for text, likeness in later.likeness.items():
            self._keep(text, likeness)

    def sort(self) -> None:
        """Bring the answers into the one order of their bytes, whatever order they came in."""
        self.texts = bytearray(b"".join(sorted(self._each())))
        self.likeness = dict(sorted(self.likeness.items()))
        self.embedders = dict(sorted(self.embedders.items()))
        self.halves.sort()

    def counts(self) -> Counter[bytes]:
        """How often each text came."""
        return Counter(self._each())

    def kinds(self, how: Diversity) -> Kinds | VectorKinds:
        """The answers by kind, near texts being one."""
        counts = dict(sorted(self.counts().items()))
        likeness = {bytes.fromhex(text): data for text, data in self.likeness.items()}
        if how.by == "embedding":
            return VectorKinds(counts, likeness, how.similarity)
        found = Kinds(how.similarity)
        for text, count in counts.items():
            found.add(text, likeness.get(text, b""), count)
        return found

    def _keep(self, text: str, likeness: bytes) -> None:
        # Of two for one text, as two embedders give, the order must not decide.
        self.likeness[text] = min(likeness, self.likeness.get(text, likeness))

    def _each(self) -> list[bytes]:
        whole = bytes(self.texts)
        return [whole[at : at + WIDTH] for at in range(0, len(whole) - WIDTH + 1, WIDTH)]
