"""When two answers are nearly the same: a sketch of each text's shingles, and kinds that alike texts are joined to."""

from __future__ import annotations

import bisect
import hashlib
import math
import re
import struct
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from numpy import uint32, uint64
    from numpy.typing import NDArray

__all__ = ["KEPT", "SHINGLE", "Kinds", "similarity", "sketch"]

SHINGLE = 4
"""Characters of a shingle: any so many that stand next to one another in a text, with a space at either end of it."""
KEPT = 64
"""Hashes that are kept of a text's shingles, the smallest: of shorter texts they are all."""
_FACTS = 4
_HASH = 4
_WHOLE = 1 << 32
_PIECE = 1 << 16
_FEW = 64
"""Texts that are compared with one another without an index of their hashes, which takes ten times their room."""
_DIGIT = re.compile(r"\d")
_PRIME = 0x9E3779B97F4A7C15
_NEGATIONS = frozenset({"no", "non", "not", "never", "none", "nothing", "without", "neither", "nor", "cannot"})


def sketch(text: str) -> bytes:
    """What stands for a normalised text where near ones are one kind: its facts, and the least hashes of its shingles.

    Facts are a digest of all words with a digit in them and of all negations: texts that differ in these are never
    near. Behind it come the `KEPT` smallest hashes, of 32 bits each, and the next one, where there are more.
    """
    return _facts(text) + _shingles(text)


def _facts(text: str) -> bytes:
    words = text.split(" ")
    # Numbers in their order, since "3 of 5" is not "5 of 3"; where in a text a negation stands is wording.
    numbers = [word for word in words if not word.isalpha() and _DIGIT.search(word)] if _DIGIT.search(text) else []
    denied = Counter(word for word in words if word in _NEGATIONS or word.endswith("n't"))
    said = "\n".join([*numbers, "", *(f"{word} {count}" for word, count in sorted(denied.items()))])
    return hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=_FACTS).digest()


def _shingles(text: str) -> bytes:
    import numpy as np

    padded = f" {text} "
    width = min(SHINGLE, len(padded))
    least = np.empty(0, np.uint32)
    # Piece by piece, each with what its last shingles need: a long answer must not take forty times its room.
    for start in range(0, len(padded) - width + 1, _PIECE):
        piece = padded[start : start + _PIECE + width - 1].encode("utf-32-le", "surrogatepass")
        hashes = np.sort(np.concatenate((least, _hashes(np.frombuffer(piece, "<u4").astype(np.uint64), width))))
        new = np.concatenate(([True], hashes[1:] != hashes[:-1]))
        least = hashes[new][: KEPT + 1]
    return bytes(least.astype("<u4").tobytes())


def _hashes(codes: NDArray[uint64], width: int) -> NDArray[uint32]:
    """32 bits of each run of ``width`` characters."""
    import numpy as np

    count = len(codes) - width + 1
    mixed = codes[:count]
    for at in range(1, width):
        mixed = mixed * np.uint64(_PRIME) + codes[at : at + count]
    # The finaliser of SplitMix64 (Steele, Lea and Flood 2014): sums of products alone would not be spread evenly.
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed >> np.uint64(32)).astype(np.uint32)


class _Opened(NamedTuple):
    """A sketch: ``hashes`` are all of its text's shingles' below ``limit``, in order."""

    facts: bytes
    hashes: tuple[int, ...]
    limit: int


def _opened(data: bytes) -> _Opened:
    hashes: tuple[int, ...] = struct.unpack(f"<{max(0, len(data) - _FACTS) // _HASH}I", data[_FACTS:])
    limit = hashes[KEPT] if len(hashes) > KEPT else _WHOLE
    return _Opened(data[:_FACTS], hashes[:KEPT], limit)


def similarity(one: bytes, other: bytes) -> float:
    """The share that two sketched texts have in common of all shingles of either (Jaccard 1901): exact where neither
    has more than `KEPT`, else estimated from those below the least hash that one of them does not keep.

    0 where their facts differ.
    """
    mine = _opened(one)
    shared, either = _overlap(mine, frozenset(mine.hashes), _opened(other))
    return shared / either if either else 0.0


