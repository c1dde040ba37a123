"""Search one text for several patterns: which occur, the first match of each, and how often each occurs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property, lru_cache

import msgspec
import re2

from evalq.evalcore.scan.alphabet import Alphabet, re2_source
from evalq.evalcore.scan.matchers import (
    SWEEP_FROM,
    Counter,
    Encoded,
    Engine,
    Finder,
    Span,
    Strings,
    StringSweep,
    counter,
    finder,
)
from evalq.evalcore.scan.nodes import CharSet, Folding, Node, PatternRefused, charsets, has_boundary, parse, width

# One pass over an ASCII text that says which of many patterns occur.

MAX_EACH = 160
"""The most RE2 instructions of a pattern in the common automaton: a longer one makes the search slow for all."""
MAX_TOGETHER = 4096
"""The most RE2 instructions of all patterns in the common automaton."""


class _Ascii:
    """The identity alphabet for ASCII texts, where RE2's bytes, words and offsets equal Python's characters."""

    def symbols(self, chars: CharSet) -> bytes:
        """The ASCII characters among ``chars``."""
        below = ((first, min(end, 128)) for first, end in chars if first < 128)
        return bytes(byte for first, end in below for byte in range(first, end))


class Presence:
    """Several patterns in one RE2 automaton. ``known`` are the indexes of the patterns that it includes."""

    def __init__(self, sources: Mapping[int, bytes]) -> None:
        self.known = frozenset(sources)
        self._indexes = tuple(sources)
        patterns = re2.Set.SearchSet(_options())
        # An RE2 set that runs out of memory reports no match and no error. This empty pattern matches any text, so its
        # absence reveals that.
        self._always = patterns.Add(b"")
        for source in sources.values():
            patterns.Add(source)
        patterns.Compile()
        self._match = patterns._set.Match

    def among(self, data: bytes) -> frozenset[int] | None:
        """The indexes of the patterns that occur in ``data`` (ASCII); None if the automaton ran out of memory."""
        found = self._match(data)
        if not found:
            return None
        indexes = self._indexes
        return frozenset([indexes[place - 1] for place in found if place != self._always])


def presence(nodes: Mapping[int, Node]) -> Presence | None:
    """One automaton for as many of ``nodes`` as it has room for; None if that is fewer than two."""
    sources: dict[int, bytes] = {}
    left = MAX_TOGETHER
    for index, node in nodes.items():
        source = re2_source(node, _Ascii())
        size = re2.compile(source, _options()).programsize
        if size <= min(MAX_EACH, left):
            sources[index] = source
            left -= size
    return Presence(sources) if len(sources) > 1 else None


def _options() -> re2.Options:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.never_capture = True
    options.log_errors = False
    return options


class Pattern(msgspec.Struct, frozen=True):
    """A regular expression of Python's `re` on str. Set ``counted`` if its matches will be counted.

    ``folding`` defines what ``ignore_case`` treats as equal: "ascii" (only A-Z and a-z) or "unicode" (as
    `re.IGNORECASE` on str).
    """

    source: str
    ignore_case: bool = False
    folding: Folding = "unicode"
    dotall: bool = False
    counted: bool = False


class Scanner:
    """Several patterns, compiled together. Their indexes in ``patterns`` name them in all results.

    Raises PatternRefused if one of them has no linear-time search.
    """

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        nodes = {index: _tree(pattern) for index, pattern in enumerate(patterns)}
        counted = {index for index, pattern in enumerate(patterns) if pattern.counted}
        # Two kinds of groups: with word boundaries, the classes of word characters must share the 63 bytes that are
        # word characters in ASCII; patterns without boundaries may use all 256 bytes.
        kinds = [
            {index: node for index, node in nodes.items() if has_boundary(node) == words} for words in (False, True)
        ]
        self._groups = [
            group for words, kind in enumerate(kinds) for group in _groups(kind, counted, words=bool(words))
        ]
        self._place = {index: at for at, group in enumerate(self._groups) for index in group.finders}
        self.size = len(patterns)
        self._nodes = nodes

    @cached_property
    def _presence(self) -> Presence | None:
        return presence(self._nodes)

    def scan(self, text: str) -> Scan:
        """A `Scan` of ``text``, which encodes the text on first use."""
        return Scan(text, self._groups, self._place, self.known, self._seen(text))

    @cached_property
    def known(self) -> frozenset[int]:
        """The indexes of the patterns whose presence in an ASCII text one common pass decides."""
        return self._presence.known if self._presence else frozenset()

    def _seen(self, text: str) -> frozenset[int] | None:
        """The `known` patterns that occur in ``text``; None if one pass cannot decide that."""
        return self._presence.among(text.encode("ascii")) if text.isascii() and self._presence else None

    def firsts(self, text: str) -> list[Span | None]:
        """The first match of each pattern in ``text``, by index; spans are in characters."""
        found: list[Span | None] = [None] * self.size
        # A long text is searched for all plain strings in one pass, so a presence check would only add another pass.
        seen = self._seen(text) if len(text) < SWEEP_FROM else None
        absent = frozenset[int]() if seen is None else self.known - seen
        for group in self._groups:
            if not group.finders.keys() <= absent:
                for index, span in group.firsts(text, absent):
                    found[index] = span
        return found


class Scan:
    """Searches of one text, which is encoded at most once for each group of patterns.

    ``seen`` are the patterns of `Scanner.known` that occur in it; None if one pass could not decide that.
    """

    def __init__(
        self,
        text: str,
        groups: Sequence[_Group],
        place: dict[int, int],
        known: frozenset[int],
        seen: frozenset[int] | None,
    ) -> None:
        self._text = text
        self.seen = seen
        self._known = frozenset[int]() if seen is None else known
        self._groups = groups
        self._place = place
        self._encoded: dict[int, Encoded] = {}

    def first(self, index: int) -> Span | None:
        """The first match of pattern ``index`` in characters, or None."""
        if self._absent(index):
            return None
        group, text = self._read(index)
        return group.finders[index].first(text)

    def found(self, index: int) -> bool:
        """Whether pattern ``index`` occurs."""
        if index in self._known:
            return not self._absent(index)
        group, text = self._read(index)
        return group.finders[index].found(text)

    def count(self, index: int) -> int:
        """The number of non-overlapping matches of pattern ``index``. Raises KeyError if it is not ``counted``."""
        if self._absent(index) and index in self._groups[self._place[index]].counters:
            return 0
        group, text = self._read(index)
        return group.counters[index].count(text)

    def _absent(self, index: int) -> bool:
        return self.seen is not None and index in self._known and index not in self.seen

    def _read(self, index: int) -> tuple[_Group, Encoded]:
        place = self._place[index]
        group = self._groups[place]
        if place not in self._encoded:
            self._encoded[place] = Encoded(group.alphabet.encode(self._text))
        return group, self._encoded[place]


class _Group:
    """Patterns that share an alphabet."""

    def __init__(self, nodes: dict[int, Node], counted: set[int], *, words: bool) -> None:
        self.alphabet = Alphabet(set().union(*map(charsets, nodes.values())), words=words)
        self.counters: dict[int, Counter] = {
            index: counter(node, self.alphabet) for index, node in nodes.items() if index in counted
        }
        self.finders: dict[int, Finder] = {
            index: self.counters.get(index) or finder(node, self.alphabet) for index, node in nodes.items()
        }
        plain = {index: found for index, found in self.finders.items() if isinstance(found, Strings)}
        sweep = StringSweep(plain, self.alphabet)
        self._sweep = sweep if sweep.worthwhile else None
        self._unswept = tuple(index for index in self.finders if index not in plain)

    def firsts(self, text: str, absent: Set[int]) -> Iterator[tuple[int, Span | None]]:
        """(index, first match) of the patterns; patterns without a match may be left out.

        Patterns in ``absent`` are known not to occur, and are not searched for.
        """
        one_by_one: Iterable[int] = self.finders
        if self._sweep is not None and len(text) >= SWEEP_FROM:
            yield from self._sweep.firsts(text).items()
            one_by_one = self._unswept
        wanted = [index for index in one_by_one if index not in absent]
        if wanted:
            encoded = Encoded(self.alphabet.encode(text))
            for index in wanted:
                yield index, self.finders[index].first(encoded)


def _groups(nodes: dict[int, Node], counted: set[int], *, words: bool) -> list[_Group]:
    """Groups for ``nodes``, as few as possible: halve the patterns until each alphabet has enough bytes."""
    if not nodes:
        return []
    try:
        return [_Group(nodes, counted, words=words)]
    except PatternRefused:
        if len(nodes) == 1:
            raise
    items = list(nodes.items())
    halves = dict(items[: len(items) // 2]), dict(items[len(items) // 2 :])
    return [group for half in halves for group in _groups(half, counted, words=words)]


@lru_cache(maxsize=256)  # params are validated first, then the same patterns are compiled
def _tree(pattern: Pattern) -> Node:
    flags = re.IGNORECASE * pattern.ignore_case | re.DOTALL * pattern.dotall
    return parse(pattern.source, flags, pattern.folding)


@lru_cache(maxsize=256)
def require_searchable(pattern: Pattern) -> None:
    """Raise PatternRefused if ``pattern`` cannot be searched for (or, if ``counted``, be counted) in linear time."""
    Scanner([pattern])


# All matches of any of several patterns; each search is linear in the text.


def anywhere(at: int) -> int:
    """A ``begin`` for `AnyOf.spans` that allows a match to begin at every position."""
    return at


class AnyOf:
    """An alternation of patterns of Python's `re` on str under ``flags``; at one position, the earliest pattern wins.

    Raises PatternRefused if they have no linear-time search, or can match an empty text.
    """

    def __init__(self, sources: Sequence[str], flags: int = 0) -> None:
        node = parse("|".join(f"(?:{source})" for source in sources), flags)
        if width(node)[0] == 0:
            raise PatternRefused("it can match nothing at all")
        self._alphabet = Alphabet(charsets(node), words=has_boundary(node))
        self._engine = Engine(re2_source(node, self._alphabet))

    def spans(self, text: str, begin: Callable[[int], int] = anywhere) -> Iterator[Span]:
        """The non-overlapping matches in ``text`` from left to right, as `re.finditer` gives them.

        ``begin(at)`` is the first position from ``at`` on where a match may begin.
        """
        data, at = self._alphabet.encode(text), 0
        while (span := self._engine.search(data, at))[0] >= 0:
            at = begin(span[0])
            if at == span[0]:
                yield span
                at = span[1]
