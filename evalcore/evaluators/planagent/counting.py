"""Spreading rows that are alike over everything they are counted in."""

from __future__ import annotations

from evalq.evalcore.evaluators.planagent.answer import plain_text, shortened
from evalq.evalcore.evaluators.planagent.checks import Checklist
from evalq.evalcore.evaluators.planagent.params import PlanParams
from evalq.evalcore.evaluators.planagent.state import PlanState

__all__ = ["Group", "spread"]

Group = tuple[str, str, Checklist, int | None, int | None, str]
"""What rows have in common: (round, category, checklist, passed checks, speed points, the answer's form types).

Passed checks are None where none were judged, speed points where there are no seconds.
"""

MAX_NAME = 160
"""Characters of a category, or of form types, that are kept."""


def spread(state: PlanState, params: PlanParams, group: Group, rows: int) -> None:
    """Count ``rows`` scored rows that have ``group`` in common; their seconds and LLM scores are not in it."""
    round_, category, checklist, passed, points, forms = group
    score = 0 if passed is None else checklist.points[passed.bit_count()]
    stats = state.round(round_)
    stats.scores[score] += rows
    if points is not None:
        stats.points[points] += rows
    low = rows if score <= params.low_score else 0
    slow = rows if points in params.slow_points else 0
    judged = failed = 0
    if passed is None:
        stats.forced += rows
    else:
        judged = rows * len(checklist.checks)
        failed = judged - rows * passed.bit_count()
        _spread_checks(state, checklist, passed, rows, low)
    # In the order of state.GroupCount.
    counts = [rows, low, slow, judged, failed]
    state.sets.add(checklist.label, counts)
    state.categories.add(shortened(category, MAX_NAME), counts)
    state.forms.add(shortened(f"{checklist.asked_forms or '-'} -> {plain_text(forms) or '-'}", MAX_NAME), counts)


def _spread_checks(state: PlanState, checklist: Checklist, passed: int, rows: int, low: int) -> None:
    for i, (check, name) in enumerate(zip(checklist.checks, checklist.names, strict=True)):
        good = passed >> i & 1
        state.add_kind(check.kind, rows if good else 0, rows)
        if not good:
            state.misses.add(name, [rows, low])
