"""From a log's state to its metrics: the keys and formulas of the specification."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evalq.evalcore.contract.evaluator import Export, InputResult, Request
from evalq.evalcore.errors import UsageError
from evalq.evalcore.evaluators.cooperation.params import CooperationParams
from evalq.evalcore.evaluators.cooperation.state import CooperationState
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.statistics.exact import ExactSum, gini, shannon_bits

__all__ = ["MetricsResult", "exports", "measure", "pretty_json"]


@dataclass
class MetricsResult:
    """The metrics of one log (seed 001, "Metric definitions"), unrounded but for ``contributions``.

    ``average_contribution`` is in units of the resource a drop, ``average_recovery_time`` in turns (None: no recovery),
    ``dialogue_entropy`` in bits; ``contributions`` (4 decimals) and ``message_counts`` are by agent.
    """

    cooperation_rate: float
    average_contribution: float
    average_recovery_time: float | None
    gini_coefficient: float
    dialogue_entropy: float
    contributions: dict[str, float]
    message_counts: dict[str, int]
    metadata: dict[str, Any]

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
        "rules": params.rules.model_dump(mode="json"),
    }


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
