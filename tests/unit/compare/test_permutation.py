"""The permutation test against every way in which the passes could have fallen, and at sizes no enumeration reaches."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.compare.pairs import Side
from evalq.evalcore.compare.permutation import ERROR, permutation_p

Row = tuple[int, int, int, int]
"""(answers of the base, passes, answers of the candidate, passes)."""


@st.composite
def _rows(draw: st.DrawFn, equal: bool) -> list[Row]:
    repeats = (draw(st.integers(1, 5)), draw(st.integers(1, 5)))
    rows = []
    for _ in range(draw(st.integers(1, 5))):
        n_b, n_c = repeats if equal else (draw(st.integers(1, 5)), draw(st.integers(1, 5)))
        rows.append((n_b, draw(st.integers(0, n_b)), n_c, draw(st.integers(0, n_c))))
    return rows


def _sides(rows: list[Row]) -> tuple[Side, Side]:
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    base, cand = columns[1].astype(float), columns[3].astype(float)
    return Side(columns[0], base, base), Side(columns[2], cand, cand)


def _enumerated(rows: list[Row]) -> tuple[float, float]:
    each, observed = [], 0.0
    for n_b, m_b, n_c, m_c in rows:
        m = m_b + m_c
        observed += m_c / n_c - m_b / n_b
        ways = [
            (x, math.comb(m, x) * math.comb(n_b + n_c - m, n_c - x)) for x in range(max(0, m - n_b), min(m, n_c) + 1)
        ]
        each.append([(x / n_c - (m - x) / n_b, ways_ / math.comb(n_b + n_c, n_c)) for x, ways_ in ways])
    worse = better = 0.0
    for drawn in itertools.product(*each):
        statistic, p = sum(d for d, _ in drawn), math.prod(p for _, p in drawn)
        worse += p * (statistic <= observed + 1e-9)
        better += p * (statistic >= observed - 1e-9)
    return worse, better


@given(_rows(equal=True))
def test_it_is_every_way_counted(rows: list[Row]) -> None:
    """Where all cases have the same repeats: to its stated error."""
    assert permutation_p(*_sides(rows)) == pytest.approx(_enumerated(rows), abs=10 * ERROR)


@given(_rows(equal=False))
def test_with_unequal_repeats_it_is_never_less(rows: list[Row]) -> None:
    """And at these sizes no more either: the grid is finer than anything there."""
    found, wanted = permutation_p(*_sides(rows)), _enumerated(rows)
    assert all(f >= w - 1e-9 for f, w in zip(found, wanted, strict=True))
    assert found == pytest.approx(wanted, abs=1e-6)


@given(_rows(equal=False))
def test_the_other_way_round_is_the_other_tail(rows: list[Row]) -> None:
    """Base and candidate exchanged exchange worse and better."""
    base, cand = _sides(rows)
    assert permutation_p(cand, base) == pytest.approx(permutation_p(base, cand)[::-1], abs=1e-6)


@pytest.mark.parametrize("cases", [200, 20_000])
def test_many_cases_come_to_the_normal_tail(cases: int) -> None:
    """Two standard deviations below: within what a continuity correction leaves."""
    half = cases // 2
    losses = half // 2 + round(math.sqrt(half / 4) * 2)
    base = [(1, 1)] * losses + [(0, 1)] * (half - losses) + [(1, 1)] * (cases - half)
    cand = [(0, 1)] * losses + [(1, 1)] * (half - losses) + [(1, 1)] * (cases - half)
    rows = [(n_b, m_b, n_c, m_c) for (m_b, n_b), (m_c, n_c) in zip(base, cand, strict=True)]
    worse, _ = permutation_p(*_sides(rows))
    ways, tail = math.comb(half, losses), 0
    for k in range(losses, half + 1):  # each from the one before: to begin anew for each takes seconds
        tail, ways = tail + ways, ways * (half - k) // (k + 1)
    assert worse == pytest.approx(tail / 2**half, abs=1e-10)


def test_unequal_repeats_at_size_stay_close_to_equal_ones() -> None:
    """Sixty-four groups on the grid: bounded from above by little more than the normal approximation's own error."""
    rng = np.random.default_rng(11)
    n_b, n_c = rng.integers(1, 9, 20_000), rng.integers(1, 9, 20_000)
    m_b, m_c = rng.binomial(n_b, 0.9), rng.binomial(n_c, 0.9)
    base, cand = (Side(n, m.astype(float), m.astype(float)) for n, m in ((n_b, m_b), (n_c, m_c)))
    worse, better = permutation_p(base, cand)
    n, m = n_b + n_c, m_b + m_c
    variance = float((m * (n - m) / np.maximum(n - 1, 1) / (n_b * n_c)).sum())
    z = float((m_c / n_c - m_b / n_b).sum()) / math.sqrt(variance)
    assert worse == pytest.approx(0.5 * math.erfc(-z / math.sqrt(2)), abs=0.01)
    assert 1.0 <= worse + better < 1.01
