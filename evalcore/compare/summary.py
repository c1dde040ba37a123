"""A run as a comparison sees it: how often each case was answered, and what its answers add up to."""

from __future__ import annotations

import msgspec

from evalq.evalcore.contract.measures import Measure, Sighting

__all__ = ["CaseSummary", "Column", "Summing"]


class Column(msgspec.Struct):
    """One measure over all cases, each list in the order of `CaseSummary.ids`.

    ``count`` is how many answers have a value, ``total`` the sum of those, ``squares`` the sum of their squares. For
    pass/fail both sums are the number of passes.
    """

    count: list[int] = []
    total: list[float] = []
    squares: list[float] = []


class CaseSummary(msgspec.Struct):
    """All that `compare` needs of a run: cases sorted by id, with a column for each measure.

    ``missing`` counts the records of a case that have no answer (errors, dead ones, unanswered calls); ``unattributed``
    those whose case nobody can tell. ``measures`` says what the columns are.
    """

    measures: list[Measure]
    ids: list[str] = []
    missing: list[int] = []
    columns: dict[str, Column] = {}
    unattributed: int = 0


class Summing:
    """Adds up sightings, in whatever order they come, to a `CaseSummary`; memory grows with the number of cases."""

    def __init__(self, measures: tuple[Measure, ...]) -> None:
        self._measures = measures
        self._width = 1 + 3 * len(measures)
        self._cases: dict[str, list[float]] = {}
        self._unattributed = 0

    def add(self, sighting: Sighting) -> None:
        """Count one record."""
        if not sighting.case:
            self._unattributed += not sighting.values
            return
        row = self._cases.get(sighting.case)
        if row is None:
            row = self._cases[sighting.case] = [0] * self._width
        if not sighting.values:
            row[0] += 1
        for at, value in enumerate(sighting.values):
            if value is not None:
                start = 1 + 3 * at
                row[start] += 1
                row[start + 1] += value
                row[start + 2] += value * value

    def summary(self) -> CaseSummary:
        """What was added, sorted by case."""
        ids = sorted(self._cases)
        rows = [self._cases[case] for case in ids]
        columns = {
            measure.name: Column(
                [int(row[1 + 3 * at]) for row in rows],
                [row[2 + 3 * at] for row in rows],
                [row[3 + 3 * at] for row in rows],
            )
            for at, measure in enumerate(self._measures)
        }
        missing = [int(row[0]) for row in rows]
        return CaseSummary(list(self._measures), ids, missing, columns, self._unattributed)
