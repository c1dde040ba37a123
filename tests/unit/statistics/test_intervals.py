"""The intervals of mode share and collision probability, held against their definitions in exact arithmetic."""

from __future__ import annotations

import math
import time
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from evalq.evalcore.statistics.distributions import student_t
from evalq.evalcore.statistics.mode_share import (
    collision_interval,
    collision_probability,
    mode_share_interval,
    mode_share_p_value,
)
from tests.unit.statistics.test_special import exact_at_least

ALPHA = Fraction(1, 40)
NEAR = Fraction(1, 10**10)

counted = st.integers(1, 40).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n)))


def exact_p_value(m: int, n: int, p: Fraction) -> Fraction:
    """min(1, tail(p) / p) up to one half, min(1, tail(p) + tail(1 - p)) above, with tail(p) = P(Bin(n, p) >= m)."""
    tail = exact_at_least(m, n, p)
    return min(Fraction(1), tail / p if p <= Fraction(1, 2) else tail + exact_at_least(m, n, 1 - p))


@settings(max_examples=40, deadline=None)
@given(counted)
def test_lower_bound_is_the_smallest_share_that_explains_the_mode(seen: tuple[int, int]) -> None:
    """Just above the bound the exact p-value reaches .025, and nowhere below does it."""
    m, n = seen
    low = Fraction(mode_share_interval(m, n)[0])
    assert exact_p_value(m, n, low + NEAR) >= ALPHA
    below = [low * step / 8 for step in range(1, 8)] + [low - NEAR]
    assert all(exact_p_value(m, n, p) < ALPHA for p in below if p > 0)


@settings(max_examples=40, deadline=None)
@given(counted)
def test_upper_bound_is_clopper_and_pearson(seen: tuple[int, int]) -> None:
    """The bound is where m or fewer have a chance of .025, exactly; 1 when every run agreed."""
    m, n = seen
    high = Fraction(mode_share_interval(m, n)[1])
    if m == n:
        assert high == 1
    else:
        assert 1 - exact_at_least(m + 1, n, high - NEAR) >= ALPHA > 1 - exact_at_least(m + 1, n, high + NEAR)


@pytest.mark.parametrize(
    ("m", "n", "low", "high"),
    [
        (10, 10, 0.69148128, 1.0),
        (9, 9, 0.66356984, 1.0),
        (1, 1, 0.0, 1.0),
    ],
)
def test_bounds_of_known_counts(m: int, n: int, low: float, high: float) -> None:
    """Where every run agreed p^n + (1 - p)^n is .025 at the lower bound, a hair below the root of .025."""
    assert mode_share_interval(m, n) == pytest.approx((low, high), abs=1e-8)


def test_bounds_are_those_of_the_published_table() -> None:
    """One of ten: up to .4450, nine of ten: up to .9975, as tables of Clopper and Pearson print them."""
    assert mode_share_interval(1, 10) == pytest.approx((0.0, 0.4450), abs=5e-5)
    assert mode_share_interval(9, 10)[1] == pytest.approx(0.9975, abs=5e-5)


def test_the_choice_of_the_mode_costs_a_wider_lower_bound() -> None:
    """Below one half the bound lies under Clopper and Pearson's, which holds only for an answer named beforehand."""
    low, _ = mode_share_interval(20, 50)
    assert exact_at_least(20, 50, Fraction(low)) < ALPHA


def test_p_value_counts_as_many_candidates_as_have_room() -> None:
    """At a share of .2 there may be five such answers, at .6 one, and the rest adds what it can: here a little."""
    assert mode_share_p_value(9, 10, 0.2) == pytest.approx(5 * float(exact_at_least(9, 10, Fraction(1, 5))), rel=1e-6)
    six, four = (float(exact_at_least(9, 10, Fraction(share, 5))) for share in (3, 2))
    assert mode_share_p_value(9, 10, 0.6) == pytest.approx(six + four, rel=1e-6)
    assert mode_share_p_value(1, 10, 0.2) == 1.0


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_collision_probability_is_the_share_of_agreeing_pairs(counts: list[int]) -> None:
    """Counting pairs of runs one by one gives the same number."""
    runs = [kind for kind, count in enumerate(counts) for _ in range(min(count, 6))]
    small = [min(count, 6) for count in counts]
    pairs = [(a, b) for i, a in enumerate(runs) for b in runs[i + 1 :]]
    if not pairs:
        assert collision_probability(small) is None
    else:
        assert collision_probability(small) == pytest.approx(sum(a == b for a, b in pairs) / len(pairs))


