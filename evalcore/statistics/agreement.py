"""How far a fallible judge agrees with people: shares with intervals, and Cohen's kappa. Labels of a case are alike, so
cases are clusters of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from evalq.evalcore.statistics.distributions import student_t
from evalq.evalcore.statistics.rates import ALPHA, Interval, Rate, clustered, exact_interval

__all__ = ["Estimate", "Table", "kappa", "share"]

_ADDED = 0.5
"""Cases added to each cell of the table, so that a judge who was never wrong is not known never to be."""


class Table(NamedTuple):
    """Labelled answers by verdict: passed by judge and person, by the judge alone, by the person alone, by none."""

    both: int
    false_pass: int
    false_fail: int
    neither: int

    @property
    def labels(self) -> int:
        """All of them."""
        return sum(self)


class Estimate(NamedTuple):
    """A number and where it lies; None where there is nothing to tell it from."""

    value: float | None
    interval: Interval | None


def share(counts: Sequence[tuple[int, int]], cases: int, alpha: float = ALPHA) -> Estimate:
    """The share of all labels that are (so many, of so many) in each case; ``cases`` is how many could have labels.

    The interval is Clopper and Pearson's where no two labels are of one case, or there is one case; else that of
    clusters. Of one case among several it is worth no more than one label.
    """
    counts = [(hits, of) for hits, of in counts if of]
    if not counts:
        return Estimate(None, None)
    hits, of = (sum(each) for each in zip(*counts, strict=True))
    if cases == 1 or len(counts) == of:
        return Estimate(hits / of, exact_interval(hits, of, alpha))
    if len(counts) == 1:
        return Estimate(hits / of, exact_interval(hits / of, 1.0, alpha))
    return Estimate(hits / of, clustered([Rate(hit / n, n, n) for hit, n in counts], alpha))


def kappa(tables: Sequence[Table], cases: int, alpha: float = ALPHA) -> Estimate:
    """Cohen's kappa (1960) over the labels of all ``tables``, each of a case: agreement beyond that of chance.

    None where everything is in one cell. The interval is Student's by the influence of each case on kappa, half a case
    being added to each cell.
    """
    tables = [table for table in tables if table.labels]
    whole = [sum(column) for column in zip(*tables, strict=True)]
    labels = sum(whole)
    if not labels:
        return Estimate(None, None)
    value = _kappa([count / labels for count in whole])
    # A single case is all there is: its labels are what is sampled.
    units = labels if cases == 1 else len(tables)
    if units < 2:
        return Estimate(value, Interval(-1.0, 1.0))
    # As large as the others are: of a case all of whose labels are alike, one says as much as all.
    case = labels / units
    size = labels + 4 * _ADDED * case
    shares = [(count + _ADDED * case) / size for count in whole]
    influence = _influence(shares)
    if cases == 1:
        moved = math.fsum(count * each**2 for count, each in zip(whole, influence, strict=True))
    else:
        moved = math.fsum(sum(n * each for n, each in zip(table, influence, strict=True)) ** 2 for table in tables)
    moved = moved * units / (units - 1) + _ADDED * case**2 * math.fsum(each**2 for each in influence)
    half = student_t(units - 1, alpha) * math.sqrt(moved) / size
    # Around kappa with one case more of any kind, too: few labels of a kind say little of it.
    more = [[count + case * (cell == at) for at, count in enumerate(whole)] for cell in range(4)]
    ends = [found for counts in (whole, *more) if (found := _kappa([n / sum(counts) for n in counts])) is not None]
    return Estimate(value, Interval(max(-1.0, min(ends) - half), min(1.0, max(ends) + half)))


def _kappa(shares: Sequence[float]) -> float | None:
    agreed, expected, _, _ = _margins(shares)
    # All in one cell: chance alone agrees as often, so that nothing beyond it can be seen.
    return None if expected >= 1.0 else (agreed - expected) / (1.0 - expected)


def _margins(shares: Sequence[float]) -> tuple[float, float, float, float]:
    """Observed and expected agreement, and how often judge and person pass."""
    both, false_pass, false_fail, neither = shares
    judge, person = both + false_pass, both + false_fail
    return both + neither, judge * person + (1 - judge) * (1 - person), judge, person


def _influence(shares: Sequence[float]) -> list[float]:
    """By how much a label more of each cell would move kappa, times the number of labels."""
    agreed, expected, judge, person = _margins(shares)
    rest = 1.0 - expected
    found = []
    for passed, right in ((1, 1), (1, 0), (0, 1), (0, 0)):
        expects = (2 * judge - 1) * (right - person) + (2 * person - 1) * (passed - judge)
        found.append(((passed == right) - agreed) / rest - (1 - agreed) / rest**2 * expects)
    return found
