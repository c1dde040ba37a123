"""Spreading rows that are alike over everything they are counted in."""

from __future__ import annotations

from collections.abc import Mapping

from evalq.evalcore.evaluators.planagent.answer import plain_text, shortened
from evalq.evalcore.evaluators.planagent.checks import Checklist
from evalq.evalcore.evaluators.planagent.params import PlanParams
from evalq.evalcore.evaluators.planagent.state import PlanState

__all__ = ["Group", "Groups", "spread"]

Group = tuple[str, str, Checklist, int | None, str]
"""What rows have in common: (round, category, checklist, passed checks, the answer's form types).

Passed checks are None where none were judged.
"""
Groups = dict[Group, dict[int | None, int]]
"""How many rows there are of each group, by their speed points: None where there are no seconds."""

MAX_NAME = 160
"""Characters of a category, or of form types, that are kept."""


def spread(state: PlanState, params: PlanParams, groups: Groups) -> None:
    """Count the scored rows of ``groups``; their seconds and LLM scores are not in it."""
    # Few texts stand in many groups, and each text of a table is added once.
    sets: dict[str, list[int]] = {}
    categories: dict[str, list[int]] = {}
    forms: dict[tuple[str, str], list[int]] = {}
    judged: dict[tuple[Checklist, int], list[int]] = {}
    slow_points = params.slow_points
    for (round_, category, checklist, passed, form), by_points in groups.items():
        score = 0 if passed is None else checklist.points[passed.bit_count()]
        rows = _add_to_round(state, round_, score, by_points)
        low = rows if score <= params.low_score else 0
        slow = sum([count for points, count in by_points.items() if points in slow_points])
        of = failed = 0
        if passed is None:
            state.round(round_).forced += rows
        else:
            of = rows * len(checklist.checks)
            failed = of - rows * passed.bit_count()
            known = judged.setdefault((checklist, passed), [0, 0])
            known[0] += rows
            known[1] += low
        for counts in (
            sets.setdefault(checklist.label, [0] * 5),
            categories.setdefault(category, [0] * 5),
            forms.setdefault((checklist.asked_forms, form), [0] * 5),
        ):
            # In the order of state.GroupCount; written out, since a chunk has many groups.
            counts[0] += rows
            counts[1] += low
            counts[2] += slow
            counts[3] += of
            counts[4] += failed
    for label, counts in sets.items():
        state.sets.add(label, counts)
    for category, counts in categories.items():
        state.categories.add(shortened(category, MAX_NAME), counts)
    for (asked, form), counts in forms.items():
        state.forms.add(shortened(f"{asked or '-'} -> {plain_text(form) or '-'}", MAX_NAME), counts)
    for (checklist, passed), (rows, low) in judged.items():
        _spread_checks(state, checklist, passed, rows, low)


def _add_to_round(state: PlanState, round_: str, score: int, by_points: Mapping[int | None, int]) -> int:
    stats = state.round(round_)
    rows = 0
    for points, count in by_points.items():
        rows += count
        if points is not None:
            stats.points[points] += count
    stats.scores[score] += rows
    return rows


def _spread_checks(state: PlanState, checklist: Checklist, passed: int, rows: int, low: int) -> None:
    for i, (check, name) in enumerate(zip(checklist.checks, checklist.names, strict=True)):
        good = passed >> i & 1
        state.add_kind(check.kind, rows if good else 0, rows)
        if not good:
            state.misses.add(name, [rows, low])
