"""Spreading rows that are alike over everything they are counted in."""

from __future__ import annotations

from collections.abc import Iterable

from evalq.evalcore.evaluators.planagent.answer import plain_text, shortened
from evalq.evalcore.evaluators.planagent.checks import Checklist
from evalq.evalcore.evaluators.planagent.params import PlanParams
from evalq.evalcore.evaluators.planagent.state import PlanState, RoundStats

__all__ = ["Group", "Spread"]

Group = tuple[str, str, Checklist, int | None, str]
"""What rows have in common: (round, category, checklist, passed checks, the answer's form types).

Passed checks are None where none were judged.
"""

MAX_NAME = 160
"""Characters of a category, or of form types, that are kept."""


class Spread:
    """Counts scored rows by group into ``state``; their seconds and LLM scores are not in it. `finish` it once.

    A chunk has many groups, of few texts: counts are added up for each combination of texts before a table has them.
    """

    def __init__(self, state: PlanState, params: PlanParams) -> None:
        self._state = state
        self._low = params.low_score
        self._slow = params.slow_points
        self._rounds: dict[str, RoundStats] = {}
        self._texts: dict[tuple[str, str, str, str], list[int]] = {}
        self._judged: dict[tuple[Checklist, int], list[int]] = {}

    def add(self, group: Group, by_points: Iterable[tuple[int | None, int]]) -> None:
        """Count rows of ``group``: so many with these points each, where None are rows without seconds."""
        round_, category, checklist, passed, form = group
        stats = self._rounds.get(round_)
        if stats is None:
            stats = self._rounds[round_] = self._state.round(round_)
        rows = slow = of = failed = 0
        for points, count in by_points:
            rows += count
            if points is not None:
                stats.points[points] += count
                if points in self._slow:
                    slow += count
        # None are rows whose checks were not judged: 0 points, but no failed check (SPEC, section 4).
        score = 0 if passed is None else checklist.points[passed.bit_count()]
        stats.scores[score] += rows
        low = rows if score <= self._low else 0
        if passed is None:
            stats.forced += rows
        else:
            of = rows * len(checklist.checks)
            failed = of - rows * passed.bit_count()
            judged = self._judged.get((checklist, passed))
            if judged is None:
                self._judged[checklist, passed] = [rows, low]
            else:
                judged[0] += rows
                judged[1] += low
        texts = (checklist.label, category, checklist.asked_forms, form)
        counts = self._texts.get(texts)
        if counts is None:
            # In the order of state.GroupCount.
            self._texts[texts] = [rows, low, slow, of, failed]
        else:
            counts[0] += rows
            counts[1] += low
            counts[2] += slow
            counts[3] += of
            counts[4] += failed

    def finish(self) -> None:
        """Put what was added up into the state's tables."""
        state = self._state
        for (label, category, asked, form), counts in self._texts.items():
            state.sets.add(label, counts)
            # Cut here, once a text, instead of once a row; texts that are alike when cut are one in the table.
            state.categories.add(shortened(category, MAX_NAME), counts)
            state.forms.add(shortened(f"{asked or '-'} -> {plain_text(form) or '-'}", MAX_NAME), counts)
        for (checklist, passed), (rows, low) in self._judged.items():
            for i, (check, name) in enumerate(zip(checklist.checks, checklist.names, strict=True)):
                good = passed >> i & 1
                state.add_kind(check.kind, rows if good else 0, rows)
                if not good:
                    state.misses.add(name, [rows, low])
