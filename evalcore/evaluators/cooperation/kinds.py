"""What a decision is by the rules: cooperative, a betrayal, or neither."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from evalq.evalcore.evaluators.cooperation.agents import BETRAYAL, COOPERATIVE, NEITHER
from evalq.evalcore.evaluators.cooperation.params import Rules

__all__ = ["kinds_of", "unknown_counts"]

_MOST_LETTERS = 80


def kinds_of(decisions: Iterable[str | None], rules: Rules) -> list[int]:
    """What each decision is by the rules."""
    # Cooperative words last: they win where a word is in both lists, since they are tested first.
    kinds = dict.fromkeys(rules.betrayal_decisions, BETRAYAL) | dict.fromkeys(rules.cooperative_decisions, COOPERATIVE)
    return [NEITHER if decision is None else kinds.get(decision.lower(), NEITHER) for decision in decisions]


def unknown_counts(words: Iterable[str], kinds: Iterable[int], said: Iterable[int]) -> Counter[str]:
    """How often each word that no rule knows was ``said``, given each spelling once; words are made fit for a report.

    That is in lower case, cut to 80 characters, and without halves of surrogate pairs, which UTF-8 cannot carry.
    """
    found = Counter[str]()
    # The kinds have one more, of rows without a decision.
    for word, kind, times in zip(words, kinds, said, strict=False):
        if kind == NEITHER and times:
            found[word.lower()[:_MOST_LETTERS].encode("utf-8", "replace").decode()] += times
    return found
