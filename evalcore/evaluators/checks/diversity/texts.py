"""When two answers are the same text: what stands for an answer where kinds of answers are counted."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from evalq.evalcore.folding import folded, is_punctuation

__all__ = ["WIDTH", "kind_of_text", "normal"]

WIDTH = 8
"""Bytes that stand for a text: of a thousand different ones two are taken for one with a chance of 3 in 10^14."""
_SIGNS = frozenset("-.")
_KEPT_BEHIND, _KEPT_BEFORE = frozenset("#%"), frozenset("%")
_SHORT = 40
_PLANES = 0x20000
"""Unicode has no punctuation beyond its first two planes."""


def normal(text: str) -> str:
    """NFKC, casefolded, white space collapsed, and no punctuation around words; unless there is nothing else.

    Punctuation inside a word stays (3.5, don't), and so do the sign or point before a number (-5, .5), and # and %
    behind a word (C# is not C, and 5% is not 5). A backtick is taken for a quotation mark, a curly apostrophe for a
    straight one.
    """
    whole = folded(text).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    # Most words come again and again; long ones are not kept, as they may be as long as the answer.
    words = [_bare(word) if len(word) <= _SHORT else _stripped(word) for word in whole.split()]
    return " ".join(filter(None, words)) or whole


def _stripped(word: str) -> str:
    """A word without the punctuation around it."""
    marks = _marks()
    start, end = 0, len(word)
    while end and word[end - 1] in marks and word[end - 1] not in _KEPT_BEHIND:
        end -= 1
    while start < end and word[start] in marks and word[start] not in _KEPT_BEFORE:
        start += 1
    if start and start < end and word[start].isdigit() and word[start - 1] in _SIGNS:
        start -= 1
    return word[start:end]


_bare = lru_cache(maxsize=65536)(_stripped)


def kind_of_text(text: str) -> bytes:
    """What stands for a normalised text: the first `WIDTH` bytes of its BLAKE2b."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=WIDTH).digest()


@lru_cache(maxsize=1)
def _marks() -> frozenset[str]:
    return frozenset(filter(is_punctuation, map(chr, range(_PLANES)))) | {"`"}
