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

# Nearer turns than this have waits whose sum over a chunk no int64 and no float64 rounds.
_FAR = 1 << 31


def count(rows: Columns) -> CooperationState:
    """The state of a chunk's rows."""
    turns = rows.turns
    if not len(turns):
        return CooperationState(dry_run=rows.dry_run)
    # Python compares and subtracts ints of any size exactly, so large ones are no matter for floats.
    if rows.large or not -_FAR < turns.min() <= turns.max() < _FAR:
        return count_by_rows(rows)
    state = CooperationState(rows=len(turns), dry_run=rows.dry_run)
    state.first_turn, state.last_turn = int(turns[0]), int(turns[-1])
    state.cooperative = int((rows.kinds == COOPERATIVE).sum())
    state.ordered = not bool((turns[1:] < turns[:-1]).any())
    changes = np.concatenate(([True], turns[1:] != turns[:-1]))
    different = turns[changes] if state.ordered else np.unique(turns)
    state.distinct = len(different) if state.ordered else 0
    state.turns = TurnSet.of_sorted(different)
    state.agents = dict(zip(rows.names, _Agents(rows).states(), strict=True))
    return _with_words(state, rows)


def count_by_rows(rows: Columns) -> CooperationState:
    """The same, agent by agent and row by row: for numbers of any size, and what the other way must equal."""
    own: list[list[int]] = [[] for _ in rows.names]
    for row, agent in enumerate(rows.agents.tolist()):
        own[agent].append(row)
    turns, kinds = rows.turns.tolist(), rows.kinds.tolist()
    groups = (
        (name, ([turns[row] for row in at], [kinds[row] for row in at], [rows.value(row) for row in at]))
        for name, at in zip(rows.names, own, strict=True)
    )
    return _with_words(CooperationState.of(turns, groups, rows.dry_run), rows)


def _with_words(state: CooperationState, rows: Columns) -> CooperationState:
    """``state`` with the words that no rule knows, and the rows that have the resource."""
    state.snapshots = int((~np.isnan(rows.values)).sum())
    state.add_words(rows.unknown)
    return state


class _Agents:
    """The rows sorted by agent, in the order of the log within each; ``starts`` is where each agent's begin."""

    def __init__(self, rows: Columns) -> None:
        # numpy sorts the smaller integers in linear time.
        agents = rows.agents.astype(np.min_scalar_type(len(rows.names)))
        self._rows = rows
        self._order = np.argsort(agents, kind="stable")
        self._agents = agents[self._order]
        self._starts = np.searchsorted(self._agents, np.arange(len(rows.names) + 1))
        self._turns = rows.turns[self._order]
        self._kinds = rows.kinds[self._order]
        self._values = rows.values[self._order]

    def states(self) -> list[AgentState]:
        """The state of each agent."""
        same = self._agents[1:] == self._agents[:-1]
        again = same & (self._turns[1:] == self._turns[:-1])
        repeats = np.bincount(self._agents[1:][again], minlength=len(self._starts) - 1).tolist()
        # Turns do not go back within an agent that counts here, so that its first one is the lowest.
        twice: dict[int, int] = {}
        for agent, turn in zip(self._agents[1:][again].tolist(), self._turns[1:][again].tolist(), strict=True):
            twice.setdefault(agent, turn)
        back = set(self._agents[1:][same & (self._turns[1:] < self._turns[:-1])].tolist())
        starts = self._starts.tolist()
        firsts, lasts = self._turns[self._starts[:-1]].tolist(), self._turns[self._starts[1:] - 1].tolist()
        states = [AgentState(end - start) for start, end in pairwise(starts)]
        for agent, (state, first, last) in enumerate(zip(states, firsts, lasts, strict=True)):
            state.first_turn, state.last_turn = first, last
            state.repeats, state.repeated_turn = repeats[agent], twice.get(agent)
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
