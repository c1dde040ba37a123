"""Where any of several patterns match: one search behind the other, each linear in the text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from evalq.evalcore.scan.alphabet import Alphabet
from evalq.evalcore.scan.emit import re2_source
from evalq.evalcore.scan.matchers import Engine, Span
from evalq.evalcore.scan.nodes import PatternRefused, charsets, has_boundary, width
from evalq.evalcore.scan.parse import parse

__all__ = ["AnyOf", "anywhere"]


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
