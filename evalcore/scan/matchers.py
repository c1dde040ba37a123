"""The three ways of searching encoded text: plain strings, whole words, and RE2 for everything else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import re2

from evalq.evalcore.scan.alphabet import WORD_BYTES, Alphabet, re2_source, strings, symbol_class, whole_words
from evalq.evalcore.scan.nodes import Node, PatternRefused, require_countable

Span = tuple[int, int]
"""Where a match begins and ends, in characters."""

MAX_PROGRAM = 10_000
"""RE2 instructions: where its automaton does not fit its memory, a search costs up to this many steps a character."""

_GAP = b" "
_GAPS = bytes(byte if byte in WORD_BYTES else _GAP[0] for byte in range(256))


class Encoded:
    """A text in the bytes of an alphabet, and its words one by one where they are asked for."""

    __slots__ = ("_words", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._words: bytes | None = None

    @property
    def words(self) -> bytes:
        """The text's words, each with a gap of its own on both sides, so that none is hidden by its neighbour."""
        if self._words is None:
            gaps = self.data.translate(_GAPS).replace(_GAP, _GAP + _GAP)
            self._words = _GAP + gaps + _GAP
        return self._words


class Finder(Protocol):
    """A pattern that can be found."""

    def first(self, text: Encoded) -> Span | None:
        """The leftmost match."""

    def found(self, text: Encoded) -> bool:
        """Whether there is a match."""


class Counter(Finder, Protocol):
    """A pattern that can be found and counted."""

    def count(self, text: Encoded) -> int:
        """How many matches there are, each searched for behind the one before."""


class Engine:
    """A pattern run by RE2: every single search is linear in the text."""

    def __init__(self, source: bytes) -> None:
        options = re2.Options()
        # Bytes, one a character: the alphabet has done all that UTF-8 would be for.
        options.encoding = re2.Options.Encoding.LATIN1
        # Only whole matches are wanted; for groups RE2 has to leave its fast automaton.
        options.never_capture = True
        options.log_errors = False
        try:
            pattern = re2.compile(source, options)
        except re2.error as error:
            raise PatternRefused(f"too much to search for in linear time ({_reason(error)})") from None
        if pattern.programsize > MAX_PROGRAM:
            raise PatternRefused(f"{pattern.programsize} steps, where {MAX_PROGRAM} are allowed")
        # The package's own search wraps this call in a generator and a match object, at three times its cost.
        self._match = pattern._regexp.Match
        self._anywhere = re2._Anchor.UNANCHORED

    def search(self, data: bytes, start: int) -> Span:
        """The leftmost match at or behind ``start``; (-1, -1) where there is none."""
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
        """How many matches there are, none of which is empty."""
        times = at = 0
        while (span := self.search(text.data, at))[0] >= 0:
            times, at = times + 1, span[1]
        return times


class Strings:
    """Some plain strings, of which earlier ones win where two match at one place."""

    def __init__(self, wanted: tuple[bytes, ...]) -> None:
        self.wanted = wanted

    def first(self, text: Encoded) -> Span | None:
        """The leftmost match."""
        best, end = -1, len(text.data)
        for wanted in self.wanted:
            # Only a place before the best so far can still win, so nothing behind it is looked at.
            limit = end if best < 0 else best + len(wanted) - 1
            at = text.data.find(wanted, 0, limit) if limit >= 0 else -1
            if at >= 0:
                best, end = at, at + len(wanted)
        return (best, end) if best >= 0 else None

    def found(self, text: Encoded) -> bool:
        """Whether there is a match."""
        return any(wanted in text.data for wanted in self.wanted)


class Words:
    """Some whole words, all of word characters: no two can overlap."""

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
        """How many matches there are."""
        return sum(map(text.words.count, self._apart))


def _whole(data: bytes, word: bytes) -> int:
    """Where ``word`` first stands between two word boundaries, or -1."""
    at = data.find(word)
    while at >= 0:
        end = at + len(word)
        if (not at or data[at - 1] not in WORD_BYTES) and (end == len(data) or data[end] not in WORD_BYTES):
            return at
        # What begins inside this hit is preceded by a word character, and so is no word of its own.
        at = data.find(word, end)
    return at


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


# Many plain strings in one pass over a long text.

SWEEP_FROM = 1 << 15
"""Texts from this length on are worth a sweep; below, looking for one string after the other is faster."""
MAX_SWEPT = 4096
"""Bytes of plain strings that one automaton looks for."""
# Automata kept in memory: a text can be written so that it asks for every subset of the strings.
KEPT_UNIONS = 32


class StringSweep:
    """Some groups of plain strings in the bytes of ``alphabet``, each with its leftmost match.

    RE2 looks for any of the strings not yet found, from where the last one was; a text of ASCII it reads as it is, and
    only what it finds is encoded. Which groups are still sought is a matter of the text, so the automata are made when
    needed and the last few kept.
    """

    def __init__(self, groups: Mapping[int, Strings], alphabet: Alphabet) -> None:
        self._groups = groups
        self._alphabet = alphabet
        self._longest = max((len(wanted) for group in groups.values() for wanted in group.wanted), default=0)
        self._unions: dict[tuple[bool, tuple[int, ...]], Engine | None] = {}

    @property
    def worthwhile(self) -> bool:
        """Whether there is more than one string, and not so many that the automaton grows large."""
        wanted = [s for group in self._groups.values() for s in group.wanted]
        return len(wanted) > 1 and all(wanted) and sum(map(len, wanted)) <= MAX_SWEPT

    def firsts(self, text: str) -> dict[int, Span]:
        """The leftmost match of each group that has one."""
        found: dict[int, Span] = {}
        plain = text.isascii()
        data = text.encode("ascii") if plain else self._alphabet.encode(text)
        sought, at = tuple(self._groups), 0
        # On from the last match: a string that is still sought has none before it.
        while sought and (union := self._union(sought, plain=plain)) and (at := union.search(data, at)[0]) >= 0:
            here = data[at : at + self._longest]
            symbols = self._alphabet.encode(here.decode("ascii")) if plain else here
            for index in sought:
                matched = [s for s in self._groups[index].wanted if symbols.startswith(s)]
                if matched:
                    found[index] = (at, at + len(matched[0]))
            sought = tuple(index for index in sought if index not in found)
        return found

    def _union(self, sought: tuple[int, ...], *, plain: bool) -> Engine | None:
        """What looks for any of the strings; None where ASCII has none of them."""
        if (plain, sought) not in self._unions:
            if len(self._unions) >= KEPT_UNIONS:
                self._unions.clear()
            wanted = [s for index in sought for s in self._groups[index].wanted]
            sources = [self._in_ascii(s) for s in wanted] if plain else [re2.escape(s) for s in wanted]
            source = b"|".join(filter(None, sources))
            self._unions[plain, sought] = Engine(source) if source else None
        return self._unions[plain, sought]

    def _in_ascii(self, wanted: bytes) -> bytes | None:
        """The source of a pattern of the ASCII texts that ``wanted`` stands for; None where there is none."""
        characters = [self._alphabet.ascii(symbol) for symbol in wanted]
        return b"".join(map(symbol_class, characters)) if all(characters) else None
