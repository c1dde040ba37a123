"""From a log's state to its metrics: the keys and formulas of the specification."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from evalq.evalcore.contract.evaluator import Export, InputResult, Request
from evalq.evalcore.errors import UsageError
from evalq.evalcore.evaluators.cooperation.params import CooperationParams
from evalq.evalcore.evaluators.cooperation.state import CooperationState
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.statistics.exact import ExactSum, gini, shannon_bits

__all__ = ["MetricsResult", "exports", "measure", "pretty_json", "rules_occur"]

_WORDS = 100
"""How many unknown decisions are listed, the most frequent first."""


@dataclass
class MetricsResult:
    """The metrics of one log (seed 001, "Metric definitions"), unrounded but for ``contributions``.

    ``average_contribution`` is in units of the resource a drop, ``average_recovery_time`` in turns (None: no recovery),
    ``dialogue_entropy`` in bits; ``contributions`` (4 decimals) and ``message_counts`` are by agent. Beside the
    specification's: ``unknown_decisions`` counts rows by a decision that no rule knows (the 100 most frequent),
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
    given = ExactSum()
    for agent in agents:
        given.merge(agent.contributed or ExactSum())
    return MetricsResult(
        cooperation_rate=state.cooperative / state.rows if state.rows else 0.0,
        average_contribution=given.mean(drops) if drops else 0.0,
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
    """Whether any ``decision`` of a settled log is a word of the rules, and any row has their ``resource``."""
    decided = state.cooperative > 0 or any(agent.betrayed for agent in state.agents.values())
    return {"decision": decided, "resource": state.snapshots > 0}


def _first_repeated(state: CooperationState) -> dict[str, Any] | None:
    """The (turn, agent) of the lowest turn that has two rows of one agent."""
    twice = [(own.repeated_turn, name) for name, own in state.agents.items() if own.repeated_turn is not None]
    return dict(zip(("turn", "agent"), min(twice), strict=True)) if twice else None


def pretty_json(value: Any) -> str:
    """JSON for people to read, one form for one value; what UTF-8 cannot carry stays escaped."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace").decode()


def exports(report: Mapping[str, Json], request: Request) -> list[Export]:
    """metrics.json, where ``--out`` or a configuration asks for it. Raises UsageError where there are several logs."""
    out = request.options.get("out")
    if not out:
        return []
    logs = list(report["results"]["logs"].values())
    if len(logs) != 1:
        raise UsageError(f"{out} takes the metrics of one log, but there are {len(logs)}")
    return [Export(Path(out), pretty_json(logs[0]))]
