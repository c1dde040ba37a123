"""What a decision is by the rules: cooperative, a betrayal, or neither."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from evalq.evalcore.evaluators.cooperation.agents import BETRAYAL, COOPERATIVE, NEITHER
from evalq.evalcore.evaluators.cooperation.params import Rules

__all__ = ["Kinds", "kinds_by", "kinds_of"]

_CACHED_WORDS = 4096


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
