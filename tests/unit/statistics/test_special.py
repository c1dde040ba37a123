"""The incomplete beta function and its kin, against exact sums and published tables."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.statistics.distributions import at_least, at_most, beta_cdf, lowest, smallest, student_t


def exact_at_least(m: int, n: int, p: Fraction) -> Fraction:
    """The binomial tail, term by term, without rounding."""
    return sum((math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(max(m, 0), n + 1)), Fraction(0))


@given(st.integers(1, 60), st.integers(-2, 62), st.integers(0, 64))
def test_binomial_tails_equal_exact_sums(n: int, m: int, sixty_fourths: int) -> None:
    """Both tails equal the rational sum to 1e-12, for any p from 0 to 1 and any m, also outside 0 to n."""
    p = Fraction(sixty_fourths, 64)
    assert at_least(m, n, float(p)) == pytest.approx(float(exact_at_least(m, n, p)), rel=1e-12, abs=1e-12)
    assert at_most(m, n, float(p)) == pytest.approx(float(1 - exact_at_least(m + 1, n, p)), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("n", [1, 7, 60])
def test_what_cannot_be_never_comes_and_what_must_be_always_does(n: int) -> None:
    """With a chance of 0 or 1, exactly."""
    assert [at_least(1, n, 0.0), at_least(n, n, 1.0)] == [0.0, 1.0]
    assert [at_most(n - 1, n, 1.0), at_most(0, n, 0.0)] == [0.0, 1.0]


def test_small_tails_keep_their_digits() -> None:
    """A tail of 1e-30 is right to ten digits, not rounded away against 1."""
    exact = exact_at_least(50, 50, Fraction(1, 4))
    assert at_least(50, 50, 0.25) == pytest.approx(float(exact), rel=1e-10)
    assert at_most(0, 50, 0.75) == pytest.approx(float(exact), rel=1e-10)


@given(st.floats(0.1, 5e4), st.floats(0.1, 5e4), st.floats(0, 1))
def test_beta_cdf_is_a_distribution_with_its_mirror(a: float, b: float, x: float) -> None:
    """I_x(a, b) lies in [0, 1] and equals 1 - I_(1-x)(b, a)."""
    value = beta_cdf(a, b, x)
    assert -1e-9 <= value <= 1 + 1e-9
    if 0.01 <= x <= 0.99:
        assert value == pytest.approx(1 - beta_cdf(b, a, 1 - x), abs=1e-8)


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [
        (1, 12.706204736174698),
        (2, 4.302652729749464),
        (5, 2.5705818356363146),
        (10, 2.2281388519649385),
        (30, 2.0422724563012373),
        (100, 1.9839715185235518),
        (1000, 1.9623390808264078),
    ],
)
def test_student_t_equals_published_quantiles(freedom: int, expected: float) -> None:
    """The two-sided 95 % points of Student's t are those of the tables."""
    assert student_t(freedom, 0.025) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("alpha", [0.001, 0.025, 0.1, 0.4])
def test_student_t_has_closed_forms_for_one_and_two_degrees(alpha: float) -> None:
    """With one degree the quantile is a tangent, with two an algebraic function."""
    assert student_t(1, alpha) == pytest.approx(math.tan(math.pi * (0.5 - alpha)), rel=1e-10)
    centred = 1 - 2 * alpha
    assert student_t(2, alpha) == pytest.approx(centred * math.sqrt(2 / (1 - centred**2)), rel=1e-10)


def test_student_t_tends_to_the_normal_quantile() -> None:
    """With a hundred thousand degrees it differs from the normal's 1.959964 by 1/n in the fifth digit."""
    assert student_t(10**5, 0.025) == pytest.approx(1.959963984540054 + 2.3723 / 10**5, abs=1e-8)


@given(st.floats(1e-12, 1))
def test_smallest_finds_a_threshold_to_the_last_bit(threshold: float) -> None:
    """The first float at which a monotone condition holds is found."""
    assert smallest(lambda x: x >= threshold, 0.0, 1.0) == threshold


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.floats(-5, 5))
def test_lowest_finds_the_least_of_a_convex_function(place: float, step: float, level: float) -> None:
    """Wherever it lies beside the step to begin with: of one with an edge, a parabola, and one least at 0."""
    assert lowest(lambda t: abs(t - place), step) == pytest.approx(0.0, abs=1e-11 * (place + step))
    assert lowest(lambda t: (t / place - 1) ** 2 + level, step) == pytest.approx(level, abs=1e-12)
    assert lowest(lambda t: level + t, step) == pytest.approx(level, abs=1e-11 * (1 + step))
