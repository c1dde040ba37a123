"""The state of a piece of a log, and the metrics of a whole log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import InputResult, State
from evalq.evalcore.evaluators.cooperation.params import CooperationParams
from evalq.evalcore.evaluators.cooperation.score import COOPERATIVE, AgentState, TurnSet
from evalq.evalcore.model.state import Table
from evalq.evalcore.statistics.exact import ExactSum, gini, shannon_bits

AgentRows = tuple[list[int], list[int], list[Any]]
"""Rows of one agent: their turns, kinds of decision, and resource values (a number, or None for no snapshot)."""


class CooperationState(State):
    """Counts over all rows, and the state of every agent.

    ``first_turn`` and ``last_turn`` are those of the first and the last row. ``distinct`` counts turns while the rows
    are ``ordered`` (their turns never decrease), ``turns`` otherwise. ``dry_run`` comes from the first row that has
    one. ``missing`` are lines that killed their process. ``unknown`` counts rows by decisions that no rule knows,
    ``snapshots`` rows that have the resource. ``resorted`` marks a state that was computed from sorted rows.
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
    def of(cls, turns: list[int], groups: Iterable[tuple[str, AgentRows]], dry_run: bool | None) -> CooperationState:
        """The state of rows: their ``turns`` in order, and the same rows agent by agent."""
        state = cls(rows=len(turns), dry_run=dry_run)
        if not turns:
            return state
        different = set(turns)
        state.first_turn, state.last_turn = turns[0], turns[-1]
        # In turn order, the distinct turns of two pieces add up, except for one at the cut. Out of order, only the set
        # can count them.
        state.ordered = turns == sorted(turns)
        state.distinct = len(different) if state.ordered else 0
        state.turns = TurnSet.of(different)
        for agent, (agent_turns, kinds, values) in groups:
            state.cooperative += kinds.count(COOPERATIVE)
            state.agents[agent] = AgentState.of(agent_turns, kinds, values)
        return state

    def merge(self, later: CooperationState) -> None:
        """Add the rows that follow these, in place."""
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
        """Canonical JSON, with the table of words cut to its limit."""
        self.unknown.trim()
        return super().to_wire()

    @property
    def in_turn_order(self) -> bool:
        """Whether the turns of the log's rows never decrease."""
        return self.ordered and not self.resorted

    @property
    def needs_sort(self) -> bool:
        """Whether an agent's numbers, or the number of turns, need sorted rows."""
        return not self.ordered and (self.turns.full or not all(agent.ordered for agent in self.agents.values()))

    @property
    def total_turns(self) -> int:
        """Distinct turns; wrong while ``needs_sort``."""
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


# The metrics of a log's state, with the keys and formulas of the specification.

_WORDS = 100
"""How many unknown decisions are listed, the most frequent first."""


@dataclass
class MetricsResult:
    """The metrics of one log (seed 001, "Metric definitions"), unrounded but for ``contributions``.

    ``average_contribution`` is in units of the resource a drop, ``average_recovery_time`` in turns (None: no recovery),
    ``dialogue_entropy`` in bits; ``contributions`` (4 decimals) and ``message_counts`` are by agent. In addition to the
    specification: ``unknown_decisions`` counts rows by a decision that no rule knows (the 100 most frequent),
    ``snapshots`` rows that have the resource.
    """

    cooperation_rate: float
    average_contribution: float
    average_recovery_time: float | None
    gini_coefficient: float
    dialogue_entropy: float
    contributions: dict[str, float]
    message_counts: dict[str, int]
    metadata: dict[str, Any]
    unknown_decisions: dict[str, int] = field(default_factory=dict)
    snapshots: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The metrics as plain data: the content of metrics.json."""
        return asdict(self)


def measure(result: InputResult[CooperationState], params: CooperationParams) -> MetricsResult:
    """The metrics of one log whose state is settled."""
    state = result.state
    agents = [state.agents[name] for name in sorted(state.agents)]
    drops = sum(agent.drops for agent in agents)
    recoveries = sum(agent.recoveries for agent in agents)
    totals = {name: state.agents[name].total() for name in sorted(state.agents)}
    contributed = ExactSum()
    for agent in agents:
        contributed.merge(agent.contributed or ExactSum())
    return MetricsResult(
        cooperation_rate=state.cooperative / state.rows if state.rows else 0.0,
        average_contribution=contributed.mean(drops) if drops else 0.0,
        average_recovery_time=sum(agent.recovery_turns for agent in agents) / recoveries if recoveries else None,
        gini_coefficient=gini(totals.values()),
        dialogue_entropy=shannon_bits(agent.rows for agent in agents),
        contributions={name: round(total, 4) for name, total in totals.items()},
        message_counts={name: state.agents[name].rows for name in totals},
        metadata=_metadata(result, params),
        unknown_decisions={word: counts[0] for word, counts in state.unknown.top(_WORDS)},
        snapshots=state.snapshots,
    )


def _metadata(result: InputResult[CooperationState], params: CooperationParams) -> dict[str, Any]:
    state = result.state
    return {
        "total_events": state.rows,
        "total_turns": state.total_turns,
        "agents": sorted(state.agents),
        "dry_run": state.dry_run if params.dry_run is None else params.dry_run,
        "log_path": result.given,
        "out_of_order": not state.in_turn_order,
        "skipped_lines": result.tally.listed.total,
        "rules_occur": rules_occur(state),
        "unknown_rows": state.unknown.sum(),
        "repeated_rows": sum(agent.repeats for agent in state.agents.values()),
        "first_repeated": _first_repeated(state),
        "rules": params.rules.model_dump(mode="json"),
    }


def rules_occur(state: CooperationState) -> dict[str, bool]:
    """Whether any ``decision`` of a settled log is a word of the rules, and whether any row has their ``resource``."""
    decided = state.cooperative > 0 or any(agent.betrayed for agent in state.agents.values())
    return {"decision": decided, "resource": state.snapshots > 0}


def _first_repeated(state: CooperationState) -> dict[str, Any] | None:
    """The (turn, agent) of the lowest turn that has two rows of one agent."""
    twice = [(agent.repeated_turn, name) for name, agent in state.agents.items() if agent.repeated_turn is not None]
    return dict(zip(("turn", "agent"), min(twice), strict=True)) if twice else None


def pretty_json(value: Any) -> str:
    """Indented canonical JSON; characters that UTF-8 cannot carry are escaped."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace").decode()
