"""Sets of characters as ranges of code points: classes, categories and case folding, as Python's `re` has them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Literal

import numpy as np

__all__ = ["END", "EVERY", "NEWLINE", "CharSet", "Folding", "category", "complement", "folded", "union"]

CharSet = tuple[tuple[int, int], ...]
"""Half-open ranges of code points, ascending and apart from each other."""

Folding = Literal["ascii", "unicode"]
"""What ignoring case means: A-Z and a-z alone, or all that `re.IGNORECASE` takes for one letter on str."""

END = 0x110000
EVERY: CharSet = ((0, END),)
NEWLINE: CharSet = ((10, 11),)

_UPPER, _LOWER, _CASE = range(ord("A"), ord("Z") + 1), range(ord("a"), ord("z") + 1), 32
_BLOCK = 256


def union(ranges: Iterable[tuple[int, int]]) -> CharSet:
    """The ranges as a set: sorted, with overlapping and touching ones joined."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(joined)


def complement(chars: CharSet) -> CharSet:
    """All code points that are not in ``chars``."""
    edges = [0, *(edge for pair in chars for edge in pair), END]
    return tuple((low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high)


@cache
def category(letter: str) -> CharSet:
    r"""The characters of ``\w``, ``\d`` or ``\s`` (given as "w", "d", "s") in a str pattern of this Python."""
    return tuple(match.span() for match in re.finditer(rf"\{letter}+", _all_characters()))


@lru_cache(maxsize=1024)  # a pattern has the same few letters again and again
def folded(chars: CharSet, folding: Folding) -> CharSet:
    """``chars`` and every character that differs from one of them in case alone."""
    if folding == "unicode":
        # Python's own engine says which characters count as equal, for all those that have a case at all.
        inside = "".join(f"\\U{low:08x}-\\U{high - 1:08x}" for low, high in chars)
        twins = re.findall(f"[{inside}]", _cased(), re.IGNORECASE) if chars else []
        return union([*chars, *((ord(twin), ord(twin) + 1) for twin in twins)])
    upper = [(low - _CASE, high - _CASE) for low, high in _overlap(chars, _LOWER)]
    lower = [(low + _CASE, high + _CASE) for low, high in _overlap(chars, _UPPER)]
    return union([*chars, *upper, *lower])


def _overlap(chars: CharSet, letters: range) -> list[tuple[int, int]]:
    cut = [(max(low, letters.start), min(high, letters.stop)) for low, high in chars]
    return [(low, high) for low, high in cut if low < high]


def _all_characters() -> str:
    return np.arange(END, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")


@cache
def _cased() -> str:
    """All characters that have an upper, lower or folded form of their own."""
    every = _all_characters()
    # Whole blocks first: most of Unicode has no case, which spares most of a million comparisons.
    blocks = (every[at : at + _BLOCK] for at in range(0, END, _BLOCK))
    return "".join(
        char
        for block in blocks
        if not block == block.lower() == block.upper() == block.casefold()
        for char in block
        if not char == char.lower() == char.upper() == char.casefold()
    )
