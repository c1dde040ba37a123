"""From columns to a state by whole columns at a time; what is rare in them is counted row by row, to the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from evalq.evalcore.evaluators.cooperation.agents import BETRAYAL, COOPERATIVE, AgentState, exact
from evalq.evalcore.evaluators.cooperation.columns import Columns
from evalq.evalcore.evaluators.cooperation.state import CooperationState
from evalq.evalcore.evaluators.cooperation.turns import TurnSet

__all__ = ["count", "count_by_rows"]

# Within these limits float64 holds every amount and every difference of two whole ones exactly, and int64 every
# sum of waits, whatever is in a chunk.
_EXACT = float(1 << 52)
_FAR = 1 << 31

Turns = NDArray[np.int64]


def count(rows: Columns) -> CooperationState:
    """The state of a chunk's rows."""
    if not rows.turns:
        return CooperationState(dry_run=rows.dry_run)
    turns = np.array(rows.turns, dtype=np.int64)
    lowest, highest = int(turns.min()), int(turns.max())
    values = _floats(rows)
    if values is None or not -_FAR < lowest <= highest < _FAR:
        return count_by_rows(rows)
    state = CooperationState(rows=len(turns), dry_run=rows.dry_run)
    state.first_turn, state.last_turn = rows.turns[0], rows.turns[-1]
    state.cooperative = rows.kinds.count(COOPERATIVE)
    steps = turns[1:] != turns[:-1]
    state.ordered = not bool((turns[1:] < turns[:-1]).any())
    different = turns[np.concatenate(([True], steps))] if state.ordered else np.unique(turns)
    state.distinct = len(different) if state.ordered else 0
    state.turns = TurnSet.of_sorted(different)
    state.agents = dict(zip(rows.names, _Agents(rows, turns, values).states(), strict=True))
    return state


def count_by_rows(rows: Columns) -> CooperationState:
    """The same, agent by agent and row by row: for numbers of any size, and what the other way is held to."""
    own: list[list[int]] = [[] for _ in rows.names]
    for row, agent in enumerate(rows.agents):
        own[agent].append(row)
    groups = (
        (name, ([rows.turns[row] for row in at], [rows.kinds[row] for row in at], [rows.value(row) for row in at]))
        for name, at in zip(rows.names, own, strict=True)
    )
    return CooperationState.of(rows.turns, groups, rows.dry_run)


def _floats(rows: Columns) -> NDArray[np.float64] | None:
    """The amounts, NaN where there is none; None where one may not be what it is as a float.

    Python compares an int with a float exactly and subtracts it rounded, so a large one is not a matter for floats.
    """
    values = np.fromiter(rows.values, np.float64, len(rows.values))
    if len(values) and np.nanmax(np.abs(values), initial=0.0) >= _EXACT:
        return None
    return values


class _Agents:
    """The rows sorted by agent, in the order of the log within each; ``starts`` is where each agent's begin."""

    def __init__(self, rows: Columns, turns: Turns, values: NDArray[np.float64]) -> None:
        agents = np.array(rows.agents, dtype=np.min_scalar_type(len(rows.names)))
        self._rows = rows
        self._order = np.argsort(agents, kind="stable")
        self._agents = agents[self._order]
        self._starts = np.searchsorted(self._agents, np.arange(len(rows.names) + 1))
        self._turns = turns[self._order]
        self._kinds = np.array(rows.kinds, dtype=np.int8)[self._order]
        self._values = values[self._order]

    def states(self) -> list[AgentState]:
        """The state of each agent."""
        same = self._agents[1:] == self._agents[:-1]
        back = set(self._agents[1:][same & (self._turns[1:] < self._turns[:-1])].tolist())
        starts = self._starts.tolist()
        firsts, lasts = self._turns[self._starts[:-1]].tolist(), self._turns[self._starts[1:] - 1].tolist()
        states = [AgentState(end - start) for start, end in pairwise(starts)]
        for state, first, last in zip(states, firsts, lasts, strict=True):
            state.first_turn, state.last_turn = first, last
        self._contribute(states)
        self._decide(states)
        for agent in back:
            states[agent] = AgentState(states[agent].rows, ordered=False)
        return states

    def _contribute(self, states: list[AgentState]) -> None:
        """First and last value of each agent, and the drops between."""
        known = np.flatnonzero(~np.isnan(self._values))
        values, agents = self._values[known], self._agents[known]
        falls = values[:-1] - values[1:]
        falling = np.flatnonzero((falls > 0) & (agents[1:] == agents[:-1]))
        drops, owners, rows = falls[falling].tolist(), agents[falling], self._order[known]
        bounds, cuts = self._bounds(agents), self._bounds(owners)
        for state, (start, end), (first, last) in zip(states, bounds, cuts, strict=True):
            if start < end:
                state.first_value = self._rows.value(int(rows[start]))
                state.last_value = self._rows.value(int(rows[end - 1]))
            if first < last:
                state.drops, state.contributed = last - first, exact(drops[first:last])

    def _decide(self, states: list[AgentState]) -> None:
        """What each agent's cooperative rows and betrayals come to."""
        decided = np.flatnonzero(self._kinds)
        kinds, turns, agents = self._kinds[decided], self._turns[decided], self._agents[decided]
        waits = turns[1:] - turns[:-1]
        settled = (kinds[1:] == COOPERATIVE) & (kinds[:-1] == BETRAYAL) & (agents[1:] == agents[:-1]) & (waits > 0)
        many = len(states)
        recoveries = np.bincount(agents[1:][settled], minlength=many).tolist()
        # Summed as floats, far below where those are no longer exact.
        recovery_turns = np.bincount(agents[1:][settled], waits[settled], minlength=many).tolist()
        betrayals = np.bincount(agents[kinds == BETRAYAL], minlength=many).tolist()
        for agent, (state, (start, end)) in enumerate(zip(states, self._bounds(agents), strict=True)):
            if start == end:
                continue
            state.opening = int(turns[start]) if kinds[start] == COOPERATIVE else None
            state.pending = int(turns[end - 1]) if kinds[end - 1] == BETRAYAL else None
            state.betrayed = betrayals[agent] > 0
            state.recoveries, state.recovery_turns = recoveries[agent], int(recovery_turns[agent])

    def _bounds(self, agents: NDArray[np.unsignedinteger]) -> Iterator[tuple[int, int]]:
        """Where each agent's entries begin and end in ``agents``, which ascend."""
        return pairwise(np.searchsorted(agents, np.arange(len(self._starts))).tolist())
