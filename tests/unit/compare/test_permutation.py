"""The permutation test against every way in which the passes could have fallen, and at sizes no enumeration reaches."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.compare.pairs import ERROR, Side, _groups, permutation_p
from tests.portions import some

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


@given(_rows(equal=False))
def test_over_very_many_repeats_it_is_a_bound(rows: list[Row]) -> None:
    """As if a grid had no room for these: never less than every way counted, and the same way up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evalq.evalcore.compare.pairs._MOST_GROUPS", 1)
        found = permutation_p(*_sides(rows))
    assert all(f >= w - 10 * ERROR for f, w in zip(found, _enumerated(rows), strict=True))


@pytest.mark.parametrize(("cases", "fall"), some([(400, 0), (400, 4), (16_385, 4)], of=3))
def test_more_repeats_than_a_grid_has_room_for(cases: int, fall: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each case of other repeats: of 16,384 the step of the grid was no number. A fall is still seen."""
    if cases == 400:
        monkeypatch.setattr("evalq.evalcore.compare.pairs._MOST_GROUPS", 100)
    rng, number = np.random.default_rng(4), np.arange(cases)
    n_b, n_c = number % 128 + 1, 20 + number // 128
    m_b, m_c = (rng.binomial(n, 0.8).astype(float) for n in (n_b, n_c))
    m_c -= fall
    worse, better = permutation_p(Side(n_b, m_b, m_b), Side(n_c, m_c, m_c))
    assert (worse < 1e-6) if fall else (worse > 0.05)
    assert better > 0.05


def test_a_wide_case_is_as_if_all_of_it_were_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 answers a side: what is cut off weighs nothing, and no cache keeps arrays of that size."""
    rows = [(100_000, 80_000, 100_000, 79_600), (100_000, 99_990, 100_000, 99_985)]
    found = permutation_p(*_sides(rows))
    monkeypatch.setattr("evalq.evalcore.compare.pairs._WIDE", 1 << 30)
    assert permutation_p(*_sides(rows)) == pytest.approx(found, abs=10 * ERROR)
    assert 0.001 < found[0] < 0.1


@given(_rows(equal=False), st.integers(1, 40))
def test_cases_are_grouped_in_their_order(rows: list[Row], times: int) -> None:
    """As if one after the other were put into its group: sums of doubles go by that order."""
    groups: dict[tuple[int, int], Counter[int]] = {}
    seen: Counter[tuple[int, int]] = Counter()
    for n_b, m_b, n_c, m_c in rows * times:
        groups.setdefault((n_b, n_c), Counter())[m_b + m_c] += 1
        seen[n_b, n_c] += m_c
    found, passed = _groups(*_sides(rows * times))
    assert list(found.items()) == list(groups.items())
    assert passed == seen
