"""Three searches over encoded text: for plain strings, for whole words, and by RE2 for every other pattern."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import re2

from evalq.evalcore.scan.alphabet import WORD_BYTES, Alphabet, re2_source, strings, symbol_class, whole_words
from evalq.evalcore.scan.nodes import Node, PatternRefused, require_countable

Span = tuple[int, int]
"""The start and the end of a match, in characters."""

MAX_PROGRAM = 10_000
"""RE2 instructions of a pattern. If RE2's automaton runs out of memory, a search takes up to this many steps per
character."""

_GAP = b" "
_GAPS = bytes(byte if byte in WORD_BYTES else _GAP[0] for byte in range(256))


class Encoded:
    """A text encoded by an alphabet, and its words, which are computed on first use."""

    __slots__ = ("_words", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._words: bytes | None = None

    @property
    def words(self) -> bytes:
        """The text's words, each with its own separator on both sides, so that adjacent words are both found."""
        if self._words is None:
            gaps = self.data.translate(_GAPS).replace(_GAP, _GAP + _GAP)
            self._words = _GAP + gaps + _GAP
        return self._words


class Finder(Protocol):
    """A compiled pattern that can be searched for."""

    def first(self, text: Encoded) -> Span | None:
        """The leftmost match, or None."""

    def found(self, text: Encoded) -> bool:
        """Whether there is a match."""


class Counter(Finder, Protocol):
    """A compiled pattern whose matches can also be counted."""

    def count(self, text: Encoded) -> int:
        """The number of non-overlapping matches, from left to right."""


class Engine:
    """A pattern run by RE2: each search takes time linear in the text.

    Raises PatternRefused if RE2 rejects ``source``, or the pattern has more than MAX_PROGRAM instructions.
    """

    def __init__(self, source: bytes) -> None:
        options = re2.Options()
        # The encoded text has one byte per character, so RE2 must not decode UTF-8.
        options.encoding = re2.Options.Encoding.LATIN1
        # Only whole matches are needed. To capture groups, RE2 would have to leave its fast automaton.
        options.never_capture = True
        options.log_errors = False
        try:
            pattern = re2.compile(source, options)
        except re2.error as error:
            raise PatternRefused(f"too much to search for in linear time ({_reason(error)})") from None
        if pattern.programsize > MAX_PROGRAM:
            raise PatternRefused(f"{pattern.programsize} steps, where {MAX_PROGRAM} are allowed")
        # The package's public search wraps this call in a generator and a match object, at three times the cost.
        self._match = pattern._regexp.Match
        self._anywhere = re2._Anchor.UNANCHORED

    def search(self, data: bytes, start: int) -> Span:
        """The leftmost match that starts at or after ``start``; (-1, -1) if there is none."""
        span: Span = self._match(self._anywhere, data, start, len(data))[0]
        return span

    def first(self, text: Encoded) -> Span | None:
        """The leftmost match."""
        span = self.search(text.data, 0)
        return span if span[0] >= 0 else None

    def found(self, text: Encoded) -> bool:
        """Whether there is a match."""
        return self.search(text.data, 0)[0] >= 0

    def count(self, text: Encoded) -> int:
        """The number of non-overlapping matches; the pattern must not match an empty text."""
        times = at = 0
        while (span := self.search(text.data, at))[0] >= 0:
            times, at = times + 1, span[1]
        return times


class Strings:
    """A search for plain strings. If two match at one position, the earlier in the list wins."""

    def __init__(self, wanted: tuple[bytes, ...]) -> None:
        self.wanted = wanted

    def first(self, text: Encoded) -> Span | None:
        """The leftmost match."""
        best, end = -1, len(text.data)
        for wanted in self.wanted:
            # Only a match before the best one so far can still win, so the search ends there.
            limit = end if best < 0 else best + len(wanted) - 1
            at = text.data.find(wanted, 0, limit) if limit >= 0 else -1
            if at >= 0:
                best, end = at, at + len(wanted)
        return (best, end) if best >= 0 else None

    def found(self, text: Encoded) -> bool:
        """Whether there is a match."""
        return any(wanted in text.data for wanted in self.wanted)


