"""Which of many patterns occur in a text of ASCII alone, in one pass over it."""

from __future__ import annotations

from collections.abc import Mapping

import re2

from evalq.evalcore.scan.charset import CharSet
from evalq.evalcore.scan.emit import re2_source
from evalq.evalcore.scan.nodes import Node

__all__ = ["Presence", "presence"]

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
