"""What a decision is by the rules: cooperative, a betrayal, or neither."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache

from evalq.evalcore.evaluators.cooperation.agents import BETRAYAL, COOPERATIVE, NEITHER
from evalq.evalcore.evaluators.cooperation.params import Rules

__all__ = ["Kinds", "kinds_by", "kinds_of", "unknown_counts", "unknown_words"]

_CACHED_WORDS = 4096
_MOST_LETTERS = 80


class Kinds(dict[str | None, int]):
    """The kind of each decision as it is written; new spellings are worked out when they come."""

    def __init__(self, rules: Rules) -> None:
        # Cooperative words last: they win where a word is in both lists, since they are tested first.
        super().__init__({None: NEITHER})
        self._words = dict.fromkeys(rules.betrayal_decisions, BETRAYAL) | dict.fromkeys(
            rules.cooperative_decisions, COOPERATIVE
        )

    def __missing__(self, decision: str | None) -> int:
        kind = NEITHER if decision is None else self._words.get(decision.lower(), NEITHER)
        # A log may have a new spelling in every row: the memory for them is bounded.
        if len(self) < _CACHED_WORDS:
            self[decision] = kind
        return kind


@lru_cache(maxsize=16)
def kinds_by(rules: Rules) -> Kinds:
    """The kinds of all decisions by ``rules``."""
    return Kinds(rules)


def kinds_of(decisions: Iterable[str | None], rules: Rules) -> list[int]:
    """What each decision is by the rules; cooperative is tested before betrayal."""
    kinds = kinds_by(rules)
    return [kinds[decision] for decision in decisions]


def unknown_words(decisions: Iterable[str | None], kinds: Iterable[int]) -> Iterator[str]:
    """Those of ``decisions``, in lower case, that are words and by their ``kinds`` neither cooperative nor a betrayal.

    Half of a surrogate pair, which no report can carry, is replaced.
    """
    for decision, kind in zip(decisions, kinds, strict=True):
        if kind == NEITHER and decision is not None:
            yield _plain(decision)


def unknown_counts(words: Iterable[str], kinds: Iterable[int], said: Iterable[int]) -> Counter[str]:
    """How often each unknown word was ``said``, given each spelling once."""
    found = Counter[str]()
    # The kinds have one more, of rows without a decision.
    for word, kind, times in zip(words, kinds, said, strict=False):
        if kind == NEITHER and times:
            found[_plain(word)] += times
    return found


def _plain(decision: str) -> str:
    """A decision as a word of a report: in lower case, cut to 80 characters, of what UTF-8 can carry."""
    return decision.lower()[:_MOST_LETTERS].encode("utf-8", "replace").decode()
