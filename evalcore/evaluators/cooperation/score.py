"""From events to columns to states: the one place where rows are turned into numbers."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import Any

from evalq.evalcore.evaluators.cooperation.agents import BETRAYAL, COOPERATIVE, NEITHER
from evalq.evalcore.evaluators.cooperation.params import Rules
from evalq.evalcore.evaluators.cooperation.record import Event, number
from evalq.evalcore.evaluators.cooperation.state import CooperationState

__all__ = ["kinds_of", "summarize", "values_of"]

_CACHED_WORDS = 4096


class _Kinds(dict[str | None, int]):
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
def _kinds(rules: Rules) -> _Kinds:
    return _Kinds(rules)


def kinds_of(events: list[Event], rules: Rules) -> list[int]:
    """What each event's decision is by the rules; cooperative is tested before betrayal."""
    kinds = _kinds(rules)
    return [kinds[event.decision] for event in events]


def values_of(events: list[Event], rules: Rules) -> list[int | float | None]:
    """Each event's amount of the contributed resource, None where it gives none."""
    key = rules.resource_key
    values: list[Any] = [held.get(key) if (held := event.resources) else None for event in events]
    if str in set(map(type, values)):
        return [number(value) if type(value) is str else value for value in values]
    return values


def summarize(events: list[Event], rules: Rules) -> CooperationState:
    """The state of a chunk's events."""
    groups: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        groups[event.agent].append(event)
    columns = (
        (agent, ([event.turn for event in own], kinds_of(own, rules), values_of(own, rules)))
        for agent, own in groups.items()
    )
    dry_run = next((event.dry_run for event in events if event.dry_run is not None), None)
    return CooperationState.of([event.turn for event in events], columns, dry_run)
