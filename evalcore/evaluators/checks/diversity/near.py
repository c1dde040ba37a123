"""When two answers are nearly the same, and how many kinds that makes: with all of their words, and without a frame."""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple

from evalq.evalcore.evaluators.checks.diversity.sketching import KEPT, SHINGLE, Sketch, opened, sketch

__all__ = ["KEPT", "SHINGLE", "Kinds", "Residue", "similarity", "sketch", "without_frame"]

_FEW = 64
"""Texts that are compared with one another without an index of their hashes, which takes ten times their room."""
_FRAME = 0.9
"""A word that so many answers have belongs to their frame, and tells none of them from the others."""
_SLOT = 3
"""Words that an answer may have of its own within a frame that all have."""
_BARE = 2
"""Words of an answer that is no more than a name, without a frame."""
_SHARED = 0.5
"""A word that so many answers have makes it possible that they say one thing."""
_UNRELATED = 0.1
"""Texts of one language that have nothing to do with one another share fewer of their shingles on average."""


def similarity(one: bytes, other: bytes) -> float:
    """The share that two sketched texts have in common of all shingles of either (Jaccard 1901): exact where neither
    has more than `KEPT`, else estimated from those below the least hash that one of them does not keep.

    0 where their facts differ, or one has a word that excludes one of the other.
    """
    mine = opened(one)
    shared, either = _overlap(mine, frozenset(mine.hashes), opened(other))
    return shared / either if either else 0.0


def _overlap(one: Sketch, inside: frozenset[int], other: Sketch) -> tuple[int, int]:
    """How many shingles they share, and how many either has, of those below both limits; ``inside`` are ``one``'s."""
    if one.numbers != other.numbers or one.facts != other.facts or _opposed(one, other):
        return 0, 0
    return _shared(one, inside, other)


def _shared(one: Sketch, inside: frozenset[int], other: Sketch) -> tuple[int, int]:
    limit = min(one.limit, other.limit)
    shared = len(inside.intersection(other.hashes))  # what both have is below both limits
    either = bisect.bisect_left(one.hashes, limit) + bisect.bisect_left(other.hashes, limit) - shared
    return shared, either


def _opposed(one: Sketch, other: Sketch) -> bool:
    """Whether one has a word that excludes a word of the other, and not that word as well."""
    if not (one.against or other.against):
        return False
    mine, its = {*one.words, *one.sides}, {*other.words, *other.sides}
    return not (its - mine).isdisjoint(one.against) or not (mine - its).isdisjoint(other.against)


class Residue(NamedTuple):
    """What is left of answers without the words that nearly all have: how many are of the commonest kind.

    ``telling``: whether kinds that differ are surely different answers, and no other wordings of one.
    """

    mode: int
    telling: bool


def without_frame(sketches: Mapping[bytes, bytes], counts: Mapping[bytes, int]) -> Residue:
    """The answers, whose texts are sketched and came so often, without their frame.

    Two are of one kind where all words are the same that are not in nearly all of them, and so are their facts. An
    answer of frame alone is of the commonest kind with its facts: it says less, and nothing else.
    """
    texts = {text: opened(sketches[text]) for text in counts if sketches.get(text)}
    answers = sum(counts.values())
    having: Counter[int] = Counter()
    for text, own in texts.items():
        for word in set(own.words):
            having[word] += counts[text]
    frame = {word for word, count in having.items() if count >= _FRAME * answers}
    sizes: Counter[tuple[bytes, bytes, tuple[int, ...]]] = Counter()
    bare: Counter[tuple[bytes, bytes]] = Counter()
    for text, own in texts.items():
        left = tuple(word for word in own.words if word not in frame)
        if left:
            sizes[own.numbers, own.facts, left] += counts[text]
        else:
            bare[own.numbers, own.facts] += counts[text]
    for facts, count in bare.items():
        most = max((key for key in sizes if key[:2] == facts), key=lambda key: (sizes[key], key), default=(*facts, ()))
        sizes[most] += count
    return Residue(max(sizes.values(), default=0), _telling(texts, counts, frame, having))


