"""Scores without any spread: what is decided on them does not go by which decimals they are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.compare.comparison import compare
from evalq.evalcore.compare.intervals import level_of, t_tail
from evalq.evalcore.compare.pairs import Side
from evalq.evalcore.contract.measures import Measure
from tests.unit.compare.made import SCORE, scores

FALLS = [
    ([0.75] * 12, 0.0625),
    ([0.7] * 12, 0.0625),
    ([0.7, 0.8, 0.9, 0.3, 0.2, 0.1] * 2, 0.0625),
    ([0.1, 0.7, 0.3] * 4, 0.01),
]


@pytest.mark.parametrize(("values", "fall"), FALLS)
@pytest.mark.parametrize("repeats", [1, 3, 5, 1000])
def test_a_change_without_spread_is_judged_as_if_a_loss_and_a_win_had_been_seen(
    values: list[float], fall: float, repeats: int
) -> None:
    """By GATE's rule for V = 0, whatever rounding leaves of equal decimals: that was as good as certain."""
    base, cand = (scores([[each - by] * repeats for each in values]) for by in (0.0, fall))
    found = compare(base, cand, SCORE, 0.05).observed
    assert found is not None
    answers = 12 * repeats
    freedom = 11 if repeats == 1 else 2 * 12 * (repeats - 1)
    assert found.p_worse == pytest.approx(max(1e-12, t_tail(fall * answers / math.sqrt(2), freedom)), rel=1e-6)


@given(
    st.lists(st.integers(100, 900), min_size=2, max_size=12),
    st.integers(-100, 100),
    st.integers(1, 40),
    st.integers(1, 40),
)
def test_the_verdict_is_that_of_binary_fractions(at: list[int], by: int, n_b: int, n_c: int) -> None:
    """Thousandths, and as many 1024ths on a scale of 1000 of them: sums of those are exact."""

    def found(unit: float) -> list[float]:
        base, cand = scores([[each * unit] * n_b for each in at]), scores([[(each + by) * unit] * n_c for each in at])
        observed = compare(base, cand, Measure("mean_score", "score", 0.0, 1000 * unit), 0.05 * unit).observed
        assert observed is not None
        return [observed.p_worse, observed.p_better, observed.low / unit, observed.high / unit, observed.delta / unit]

    assert found(0.001) == pytest.approx(found(1 / 1024), rel=1e-6, abs=1e-9)


@given(st.integers(1, 999), st.integers(1, 3000))
def test_equal_decimals_have_no_spread(thousandths: int, answers: int) -> None:
    """And those that differ in one of them by a thousandth have one."""
    value = thousandths / 1000
    row = [value] * answers
    for last, spread in ((value, False), (value + 0.001, answers > 1)):
        row[-1] = last
        side = Side(np.array([answers]), np.array([sum(row)]), np.array([sum(x * x for x in row)]))
        assert bool(side.variance[0] > 0) == spread


def test_a_level_of_equal_means_has_none_either() -> None:
    """One answer a case: the spread is that over cases, and .3 has not always been added up alike."""
    values = np.array([0.3, 0.1 + 0.2, 0.3])
    side = Side(np.ones(3, dtype=np.int64), values, values * values)
    assert side.mean[0] != side.mean[1]
    assert level_of(side, 0.0, 1.0).spread.variance == 0.0


def test_means_that_are_one_decimal_are_no_flip() -> None:
    """Three answers of .7 beside ten of them: their means are not one double."""
    base, cand = scores([[0.7] * 3, [0.5] * 3]), scores([[0.7] * 10, [0.4] * 10])
    assert base.columns[SCORE.name].total[0] / 3 != cand.columns[SCORE.name].total[0] / 10
    found = compare(base, cand, SCORE, 0.05)
    assert [flip.case for flip in found.losses] == ["c1"]
    assert not found.wins
