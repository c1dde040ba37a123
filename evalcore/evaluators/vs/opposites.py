"""Options that are never near-duplicates, however alike in spelling: Phase II and III, supervised and unsupervised."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

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


def opposed(one: str, other: str) -> bool:
    """Whether two normalised options differ in a digit, a Roman numeral, a negation or a word's opposing prefix."""
    mine, its = _facts(one), _facts(other)
    if mine[:3] != its[:3]:
        return True
    words, others = mine[3] - its[3], its[3] - mine[3]
    return any(_opposite(word, its_word) for word in words for its_word in others)


@lru_cache(maxsize=4096)
def _facts(option: str) -> tuple[list[str], list[str], Counter[str], Counter[str]]:
    """An option's digits and Roman numerals in order, its negating words, and all other words."""
    words = _WORD.findall(_HYPHEN.sub(r"\1", option))
    # A word such as mix is a numeral by this, too. It keeps options apart, which is the side on which to err.
    romans = [word for word in words if _ROMAN.fullmatch(word)]
    negations = Counter(word for word in words if word in _NEGATIONS)
    return _DIGIT.findall(option), romans, negations, Counter(word for word in words if word not in _NEGATIONS)


def _opposite(word: str, other: str) -> bool:
    short, long = sorted((word, other), key=len)
    # Only before a whole word of the other option: index and image begin so as well, and negate nothing.
    if any(long == prefix + short for prefix in _NEGATING):
        return True
    for prefix, opposite in _OPPOSING:
        for a, b in ((prefix, opposite), (opposite, prefix)):
            if word.startswith(a) and other.startswith(b) and word.removeprefix(a) == other.removeprefix(b):
                return True
    return False