class Words:
    """A search for whole words that consist of word characters only, so that no two matches overlap."""

    def __init__(self, wanted: tuple[bytes, ...]) -> None:
        self._wanted = tuple(dict.fromkeys(wanted))
        self._apart = tuple(_GAP + word + _GAP for word in self._wanted)

    def first(self, text: Encoded) -> Span | None:
        """The leftmost match."""
        starts = ((_whole(text.data, word), len(word)) for word in self._wanted)
        return min(((at, at + length) for at, length in starts if at >= 0), default=None)

    def found(self, text: Encoded) -> bool:
        """Whether there is a match."""
        return any(word in text.words for word in self._apart)

    def count(self, text: Encoded) -> int:
        """The number of matches."""
        return sum(map(text.words.count, self._apart))


def _whole(data: bytes, word: bytes) -> int:
    """The first position of ``word`` between two word boundaries, or -1."""
    at = data.find(word)
    while at >= 0:
        end = at + len(word)
        if (not at or data[at - 1] not in WORD_BYTES) and (end == len(data) or data[end] not in WORD_BYTES):
            return at
        # A match that begins inside this one follows a word character, so it cannot be a whole word.
        at = data.find(word, end)
    return at


def counter(node: Node, alphabet: Alphabet) -> Counter:
    """The fastest search that can count ``node``. Raises PatternRefused if counting may take more than linear time."""
    require_countable(node)
    return _words(node, alphabet) or Engine(re2_source(node, alphabet))


def finder(node: Node, alphabet: Alphabet) -> Finder:
    """The fastest search for ``node``. Raises PatternRefused if the pattern is too large."""
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


# Search a long text for many plain strings in one pass.

SWEEP_FROM = 1 << 15
"""Texts of at least this many characters are searched in one pass; for shorter ones, one search per string is faster.
"""
MAX_SWEPT = 4096
"""The most bytes of plain strings in one automaton."""
# The cache of automata is bounded: a hostile text can make the sweep need one for every subset of the strings.
CACHED_UNIONS = 32


class StringSweep:
    """Finds the leftmost match of each of several groups of plain strings, which are in the bytes of ``alphabet``.

    RE2 searches for any string of the groups not yet found, onward from the last match. It reads ASCII text without
    encoding; only the characters at a match are encoded. The set of remaining groups depends on the text, so automata
    are compiled on demand and cached.
    """

    def __init__(self, groups: Mapping[int, Strings], alphabet: Alphabet) -> None:
        self._groups = groups
        self._alphabet = alphabet
        self._longest = max((len(wanted) for group in groups.values() for wanted in group.wanted), default=0)
        self._unions: dict[tuple[bool, tuple[int, ...]], Engine | None] = {}

    @property
    def worthwhile(self) -> bool:
        """Whether there are at least two strings, none empty, and no more than fit one automaton."""
        wanted = [s for group in self._groups.values() for s in group.wanted]
        return len(wanted) > 1 and all(wanted) and sum(map(len, wanted)) <= MAX_SWEPT

    def firsts(self, text: str) -> dict[int, Span]:
        """The leftmost match by group; groups without a match are left out."""
        found: dict[int, Span] = {}
        plain = text.isascii()
        data = text.encode("ascii") if plain else self._alphabet.encode(text)
        remaining, at = tuple(self._groups), 0
        # Go on from the last match: the strings that remain do not occur before it.
        while remaining and (union := self._union(remaining, plain=plain)) and (at := union.search(data, at)[0]) >= 0:
            here = data[at : at + self._longest]
            symbols = self._alphabet.encode(here.decode("ascii")) if plain else here
            for index in remaining:
                matched = [s for s in self._groups[index].wanted if symbols.startswith(s)]
                if matched:
                    found[index] = (at, at + len(matched[0]))
            remaining = tuple(index for index in remaining if index not in found)
        return found

    def _union(self, remaining: tuple[int, ...], *, plain: bool) -> Engine | None:
        """The automaton for the strings of the groups in ``remaining``; None if no string can occur in ASCII text."""
        if (plain, remaining) not in self._unions:
            if len(self._unions) >= CACHED_UNIONS:
                self._unions.clear()
            wanted = [s for index in remaining for s in self._groups[index].wanted]
            sources = [self._in_ascii(s) for s in wanted] if plain else [re2.escape(s) for s in wanted]
            source = b"|".join(filter(None, sources))
            self._unions[plain, remaining] = Engine(source) if source else None
        return self._unions[plain, remaining]

    def _in_ascii(self, wanted: bytes) -> bytes | None:
        """The RE2 source that matches the ASCII texts encoded as ``wanted``; None if there is no such text."""
        characters = [self._alphabet.ascii(symbol) for symbol in wanted]
        return b"".join(map(symbol_class, characters)) if all(characters) else None
