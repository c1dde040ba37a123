"""Cohen's kappa: its interval by another computation, and the large-sample one of the literature."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from evalq.evalcore.statistics.agreement import AgreementTable, kappa
from tests.unit.statistics.intervals import quantile_of_t

_STEP = 1e-5
_cell = st.integers(0, 4)


def kappa_of(cells: NDArray[np.float64]) -> float:
    """Cohen's (1960), of a square whose rows are the judge's verdicts and whose columns are the person's; nan of one
    cell alone.
    """
    shares = cells.reshape(2, 2) / cells.sum()
    by_chance = float(shares.sum(axis=1) @ shares.sum(axis=0))
    return (float(np.trace(shares)) - by_chance) / (1 - by_chance) if by_chance < 1 else math.nan


def interval_of(tables: Sequence[Sequence[int]], cases: int) -> tuple[float, float]:
    """Written from docs/reference/checks-statistics.md, with the influences as differences of kappa itself."""
    every = np.array([table for table in tables if sum(table)], float)
    whole = every.sum(axis=0)
    if cases == 1:
        every = np.repeat(np.eye(4), whole.astype(int), axis=0)
    units = len(every)
    case = whole.sum() / units
    padded = whole + case / 2
    shares = padded / padded.sum()
    influence = np.array(
        [
            (kappa_of(shares + _STEP * (cell - shares)) - kappa_of(shares - _STEP * (cell - shares))) / (2 * _STEP)
            for cell in np.eye(4)
        ]
    )
    squares = units / (units - 1) * ((every @ influence) ** 2).sum() + (case * influence) @ (case * influence) / 2
    half = quantile_of_t(units - 1) * math.sqrt(squares) / padded.sum()
    around = [kappa_of(whole), *(kappa_of(whole + case * cell) for cell in np.eye(4))]
    return max(-1.0, np.nanmin(around) - half), min(1.0, np.nanmax(around) + half)


@given(st.lists(st.tuples(_cell, _cell, _cell, _cell), min_size=1, max_size=12), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
@example([(20, 5, 10, 15)], 0)
@example([(20, 5, 10, 15)], 1)
@example([(4, 0, 1, 4), (3, 1, 0, 4)], 0)
@example([(3, 0, 1, 2), (4, 1, 0, 0), (0, 0, 0, 2), (1, 0, 0, 1), (3, 1, 0, 4), (2, 0, 0, 2)], 0)
@example([(1, 0, 0, 0), (0, 0, 0, 1), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 0, 1), (0, 0, 0, 1)] * 4, 2)
def test_the_interval_of_kappa_is_that_of_its_definition(tables: list[tuple[int, int, int, int]], more: int) -> None:
    """Of one case by its labels, of several by the cases that have labels; one unit alone says nothing."""
    cases = len(tables) + more
    units = sum(map(sum, tables)) if cases == 1 else sum(any(table) for table in tables)
    found = kappa([AgreementTable(*table) for table in tables], cases).interval
    if units < 2:
        assert found == ((-1.0, 1.0) if units else None)
    else:
        assert found == pytest.approx(interval_of(tables, cases), abs=1e-6)


@pytest.mark.parametrize("shares", [(0.4, 0.1, 0.2, 0.3), (0.7, 0.02, 0.08, 0.2), (0.05, 0.15, 0.05, 0.75)])
def test_of_very_many_labels_the_standard_error_is_the_textbooks(shares: tuple[float, float, float, float]) -> None:
    """Fleiss, Cohen and Everitt (1969), equation 13; of ten million labels what few add is no matter."""
    labels = 10_000_000
    p = np.array(shares).reshape(2, 2)
    judge, person = p.sum(axis=1), p.sum(axis=0)
    agreed, chance = np.trace(p), judge @ person
    same = sum(p[i, i] * ((1 - chance) - (person[i] + judge[i]) * (1 - agreed)) ** 2 for i in (0, 1))
    other = (1 - agreed) ** 2 * sum(p[i, j] * (person[i] + judge[j]) ** 2 for i, j in ((0, 1), (1, 0)))
    variance = (same + other - (agreed * chance - 2 * chance + agreed) ** 2) / (labels * (1 - chance) ** 4)
    found = kappa([AgreementTable(*(round(share * labels) for share in shares))], 1).interval
    assert found is not None
    assert (found.high - found.low) / 2 == pytest.approx(1.959964 * math.sqrt(variance), rel=2e-3)
