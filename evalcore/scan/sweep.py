"""Many plain strings in one pass over a long text."""

from __future__ import annotations

from collections.abc import Mapping

import re2

from evalq.evalcore.scan.matchers import Encoded, Engine, Span, Strings

__all__ = ["SWEEP_FROM", "Sweep"]

SWEEP_FROM = 1 << 15
"""Texts from this length on are worth a sweep; below, looking for one string after the other is faster."""
MAX_SWEPT = 4096
"""Bytes of plain strings that one automaton looks for."""
# Automata kept in memory: a text can be written so that it asks for every subset of the strings.
KEPT_UNIONS = 32


class Sweep:
    """Some groups of plain strings, each with its leftmost match.

    RE2 looks for any of the strings not yet found, from where the last one was. Which groups are still sought is
    a matter of the text, so the automata are made when needed and the last few kept.
    """

    def __init__(self, groups: Mapping[int, Strings]) -> None:
        self._groups = groups
        self._unions: dict[tuple[int, ...], Engine] = {}

    @property
    def worthwhile(self) -> bool:
        """Whether there is more than one string, and not so many that the automaton grows large."""
        wanted = [s for group in self._groups.values() for s in group.wanted]
        return len(wanted) > 1 and all(wanted) and sum(map(len, wanted)) <= MAX_SWEPT

    def firsts(self, text: Encoded) -> dict[int, Span]:
        """The leftmost match of each group that has one."""
        found: dict[int, Span] = {}
        sought, at = tuple(self._groups), 0
        # On from the last match: a string that is still sought has none before it.
        while sought and (at := self._union(sought).search(text.data, at)[0]) >= 0:
            for index in sought:
                here = [s for s in self._groups[index].wanted if text.data.startswith(s, at)]
                if here:
                    found[index] = (at, at + len(here[0]))
            sought = tuple(index for index in sought if index not in found)
        return found

    def _union(self, sought: tuple[int, ...]) -> Engine:
        if sought not in self._unions:
            if len(self._unions) >= KEPT_UNIONS:
                self._unions.clear()
            wanted = [s for index in sought for s in self._groups[index].wanted]
            self._unions[sought] = Engine(b"|".join(map(re2.escape, wanted)))
        return self._unions[sought]
