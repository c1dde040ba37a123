"""What a piece of a log adds up to; the pieces of a log, merged in order, are the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import State
from evalq.evalcore.evaluators.cooperation.agents import COOPERATIVE, AgentState
from evalq.evalcore.evaluators.cooperation.turns import TurnSet
from evalq.evalcore.model.state import Table

__all__ = ["Columns", "CooperationState"]

Columns = tuple[list[int], list[int], list[Any]]
"""Rows of one agent: their turns, kinds of decision, and resource values (a number, or None for no snapshot)."""


class CooperationState(State):
    """Counts over all rows, and every agent's own state.

    ``first_turn`` and ``last_turn`` are those of the first and the last row; turns are counted by ``distinct`` while
    the rows are ``ordered`` (their turns never decrease), by ``turns`` otherwise. ``dry_run`` is the first row's that
    has one. ``missing`` are lines whose events could not be read.
    ``unknown`` counts rows by a decision that no rule knows, ``snapshots`` rows that have the resource.
    ``resorted`` marks a state that was computed anew from the sorted rows.
    """

    rows: int = 0
    cooperative: int = 0
    agents: dict[str, AgentState] = msgspec.field(default_factory=dict)
    ordered: bool = True
    first_turn: int = 0
    last_turn: int = 0
    distinct: int = 0
    turns: TurnSet = msgspec.field(default_factory=TurnSet)
    dry_run: bool | None = None
    resorted: bool = False
    missing: list[int] = msgspec.field(default_factory=list)
    unknown: Table = msgspec.field(default_factory=Table)
    snapshots: int = 0

    @classmethod
    def of(cls, turns: list[int], groups: Iterable[tuple[str, Columns]], dry_run: bool | None) -> CooperationState:
        """The state of rows: their ``turns`` in order, and the same rows agent by agent."""
        state = cls(rows=len(turns), dry_run=dry_run)
        if not turns:
            return state
        different = set(turns)
        state.first_turn, state.last_turn = turns[0], turns[-1]
        # In turn order the distinct turns of two pieces just add up, but for one at the cut; out of order only the set
        # can tell.
        state.ordered = turns == sorted(turns)
        state.distinct = len(different) if state.ordered else 0
        state.turns = TurnSet.of(different)
        for agent, (own, kinds, values) in groups:
            state.cooperative += kinds.count(COOPERATIVE)
            state.agents[agent] = AgentState.of(own, kinds, values)
        return state

    def merge(self, later: CooperationState) -> None:
        """Take in the rows that follow behind these, in place."""
        self.missing += later.missing
        if not later.rows:
            return
        self._join_turns(later)
        self.rows += later.rows
        self.cooperative += later.cooperative
        self.unknown.merge(later.unknown)
        self.snapshots += later.snapshots
        self.resorted = self.resorted or later.resorted
        if self.dry_run is None:
            self.dry_run = later.dry_run
        for agent, theirs in later.agents.items():
            mine = self.agents.get(agent)
            if mine is None:
                self.agents[agent] = theirs
            else:
                mine.merge(theirs)

    def add_words(self, words: Mapping[str, int]) -> None:
        """Count rows by decisions that no rule knows."""
        for word, rows in words.items():
            self.unknown.add(word, [rows])

    def to_wire(self) -> bytes:
        """Canonical JSON, words at their kept number."""
        self.unknown.trim()
        return super().to_wire()

    @property
    def in_turn_order(self) -> bool:
        """Whether the log's own rows never went back a turn."""
        return self.ordered and not self.resorted

    @property
    def needs_sort(self) -> bool:
        """Whether only the sorted rows give an agent's numbers, or how many turns there are."""
        return not self.ordered and (self.turns.full or not all(agent.ordered for agent in self.agents.values()))

    @property
    def total_turns(self) -> int:
        """Distinct turns; of no use while ``needs_sort``."""
        return self.distinct if self.ordered else self.turns.count()

    def _join_turns(self, later: CooperationState) -> None:
        if not self.rows:
            self.ordered, self.first_turn, self.distinct = later.ordered, later.first_turn, later.distinct
        elif self.ordered and later.ordered and self.last_turn <= later.first_turn:
            # A turn that continues across the cut is in both counts.
            self.distinct += later.distinct - (self.last_turn == later.first_turn)
        else:
            self.ordered, self.distinct = False, 0
        self.last_turn = later.last_turn
        self.turns.merge(later.turns)