def _overlap(one: _Opened, inside: frozenset[int], other: _Opened) -> tuple[int, int]:
    """How many shingles they share, and how many either has, of those below both limits; ``inside`` are ``one``'s."""
    if one.facts != other.facts:
        return 0, 0
    limit = min(one.limit, other.limit)
    shared = len(inside.intersection(other.hashes))  # what both have is below both limits
    either = bisect.bisect_left(one.hashes, limit) + bisect.bisect_left(other.hashes, limit) - shared
    return shared, either


class Kinds:
    """Answers to one case, counted by kind: texts at least ``alike`` are of one kind, and all that such steps connect.

    So the order in which answers come cannot matter, and another answer can join kinds but never part them. Texts
    without a sketch are kinds by themselves.
    """

    def __init__(self, alike: float) -> None:
        self._alike = alike
        self._sketches: dict[bytes, bytes] = {}
        self._count: Counter[bytes] = Counter()
        self._kind: dict[bytes, bytes] = {}
        self._size: Counter[bytes] = Counter()
        self._having: dict[int, list[bytes]] | None = None
        self.answers = self.mode = 0
        """How many answers there are, and how many are of the commonest kind."""

    def add(self, text: bytes, sketched: bytes, count: int = 1) -> None:
        """Count answers of the text that ``text`` stands for."""
        if text not in self._kind:
            self._enter(text, sketched)
        self._count[text] += count
        self.answers += count
        root = self._root(text)
        self._size[root] += count
        self.mode = max(self.mode, self._size[root])

    def counts(self) -> list[int]:
        """How often each kind came."""
        return list(self._size.values())

    def least_alike(self) -> float | None:
        """How alike the commonest text of the commonest kind is to that of the same kind that is least like it.

        Far below what makes two texts near where steps led from one to the other. None without any answer.
        """
        largest = [text for text in self._kind if self._size[self._root(text)] == self.mode]
        if not largest:
            return None
        first = min(largest, key=lambda text: (-self._count[text], text))
        own = [text for text in largest if self._root(text) == self._root(first) and text != first]
        return min((similarity(self._sketches[first], self._sketches[text]) for text in own), default=1.0)

    def _enter(self, text: bytes, sketched: bytes) -> None:
        self._kind[text], self._sketches[text], self._size[text] = text, sketched, 0
        if not sketched:
            return
        mine = _opened(sketched)
        inside = frozenset(mine.hashes)
        for other in self._candidates(text, mine):
            root, own = self._root(other), self._root(text)
            if root == own:
                continue
            shared, either = _overlap(mine, inside, _opened(self._sketches[other]))
            # Rounded: in floats .55 of 100 is a little more than 55, which 55 would not reach.
            if shared and shared >= round(self._alike * either, 9):
                self._kind[own] = root
                self._size[root] += self._size.pop(own)
                self.mode = max(self.mode, self._size[root])

    def _candidates(self, text: bytes, mine: _Opened) -> list[bytes]:
        """Texts that may be near: all, where they are few, else those that have one of the first few hashes, too."""
        if self._having is None:
            if len(self._sketches) <= _FEW:
                return [other for other in self._sketches if other != text]
            self._having = {}
            for other, sketched in self._sketches.items():
                if other != text:
                    self._note(other, _opened(sketched))
        found = {other: None for value in self._first(mine) for other in self._having.get(value, ())}
        self._note(text, mine)
        return list(found)

    def _note(self, text: bytes, opened: _Opened) -> None:
        if self._having is not None:
            for value in self._first(opened):
                self._having.setdefault(value, []).append(text)

    def _first(self, opened: _Opened) -> tuple[int, ...]:
        """Of two sets that share so much, one of these is in both: else too few in order were left."""
        many = len(opened.hashes)
        return opened.hashes[: many - math.ceil(round(self._alike * many, 9)) + 1]

    def _root(self, text: bytes) -> bytes:
        while self._kind[text] != text:
            # Shortened on the way (path halving): thousands of texts may be connected one by one.
            self._kind[text] = self._kind[self._kind[text]]
            text = self._kind[text]
        return text
