"""The rows of a chunk, column by column: what its answer is counted from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalq.evalcore.evaluators.cooperation.kinds import kinds_by, unknown_words
from evalq.evalcore.evaluators.cooperation.params import Rules
from evalq.evalcore.evaluators.cooperation.record import Event, number

__all__ = ["EXACT", "NO_VALUE", "Columns", "Gatherer", "Value"]

Value = int | float | str
"""A resource as it was decoded; a short decimal string is still to be made a number."""
EXACT = float(1 << 52)
"""Below it float64 holds every whole amount, and the difference of any two, exactly."""
NO_VALUE = math.nan
"""Stands for a row that gives no amount of the resource: no amount is NaN."""


class _Names(dict[str, int]):
    """The agents in order of their first rows, each with its number."""

    def __missing__(self, agent: str) -> int:
        self[agent] = len(self)
        return len(self) - 1


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows in the order of the log.

    ``turns`` (int64); ``agents`` (the place in ``names`` of each row's agent); ``kinds`` of decision by the rules
    (cooperative is tested before betrayal); ``values`` of the contributed resource (float64, NaN where a row has none),
    of which ``whole`` are ints. The exact ones of those that a float may not hold are in ``large``, by row. ``dry_run``
    is that of the first row that has one. ``unknown`` counts decisions that no rule knows, by word in lower case.
    """

    turns: NDArray[np.int64]
    agents: NDArray[np.int32]
    kinds: NDArray[np.int8]
    values: NDArray[np.float64]
    whole: NDArray[np.bool_]
    large: dict[int, int | float]
    names: tuple[str, ...]
    dry_run: bool | None
    unknown: Mapping[str, int]

    def value(self, row: int) -> int | float | None:
        """The amount in a row; None where it has none."""
        if row in self.large:
            return self.large[row]
        value = float(self.values[row])
        if self.whole[row]:
            return int(value)
        return None if math.isnan(value) else value


class Gatherer:
    """Takes in events, a block at a time, and keeps of them what the rules read."""

    def __init__(self, rules: Rules) -> None:
        self._kinds = kinds_by(rules)
        self._key = rules.resource_key
        self._names = _Names()
        self._parts: list[tuple[NDArray[Any], ...]] = [_part([], [], [], [])]
        self._rows = 0
        self._large: dict[int, int | float] = {}
        self._dry_run: bool | None = None
        self._unknown = Counter[str]()

    def add(self, events: list[Event]) -> None:
        """Add rows, whose resources are a dict."""
        key = self._key
        # Missing, empty or without the key: no snapshot, and the value before it stays (SPEC, section 2).
        self.extend(events, [held.get(key, NO_VALUE) if (held := event.resources) else NO_VALUE for event in events])

    def extend(self, events: list[Event], values: list[Value]) -> None:
        """Add rows, with their amounts of the resource. An event of another class with the same fields will do."""
        amounts: Any = values
        if str in set(map(type, values)):
            amounts = [number(value) if type(value) is str else value for value in values]
        agents = map(self._names.__getitem__, [event.agent for event in events])
        kinds = list(map(self._kinds.__getitem__, [event.decision for event in events]))
        self._unknown.update(unknown_words([event.decision for event in events], kinds))
        part = _part([event.turn for event in events], agents, kinds, amounts)
        # As they came: a float may not hold these, and drops between them have to be exact.
        for row in np.flatnonzero(np.abs(part[3]) >= EXACT).tolist():
            self._large[self._rows + row] = amounts[row]
        self._parts.append(part)
        self._rows += len(events)
        # The log's own word is that of its first row that has one, in whatever blocks the rows came.
        if self._dry_run is None:
            self._dry_run = next((event.dry_run for event in events if event.dry_run is not None), None)

    def columns(self) -> Columns:
        """All rows so far."""
        turns, agents, kinds, values, whole = map(np.concatenate, zip(*self._parts, strict=True))
        return Columns(
            turns, agents, kinds, values, whole, self._large, tuple(self._names), self._dry_run, self._unknown
        )


def _part(
    turns: list[int], agents: Iterable[int], kinds: Iterable[int], values: list[int | float]
) -> tuple[NDArray[Any], ...]:
    rows = len(turns)
    return (
        np.fromiter(turns, np.int64, rows),
        np.fromiter(agents, np.int32, rows),
        np.fromiter(kinds, np.int8, rows),
        np.fromiter(values, np.float64, rows),
        # An amount written as an int stays one: differences of ints are exact at any size.
        np.fromiter([type(value) is int for value in values], np.bool_, rows),
    )