def _telling(
    texts: Mapping[bytes, Sketch], counts: Mapping[bytes, int], frame: set[int], having: Mapping[int, int]
) -> bool:
    answers = sum(counts.values())
    # One frame around a few words, such as "The answer is ..."; or nothing but these words.
    frames: Counter[tuple[tuple[int, ...], int, int]] = Counter()
    for text, own in texts.items():
        rest = tuple(word for word in own.words if word in frame)
        if own.whole and len(own.words) - len(rest) <= (_SLOT if rest else _BARE):
            # With the place of what is not of the frame: wordings of one thing have it here and there.
            before = next((at for at, word in enumerate(own.words) if word not in frame), len(rest))
            behind = next((at for at, word in enumerate(reversed(own.words)) if word not in frame), len(rest))
            frames[(rest, before, behind) if len(rest) < len(own.words) else (rest, -1, -1)] += counts[text]
    # One of frame alone fits wherever the others have theirs: an option's letter may look like an article.
    bare = {key[0]: count for key, count in frames.items() if key[1] < 0}
    fitting = (count + (bare.get(key[0], 0) if key[1] >= 0 else 0) for key, count in frames.items())
    if max(fitting, default=0) >= _FRAME * answers:
        return True
    # Each has a number, and not the same: 3 days are not 5 days, however one says it.
    numbers: Counter[bytes] = Counter()
    for text, own in texts.items():
        numbers[own.numbers] += counts[text] if own.numbered else answers
    if max(numbers.values(), default=answers) <= answers // 2:
        return True
    # They share no word, and hardly a shingle: what says one thing twice has some of its words twice.
    if max(having.values(), default=0) >= _SHARED * answers:
        return False
    some = [texts[text] for text in sorted(texts)[:_FEW]]
    shares = []
    for one, other in combinations(some, 2):
        shared, either = _shared(one, frozenset(one.hashes), other)
        shares.append(shared / either if either else 1.0)
    return math.fsum(shares) < _UNRELATED * len(shares)


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

    def without_frame(self) -> Residue:
        """The same answers without the words that nearly all have."""
        return without_frame(self._sketches, self._count)

    def _enter(self, text: bytes, sketched: bytes) -> None:
        self._kind[text], self._sketches[text], self._size[text] = text, sketched, 0
        if not sketched:
            return
        mine = opened(sketched)
        inside = frozenset(mine.hashes)
        for other in self._candidates(text, mine):
            root, own = self._root(other), self._root(text)
            if root == own:
                continue
            shared, either = _overlap(mine, inside, opened(self._sketches[other]))
            # Rounded: in floats .55 of 100 is a little more than 55, which 55 would not reach.
            if shared and shared >= round(self._alike * either, 9):
                self._kind[own] = root
                self._size[root] += self._size.pop(own)
                self.mode = max(self.mode, self._size[root])

    def _candidates(self, text: bytes, mine: Sketch) -> list[bytes]:
        """Texts that may be near: all, where they are few, else those that have one of the first few hashes, too."""
        if self._having is None:
            if len(self._sketches) <= _FEW:
                return [other for other in self._sketches if other != text]
            self._having = {}
            for other, sketched in self._sketches.items():
                if other != text:
                    self._note(other, opened(sketched))
        found = {other: None for value in self._first(mine) for other in self._having.get(value, ())}
        self._note(text, mine)
        return list(found)

    def _note(self, text: bytes, found: Sketch) -> None:
        if self._having is not None:
            for value in self._first(found):
                self._having.setdefault(value, []).append(text)

    def _first(self, found: Sketch) -> tuple[int, ...]:
        """Of two sets that share so much, one of these is in both: else too few in order were left."""
        many = len(found.hashes)
        return found.hashes[: many - math.ceil(round(self._alike * many, 9)) + 1]

    def _root(self, text: bytes) -> bytes:
        while self._kind[text] != text:
            # Shortened on the way (path halving): thousands of texts may be connected one by one.
            self._kind[text] = self._kind[self._kind[text]]
            text = self._kind[text]
        return text
