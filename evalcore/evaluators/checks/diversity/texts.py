"""When two answers are the same text: what stands for an answer where kinds of answers are counted."""

from __future__ import annotations

import hashlib
import json
import re
from decimal import Decimal
from functools import lru_cache
from typing import Any

from evalq.evalcore.records.extract import NoJson, extract
from evalq.evalcore.words import folded, is_punctuation

__all__ = ["WIDTH", "kind_of_text", "normal"]

WIDTH = 8
"""Bytes that stand for a text: of a thousand different ones two are taken for one with a chance of 3 in 10^14."""
_SIGNS = frozenset("-.")
_KEPT_BEHIND, _KEPT_BEFORE = frozenset("#%]}"), frozenset("%[{")
# Between words they are punctuation of a sentence, which French sets apart, and which some write as dashes.
_OF_SENTENCES = frozenset(".,;:!?\u2026\u3001\u3002\"'`\u00ab\u00bb\u2018\u2019\u201c\u201d\u201e()\u2022\u00b7")
_DASHES = frozenset("-\u2010\u2011\u2012\u2013\u2014\u2212")
_SHORT = 40
_PLANES = 0x20000
"""Unicode has no punctuation beyond its first two planes."""
# A number by itself, or with signs around it; 007 and 1.2.3 are names, and so is what has letters before it.
_NUMBER = re.compile(
    r"(?<![\w.,])(?P<whole>0|[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d*)(?P<part>\.\d+)?(?:e(?P<power>[-+]?\d{1,2}))?(?![\d.,]*\d)"
)


def normal(text: str) -> str:
    """NFKC, casefolded, white space collapsed, and no punctuation around words; unless there is nothing else.

    Punctuation inside a word stays (3.5, don't), and so do the sign or point before a number (-5, .5), # and % behind a
    word (C# is not C, and 5% is not 5), and square and curly brackets ([a] is not a). So does what stands by itself and
    is no punctuation of sentences: 10 - 2, 10 * 2 and 10 / 2 are three. A backtick is taken for a quotation mark, a
    curly apostrophe for a straight one. Numbers are by value (1,000.0 is 1000), and so is JSON, its keys in any order.
    """
    if text.strip()[:1] in ("{", "[") and (plain := _plain_json(text)) is not None:
        return plain
    # What begins an item of a list or a heading.
    whole = folded(_BULLET.sub("", text)).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    given = whole.split()
    # Most words come again and again; long ones are not kept, as they may be as long as the answer.
    words = [_bare(word) if len(word) <= _SHORT else _stripped(word) for word in given]
    for at, word in enumerate(words):
        if not word and not _is_sentence(given, at):
            words[at] = given[at]
    said = " ".join(filter(None, words)) or whole
    return _NUMBER.sub(_by_value, said)


_BULLET = re.compile(r"^[ \t]*(?:[-*+\u2022\u2013]|#{1,6})(?=[ \t])", re.MULTILINE)


def _is_sentence(words: list[str], at: int) -> bool:
    """Whether a word of punctuation alone is a sentence's; a dash is an operator beside a number."""
    if all(sign in _OF_SENTENCES for sign in words[at]):
        return True
    if not all(sign in _DASHES for sign in words[at]):
        return False
    beside = words[max(0, at - 1) : at] + words[at + 1 : at + 2]
    return not any(any(map(str.isdigit, word)) or len(word) == 1 for word in beside)


def _by_value(found: re.Match[str]) -> str:
    whole, part, power = found["whole"].replace(",", ""), found["part"] or "", found["power"]
    if power is not None:
        return f"{Decimal(f'{whole}{part}e{power}').normalize():f}"
    part = part.rstrip("0")
    return whole + ("" if part == "." else part)


def _plain_json(text: str) -> str | None:
    """What stands for text that is a JSON object or list; None where it is none."""
    try:
        value = extract(text)
    except NoJson:
        return None
    return (
        json.dumps(_plain_value(value), ensure_ascii=False, sort_keys=True) if isinstance(value, dict | list) else None
    )


def _plain_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain_value(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_plain_value(held) for held in value]
    if isinstance(value, str):
        return normal(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


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
    bare = word[start:end]
    return "" if all(sign in marks for sign in bare) and all(sign not in "[]{}" for sign in bare) else bare


_bare = lru_cache(maxsize=65536)(_stripped)


def kind_of_text(text: str) -> bytes:
    """What stands for a normalised text: the first `WIDTH` bytes of its BLAKE2b."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=WIDTH).digest()


@lru_cache(maxsize=1)
def _marks() -> frozenset[str]:
    return frozenset(filter(is_punctuation, map(chr, range(_PLANES)))) | {"`"}
