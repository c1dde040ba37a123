"""The rows of a chunk, column by column: what its answer is counted from."""

from __future__ import annotations

import math
from functools import lru_cache

from evalq.evalcore.evaluators.cooperation.agents import BETRAYAL, COOPERATIVE, NEITHER
from evalq.evalcore.evaluators.cooperation.params import Rules
from evalq.evalcore.evaluators.cooperation.record import Event, number

__all__ = ["NO_VALUE", "Columns", "Value"]

_CACHED_WORDS = 4096

Value = int | float | str
"""A resource as it was decoded; a short decimal string is still to be made a number."""
NO_VALUE = math.nan
"""Stands for a row that gives no amount of the resource: no amount is NaN."""


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


class _Names(dict[str, int]):
    """The agents in order of their first rows, each with its number."""

    def __missing__(self, agent: str) -> int:
        self[agent] = len(self)
        return len(self) - 1


@lru_cache(maxsize=16)
def _kinds(rules: Rules) -> _Kinds:
    return _Kinds(rules)


class Columns:
    """Rows in the order of the log.

    ``turns``; ``agents``, the place in ``names`` of each row's agent; ``kinds`` of decision by the rules (cooperative
    is tested before betrayal); ``values`` of the contributed resource, NO_VALUE where a row has none. ``dry_run`` is
    that of the first row that has one.
    """

    __slots__ = ("_kind", "agents", "dry_run", "key", "kinds", "names", "turns", "values")

    def __init__(self, rules: Rules) -> None:
        self._kind = _kinds(rules)
        self.key = rules.resource_key
        self.turns: list[int] = []
        self.agents: list[int] = []
        self.kinds: list[int] = []
        self.values: list[Value] = []
        self.names: dict[str, int] = _Names()
        self.dry_run: bool | None = None

    def extend(self, events: list[Event], values: list[Value]) -> None:
        """Add rows, with their amounts of the resource. An event of another class with the same fields will do."""
        self.turns += [event.turn for event in events]
        self.agents += map(self.names.__getitem__, [event.agent for event in events])
        self.kinds += map(self._kind.__getitem__, [event.decision for event in events])
        self.values += values
        if self.dry_run is None:
            self.dry_run = next((event.dry_run for event in events if event.dry_run is not None), None)

    def add(self, events: list[Event]) -> None:
        """Add rows whose resources are a dict."""
        key = self.key
        self.extend(events, [held.get(key, NO_VALUE) if (held := event.resources) else NO_VALUE for event in events])

    def value(self, row: int) -> int | float | None:
        """The amount in a row as a number; None where it has none."""
        value = self.values[row]
        if isinstance(value, str):
            return number(value)
        return value if value == value else None
