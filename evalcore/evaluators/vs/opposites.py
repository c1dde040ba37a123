"""Options that are never near-duplicates, however alike in spelling: Phase II and III, supervised and unsupervised."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from evalq.evalcore.opposites import NEGATIONS, OPPOSING, PREFIXES, denials
from evalq.evalcore.opposites import opposites as opposites_of

__all__ = ["opposed"]

_WORD = re.compile(r"\w+")
_DIGIT = re.compile(r"\d")
_ROMAN = re.compile(r"m{0,3}(?:cm|cd|d?c{0,3})(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})")
# Non-linear and nonlinear are one word: the hyphen goes, so that it alone never tells options apart.
_HYPHEN = re.compile(rf"\b({'|'.join([*PREFIXES, *(prefix for pair in OPPOSING for prefix in pair)])})-(?=\w)")


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
    return any(not others.keys().isdisjoint(opposites_of(word)) for word in words)


@lru_cache(maxsize=4096)
def _facts(option: str) -> _Facts:
    words = _WORD.findall(_HYPHEN.sub(r"\1", option))
    # A word such as mix is a numeral by this, too. It keeps options apart, which is the side on which to err.
    romans = [word for word in words if _ROMAN.fullmatch(word)]
    # Which ones, and how many with those that other scripts join to a word.
    negations = Counter(word for word in words if word in NEGATIONS) + Counter({"": denials(option, words)})
    others = Counter(word for word in words if word not in NEGATIONS)
    opposites = frozenset(opposite for word in others for opposite in opposites_of(word))
    return _Facts(_DIGIT.findall(option), romans, negations, others, opposites)
