"""The answers to one case as they are counted by kind: what a chunk keeps of them, merged without loss."""

from __future__ import annotations

from collections import Counter
from typing import Self

import msgspec

from evalq.evalcore.evaluators.checks.diversity.near import Kinds
from evalq.evalcore.evaluators.checks.diversity.texts import WIDTH
from evalq.evalcore.model.merging import Merging

__all__ = ["MOST_REPEATS", "Drawn"]

MOST_REPEATS = 1000
"""Answers of the repeats from 0 below this are counted by kind: so a case keeps no more than so many, in any cut."""


class Drawn(Merging, array_like=True):
    """``texts`` has `WIDTH` bytes an answer, one behind the other; ``left_out`` is how many repeats were too high.

    ``sketches`` has those of the texts, by their bytes in hexadecimal, where near ones are one kind.
    """

    texts: bytearray = msgspec.field(default_factory=bytearray)
    left_out: int = 0
    sketches: dict[str, bytes] = msgspec.field(default_factory=dict)

    def add(self, repeat: int, text: bytes, sketched: bytes = b"") -> None:
        """Count an answer."""
        if repeat >= MOST_REPEATS:
            self.left_out += 1
            return
        self.texts += text
        if sketched:
            self._keep(text.hex(), sketched)

    def merge(self, later: Self) -> None:
        """Take in the answers of later lines."""
        self.texts += later.texts
        self.left_out += later.left_out
        for text, sketched in later.sketches.items():
            self._keep(text, sketched)

    def sort(self) -> None:
        """Bring the answers into the one order of their bytes, whatever order they came in."""
        self.texts = bytearray(b"".join(sorted(self._each())))
        self.sketches = dict(sorted(self.sketches.items()))

    def counts(self) -> Counter[bytes]:
        """How often each text came."""
        return Counter(self._each())

    def kinds(self, alike: float) -> Kinds:
        """The answers by kind, texts that are ``alike`` being one."""
        found = Kinds(alike)
        for text, count in sorted(self.counts().items()):
            found.add(text, self.sketches.get(text.hex(), b""), count)
        return found

    def _keep(self, text: str, sketched: bytes) -> None:
        # Of two texts with the same bytes, should that ever be, the order must not decide.
        self.sketches[text] = min(sketched, self.sketches.get(text, sketched))

    def _each(self) -> list[bytes]:
        whole = bytes(self.texts)
        return [whole[at : at + WIDTH] for at in range(0, len(whole) - WIDTH + 1, WIDTH)]
