"""When two answers are the same text: what stands for an answer where kinds of answers are counted."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from evalq.evalcore.folding import folded, is_punctuation

__all__ = ["WIDTH", "kind_of_text", "normal"]

WIDTH = 8
"""Bytes that stand for a text: of a thousand different ones two are taken for one with a chance of 3 in 10^14."""
_SIGNS = frozenset("-.")
_PLANES = 0x20000
"""Unicode has no punctuation beyond its first two planes."""


def normal(text: str) -> str:
    """NFKC, casefolded, white space collapsed, and no punctuation around words; unless there is nothing else.

    Punctuation inside a word stays (3.5, don't), and so do the sign or point before a number (-5, .5), and # and %
    behind a word (C# is not C, and 5 % is not 5). A backtick is taken for a quotation mark.
    """
    whole = folded(text)
    before, behind = _around()
    words = []
    for word in whole.split(" "):
        inner = word.rstrip(behind)
        bare = inner.lstrip(before)
        if len(bare) < len(inner) and bare[:1].isdigit() and inner[-len(bare) - 1] in _SIGNS:
            bare = inner[-len(bare) - 1 :]
        if bare:
            words.append(bare)
    return " ".join(words) or whole


def kind_of_text(text: str) -> bytes:
    """What stands for a normalised text: the first `WIDTH` bytes of its BLAKE2b."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=WIDTH).digest()


@lru_cache(maxsize=1)
def _around() -> tuple[str, str]:
    """What is dropped before a word, and behind it."""
    marks = "".join(filter(is_punctuation, map(chr, range(_PLANES)))) + "`"
    return marks, "".join(mark for mark in marks if mark not in "#%")
