"""Many plain strings in one pass over a long text."""

from __future__ import annotations

from collections.abc import Mapping

import re2

from evalq.evalcore.scan.alphabet import Alphabet
from evalq.evalcore.scan.emit import symbol_class
from evalq.evalcore.scan.matchers import Engine, Span, Strings

__all__ = ["SWEEP_FROM", "Sweep"]

SWEEP_FROM = 1 << 15
"""Texts from this length on are worth a sweep; below, looking for one string after the other is faster."""
MAX_SWEPT = 4096
"""Bytes of plain strings that one automaton looks for."""
# Automata kept in memory: a text can be written so that it asks for every subset of the strings.
KEPT_UNIONS = 32


class Sweep:
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
