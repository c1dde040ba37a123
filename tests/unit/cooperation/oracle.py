"""The metrics straight from the text of the specification: the whole log in memory, slow and obvious."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

COOPERATIVE = {"join", "cooperate", "contribute", "support", "assist"}
BETRAYAL = {"defect", "betray", "steal", "sabotage"}

Rows = list[dict[str, Any]]


def plain_number(value: Any) -> int | float:
    """A number as it is, or the one a string is."""
    if not isinstance(value, str):
        assert isinstance(value, int | float)
        return value
    return float(value) if any(c in value for c in ".eE") else int(value)


def oracle(rows: Rows, key: str = "stone") -> dict[str, Any]:
    """The specification's metrics of a log's rows, less the metadata that is not about them."""
    turns = [int(plain_number(row["turn"])) for row in rows]
    out_of_order = any(turns[i] > turns[i + 1] for i in range(len(turns) - 1))
    if out_of_order:
        rows = sorted(rows, key=lambda row: (int(plain_number(row["turn"])), row["agent"]))
    agents = sorted({row["agent"] for row in rows})
    drops = {agent: _drops(_of(rows, agent), key) for agent in agents}
    all_drops = [drop for agent in agents for drop in drops[agent]]
    waits = [wait for agent in agents for wait in _waits(_of(rows, agent))]
    totals = {agent: float(sum(map(Fraction, drops[agent]), Fraction())) for agent in agents}
    counts = {agent: len(_of(rows, agent)) for agent in agents}
    return {
        "cooperation_rate": sum(_decision(row) in COOPERATIVE for row in rows) / len(rows),
        "average_contribution": float(sum(map(Fraction, all_drops)) / len(all_drops)) if all_drops else 0.0,
        "average_recovery_time": float(Fraction(sum(waits), len(waits))) if waits else None,
        "gini_coefficient": _gini(sorted(totals.values())),
        "dialogue_entropy": _entropy(list(counts.values())),
        "contributions": {agent: round(totals[agent], 4) for agent in agents},
        "message_counts": counts,
        "total_events": len(rows),
        "total_turns": len(set(turns)),
        "agents": agents,
        "out_of_order": out_of_order,
    }


def _of(rows: Rows, agent: str) -> Rows:
    return [row for row in rows if row["agent"] == agent]


def _decision(row: dict[str, Any]) -> str:
    return (row.get("decision") or "").lower()


def _drops(rows: Rows, key: str) -> list[int | float]:
    previous, drops = None, []
    for row in rows:
        resources = row.get("resources")
        if not isinstance(resources, dict) or key not in resources:
            continue
        now = plain_number(resources[key])
        if previous is not None and previous - now > 0:
            drops.append(previous - now)
        previous = now
    return drops


def _waits(rows: Rows) -> list[int]:
    pending, waits = None, []
    for row in rows:
        turn = int(plain_number(row["turn"]))
        if _decision(row) in COOPERATIVE:
            if pending is not None and turn - pending > 0:
                waits.append(turn - pending)
            pending = None
        elif _decision(row) in BETRAYAL:
            pending = turn
    return waits


def _gini(ascending: list[float]) -> float:
    n, total = len(ascending), sum(map(Fraction, ascending))
    if total == 0:
        return 0.0
    weighted = sum(Fraction(x) * i for i, x in enumerate(ascending, start=1))
    return float(2 * weighted / (n * total) - Fraction(n + 1, n))


def _entropy(counts: list[int]) -> float:
    if len(counts) < 2:
        return 0.0
    return sum(-(c / sum(counts)) * math.log2(c / sum(counts)) for c in counts)
