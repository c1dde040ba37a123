"""Options that are never near-duplicates, however alike in spelling: Phase II and III, supervised and unsupervised."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

__all__ = ["opposed"]

_WORD = re.compile(r"\w+")
_DIGIT = re.compile(r"\d")
_ROMAN = re.compile(r"m{0,3}(?:cm|cd|d?c{0,3})(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})")
_NEGATIONS = frozenset({"no", "non", "not", "never", "without", "neither", "nor"})
_NEGATING = ("non", "un", "in", "im", "il", "ir", "dis", "anti")
_OPPOSING = (
    ("quanti", "quali"),
    ("hyper", "hypo"),
    ("inter", "intra"),
    ("macro", "micro"),
    ("over", "under"),
    ("pre", "post"),
)
# Non-linear and nonlinear are one word: the hyphen goes, so that it alone never tells options apart.
_HYPHEN = re.compile(rf"\b({'|'.join([*_NEGATING, *(prefix for pair in _OPPOSING for prefix in pair)])})-(?=\w)")


class _Facts(NamedTuple):
    """An option's digits and Roman numerals in order, its negating words, all other words, and what opposes those."""

    digits: list[str]
    romans: list[str]
    negations: Counter[str]
    words: Counter[str]
    opposites: frozenset[str]


def opposed(one: str, other: str) -> bool:
    """Whether two normalised options differ in a digit, a Roman numeral, a negation or a word's opposing prefix."""
    mine, its = _facts(one), _facts(other)
    if mine[:3] != its[:3]:
        return True
    # First, as it takes a tenth of the time: each option of a kind is held against all of it.
    if mine.opposites.isdisjoint(its.words):
        return False
    words, others = mine.words - its.words, its.words - mine.words
    return any(not others.keys().isdisjoint(_opposites(word)) for word in words)


@lru_cache(maxsize=4096)
def _facts(option: str) -> _Facts:
    words = _WORD.findall(_HYPHEN.sub(r"\1", option))
    # A word such as mix is a numeral by this, too. It keeps options apart, which is the side on which to err.
    romans = [word for word in words if _ROMAN.fullmatch(word)]
    negations = Counter(word for word in words if word in _NEGATIONS)
    others = Counter(word for word in words if word not in _NEGATIONS)
    opposites = frozenset(opposite for word in others for opposite in _opposites(word))
    return _Facts(_DIGIT.findall(option), romans, negations, others, opposites)


def _opposites(word: str) -> Iterator[str]:
    # Whole words: index and image begin as a negation does, and negate only where "dex" or "age" is a word, too.
    for prefix in _NEGATING:
        yield prefix + word
        if word.startswith(prefix):
            yield word.removeprefix(prefix)
    for one, other in _OPPOSING:
        if word.startswith(one):
            yield other + word.removeprefix(one)
        if word.startswith(other):
            yield one + word.removeprefix(other)