@given(st.integers(14, 3000), st.floats(0, 1), st.floats(0, 1))
def test_collision_interval_is_the_set_that_defines_it(n: int, estimate: float, t: float) -> None:
    """Any t is inside exactly when it differs from U by no more than T standard errors at t (half the runs agree)."""
    low, high = collision_interval(estimate, n // 2, n)
    assert 0 <= low <= estimate <= high <= 1
    assume(abs(t - low) > 1e-9 and abs(t - high) > 1e-9)
    variance = 4 * (n - 2) / (n * (n - 1)) * (t**1.5 - t**2) + 2 * t * (1 - t) / (n * (n - 1))
    distance = student_t(n - 1, 0.025) * math.sqrt(max(variance, 0.0)) - abs(estimate - t)
    assume(abs(distance) > 1e-12)
    assert (low < t < high) == (distance > 0)


@pytest.mark.parametrize(("estimate", "n"), [(0.4, 14), (0.1, 15), (0.9, 40), (0.3, 500)])
def test_collision_bounds_are_student_t_standard_errors_away(estimate: float, n: int) -> None:
    """At both bounds the distance from the estimate is T times the standard error there, with a mode of one half."""
    for bound in collision_interval(estimate, n // 2, n):
        variance = 4 * (n - 2) / (n * (n - 1)) * (bound**1.5 - bound**2) + 2 * bound * (1 - bound) / (n * (n - 1))
        assert abs(estimate - bound) == pytest.approx(student_t(n - 1, 0.025) * math.sqrt(variance), rel=1e-9)


@pytest.mark.parametrize(("estimate", "n"), [(0.0, 2), (0.0, 10), (1.0, 2), (1.0, 50)])
def test_collision_interval_at_the_ends(estimate: float, n: int) -> None:
    """With no agreement it begins at 0, with full agreement it ends at 1, and it always has width."""
    low, high = collision_interval(estimate, n if estimate else 1, n)
    assert low < high
    assert (low if estimate == 0.0 else high) == estimate


@pytest.mark.parametrize(("m", "n"), [(49, 50), (48, 50), (47, 50), (90, 100), (2, 3), (50, 50)])
def test_where_nearly_all_agree_the_upper_bound_allows_for_what_the_mode_may_be(m: int, n: int) -> None:
    """It is no lower than the chance of agreement at either end of the mode's interval."""
    estimate = collision_probability([m, n - m])
    assert estimate is not None
    low, high = mode_share_interval(m, n)
    bound = collision_interval(estimate, m, n)[1]
    assert bound >= high**2 + (1 - high) ** 2 - 1e-12
    assert bound >= (low**2 + (1 - low) ** 2 if low >= 0.5 else 0) - 1e-12


@pytest.mark.parametrize(("m", "n"), [(1, 30), (2, 30), (3, 20), (6, 30), (6, 40)])
def test_where_few_agree_the_lower_bound_allows_for_what_the_mode_may_be(m: int, n: int) -> None:
    """It is no higher than the chance that two runs both give the mode, at the lower end of its interval."""
    estimate = collision_probability([m, *[1] * (n - m)])
    assert estimate is not None
    assert collision_interval(estimate, m, n)[0] <= mode_share_interval(m, n)[0] ** 2


def test_a_hundred_thousand_runs_take_no_time_to_speak_of() -> None:
    """Both intervals of a case of 100,000 runs take milliseconds; the bound leaves room for a busy machine."""
    began = time.process_time()
    mode_share_interval(70_001, 100_000)
    collision_interval(0.5, 70_001, 100_000)
    assert time.process_time() - began < 0.5
