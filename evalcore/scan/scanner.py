"""Several patterns against one text: which occur, where each is first found, how often it occurs."""

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

# Which of many patterns occur in a text of ASCII alone, in one pass over it.

MAX_EACH = 160
"""RE2 instructions of a pattern that is looked for together with others: a longer one makes all of them slow."""
MAX_TOGETHER = 4096


class _Ascii:
    """ASCII as it is: in such a text RE2's bytes, words and offsets are Python's characters."""

    def symbols(self, chars: CharSet) -> bytes:
        """The ASCII characters among ``chars``."""
        below = ((first, min(end, 128)) for first, end in chars if first < 128)
        return bytes(byte for first, end in below for byte in range(first, end))


class Presence:
    """Patterns in one automaton of RE2; ``known`` are those it can tell of."""

    def __init__(self, sources: Mapping[int, bytes]) -> None:
        self.known = frozenset(sources)
        self._indexes = tuple(sources)
        patterns = re2.Set.SearchSet(_options())
        # Where its memory does not suffice, a set finds nothing and does not say so. This one is found in any text.
        self._always = patterns.Add(b"")
        for source in sources.values():
            patterns.Add(source)
        patterns.Compile()
        self._match = patterns._set.Match

    def among(self, data: bytes) -> frozenset[int] | None:
        """Those that occur in ``data``, which is ASCII; None where that took more memory than an automaton may have."""
        found = self._match(data)
        if not found:
            return None
        indexes = self._indexes
        return frozenset([indexes[place - 1] for place in found if place != self._always])


def presence(nodes: Mapping[int, Node]) -> Presence | None:
    """What tells of as many of ``nodes`` as can be looked for together; None where that is less than two."""
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
    """A regular expression of Python's `re` on str, to be found, or to be ``counted`` too.

    ``folding`` is what ignoring case means: "ascii" (A-Z alone) or "unicode" (as `re.IGNORECASE` on str).
    """

    source: str
    ignore_case: bool = False
    folding: Folding = "unicode"
    dotall: bool = False
    counted: bool = False


class Scanner:
    """``patterns``, compiled together. Raises PatternRefused for one that has no linear-time search."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        nodes = {index: _tree(pattern) for index, pattern in enumerate(patterns)}
        counted = {index for index, pattern in enumerate(patterns) if pattern.counted}
        # Apart: where boundaries count, word characters have to share the 63 bytes that are word characters in ASCII;
        # patterns without boundaries may use all 256 bytes.
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
        """Begin to search ``text``; it is read when first asked for."""
        return Scan(text, self._groups, self._place, self.known, self._seen(text))

    @cached_property
    def known(self) -> frozenset[int]:
        """The patterns of which one pass over a text of ASCII tells whether they occur."""
        return self._presence.known if self._presence else frozenset()

    def _seen(self, text: str) -> frozenset[int] | None:
        """Those of the `known` that occur in ``text``, where one pass tells."""
        return self._presence.among(text.encode("ascii")) if text.isascii() and self._presence else None

    def firsts(self, text: str) -> list[Span | None]:
        """For each pattern its first match in ``text``, in characters."""
        found: list[Span | None] = [None] * self.size
        # A long text is swept for all plain strings at once, so looking at it beforehand would be a second pass.
        seen = self._seen(text) if len(text) < SWEEP_FROM else None
        absent = frozenset[int]() if seen is None else self.known - seen
        for group in self._groups:
            if not group.finders.keys() <= absent:
                for index, span in group.firsts(text, absent):
                    found[index] = span
        return found


class Scan:
    """One text, encoded at most once for each group of patterns.

    ``seen`` are those of `Scanner.known` that occur; None where that could not be told in one pass.
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
        """The first match of pattern ``index``, in characters."""
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
        """How many non-overlapping matches of pattern ``index`` there are. KeyError when it was not to be counted."""
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
        """The first match of each pattern; one that has none may be left out."""
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
    """As few groups as hold ``nodes``: halved until the alphabets suffice."""
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


@lru_cache(maxsize=256)  # looked at to be refused, then again to be searched for
def _tree(pattern: Pattern) -> Node:
    flags = re.IGNORECASE * pattern.ignore_case | re.DOTALL * pattern.dotall
    return parse(pattern.source, flags, pattern.folding)


@lru_cache(maxsize=256)
def require_searchable(pattern: Pattern) -> None:
    """Raise PatternRefused when ``pattern`` has no search (or, where it is counted, no counting) in linear time."""
    Scanner([pattern])


# Where any of several patterns match: one search behind the other, each linear in the text.


def anywhere(at: int) -> int:
    """A match may begin at each place."""
    return at


class AnyOf:
    """Patterns of Python's `re` on str under ``flags``, of which earlier ones win where two match at one place.

    Raises PatternRefused where there is no linear-time search for them, or they can match nothing at all.
    """

    def __init__(self, sources: Sequence[str], flags: int = 0) -> None:
        node = parse("|".join(f"(?:{source})" for source in sources), flags)
        if width(node)[0] == 0:
            raise PatternRefused("it can match nothing at all")
        self._alphabet = Alphabet(charsets(node), words=has_boundary(node))
        self._engine = Engine(re2_source(node, self._alphabet))

    def spans(self, text: str, begin: Callable[[int], int] = anywhere) -> Iterator[Span]:
        """The matches in ``text``, each searched for behind the one before, as `re.finditer` gives them.

        ``begin`` gives the first place, from a given one on, where a match may begin.
        """
        data, at = self._alphabet.encode(text), 0
        while (span := self._engine.search(data, at))[0] >= 0:
            at = begin(span[0])
            if at == span[0]:
                yield span
                at = span[1]
