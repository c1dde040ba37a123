"""The three ways of searching encoded text: plain strings, whole words, and RE2 for everything else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import re2

from evalcore.scan.alphabet import WORD_BYTES, Alphabet
from evalcore.scan.bounds import require_countable
from evalcore.scan.emit import re2_source, strings, whole_words
from evalcore.scan.nodes import Node, PatternRefused

__all__ = ["Counter", "Engine", "Finder", "Span", "Strings", "Words", "counter", "finder"]

Span = tuple[int, int]
"""Where a match begins and ends, in characters."""

MAX_PROGRAM = 10_000
"""RE2 instructions: where its automaton does not fit its memory, a search costs up to this many steps a character."""


class Finder(Protocol):
    """A pattern that can be found."""

    def first(self, data: bytes) -> Span | None:
        """The leftmost match."""


class Counter(Finder, Protocol):
    """A pattern that can be found and counted."""

    def count(self, data: bytes) -> int:
        """How many matches there are, each searched for behind the one before."""


class Engine:
    """A pattern run by RE2: every single search is linear in the text."""

    def __init__(self, source: bytes) -> None:
        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1
        options.never_capture = True
        options.log_errors = False
        try:
            self._pattern = re2.compile(source, options)
        except re2.error as error:
            raise PatternRefused(f"too much to search for in linear time ({_reason(error)})") from None
        if self._pattern.programsize > MAX_PROGRAM:
            raise PatternRefused(f"{self._pattern.programsize} steps, where {MAX_PROGRAM} are allowed")

    def first(self, data: bytes) -> Span | None:
        """The leftmost match."""
        found = self._pattern.search(data)
        return found.span() if found else None

    def count(self, data: bytes) -> int:
        """How many matches there are, each searched for behind the one before."""
        return sum(1 for _ in self._pattern.finditer(data))


class Strings:
    """Some plain strings, of which earlier ones win where two match at one place."""

    def __init__(self, wanted: tuple[bytes, ...]) -> None:
        self.wanted = wanted

    def first(self, data: bytes) -> Span | None:
        """The leftmost match."""
        best: Span | None = None
        for wanted in self.wanted:
            # Only a place before the best so far can still win, so nothing behind it is looked at.
            limit = len(data) if best is None else best[0] - 1 + len(wanted)
            at = data.find(wanted, 0, max(limit, 0))
            if at >= 0 and (best is None or at < best[0]):
                best = (at, at + len(wanted))
        return best


class Words:
    """Some whole words, all of word characters: no two can overlap."""

    def __init__(self, wanted: tuple[bytes, ...]) -> None:
        self._wanted = tuple(dict.fromkeys(wanted))

    def first(self, data: bytes) -> Span | None:
        """The leftmost match."""
        starts = ((next(_whole(data, word), None), len(word)) for word in self._wanted)
        return min(((at, at + length) for at, length in starts if at is not None), default=None)

    def count(self, data: bytes) -> int:
        """How many matches there are."""
        return sum(sum(1 for _ in _whole(data, word)) for word in self._wanted)


def _whole(data: bytes, word: bytes) -> Iterator[int]:
    """Where ``word`` stands between two word boundaries."""
    at, length, total = data.find(word), len(word), len(data)
    while at >= 0:
        end = at + length
        if (not at or data[at - 1] not in WORD_BYTES) and (end == total or data[end] not in WORD_BYTES):
            yield at
        # What begins inside this hit is preceded by a word character, and so is no word of its own.
        at = data.find(word, end)


def counter(node: Node, alphabet: Alphabet) -> Counter:
    """The fastest way to count ``node``. Raises PatternRefused when it cannot be counted in linear time."""
    require_countable(node)
    return _words(node, alphabet) or Engine(re2_source(node, alphabet))


def finder(node: Node, alphabet: Alphabet) -> Finder:
    """The fastest way to find ``node``. Raises PatternRefused when it is too large."""
    plain = strings(node, alphabet)
    if plain is not None:
        return Strings(plain)
    return _words(node, alphabet) or Engine(re2_source(node, alphabet))


def _words(node: Node, alphabet: Alphabet) -> Words | None:
    inner = whole_words(node)
    found = strings(inner, alphabet) if inner is not None else None
    if found and all(word and WORD_BYTES.issuperset(word) for word in found):
        return Words(found)
    return None


def _reason(error: re2.error) -> str:
    given = error.args[0] if error.args else b""
    return given.decode("latin-1") if isinstance(given, bytes) else str(given)
