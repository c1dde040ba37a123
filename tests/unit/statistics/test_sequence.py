"""The confidence sequence: e-values against exact arithmetic, errors by counting all courses that runs can take."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from evalq.evalcore.statistics.mode_share import (
    ALPHA,
    mode_share_interval,
    mode_share_p_value,
    sequence_verdict,
    verdict,
)
from evalq.evalcore.statistics.sequences import log_e_above, log_e_below, mode_share_sequence, sequence_p_value

shares = st.sampled_from([0.05, 0.2, 1 / 3, 0.45, 0.5, 0.51, 0.6, 0.7, 0.8, 0.95])
counted = st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n)))


def exact_e_above(m: int, n: int, share: Fraction) -> Fraction:
    """The integral of (t/s)^m ((1-t)/(1-s))^(n-m), term by term in u = (1-t)/(1-s) with the density 1/(2 sqrt u)."""
    terms = (
        math.comb(m, k) * (share - 1) ** k * Fraction(1, 2 * (n - m + k) + 1)  # of (1 - (1-s)u)^m
        for k in range(m + 1)
    )
    return sum(terms, Fraction(0)) / share**m


def exact_e_below(m: int, n: int, share: Fraction) -> Fraction:
    """The integral of (t/s)^m ((1-t)/(1-s))^(n-m), term by term in v = t/s, uniform."""
    terms = (math.comb(n - m, k) * (-share) ** k * Fraction(1, m + k + 1) for k in range(n - m + 1))
    return sum(terms, Fraction(0)) / (1 - share) ** (n - m)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 40).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), shares)
def test_e_values_are_their_integrals(seen: tuple[int, int], share: float) -> None:
    """In exact arithmetic, term by term, to nine digits."""
    m, n = seen
    exact = Fraction(share)
    assert math.exp(log_e_above(m, n, share)) == pytest.approx(float(exact_e_above(m, n, exact)), rel=1e-9)
    assert math.exp(log_e_below(m, n, share)) == pytest.approx(float(exact_e_below(m, n, exact)), rel=1e-9)


@pytest.mark.parametrize("share", [Fraction(1, 5), Fraction(1, 2), Fraction(7, 10), Fraction(19, 20)])
def test_e_values_are_martingales_at_the_share_tested(share: Fraction) -> None:
    """Exactly: before any run they are 1, and after one more run their mean is what they were, at every count."""
    for e_value in (exact_e_above, exact_e_below):
        assert e_value(0, 0, share) == 1
        for n in range(12):
            for m in range(n + 1):
                one_more = share * e_value(m + 1, n + 1, share) + (1 - share) * e_value(m, n + 1, share)
                assert one_more == e_value(m, n, share)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("n", [1, 10, 100, 1000])
def test_the_mean_e_value_is_one_on_the_boundary(share: float, n: int) -> None:
    """As computed, over the binomial distribution of the count; on the other side of the share it is less."""

    def mean(e_value: object, p: float) -> float:
        assert callable(e_value)
        log_p, log_q = math.log(p), math.log1p(-p)
        terms = []
        for m in range(n + 1):
            ways = math.lgamma(n + 1) - math.lgamma(m + 1) - math.lgamma(n - m + 1)
            terms.append(math.exp(ways + m * log_p + (n - m) * log_q + e_value(m, n, share)))
        return math.fsum(terms)

    assert mean(log_e_above, share) == pytest.approx(1, rel=1e-8)
    assert mean(log_e_below, share) == pytest.approx(1, rel=1e-8)
    assert mean(log_e_above, 0.9 * share) < 1
    assert mean(log_e_below, 1 - 0.9 * (1 - share)) < 1


def ever(p: list[float], share: float, runs: int) -> dict[str, float]:
    """The chance that each verdict is ever given within ``runs`` runs of answers of probabilities ``p``, by counting.

    All counts that the answers can have are followed with their probabilities; a verdict takes its paths out.
    """
    found: dict[str, float] = defaultdict(float)
    paths = {(0,) * len(p): 1.0}
    for n in range(1, runs + 1):
        grown: dict[tuple[int, ...], float] = defaultdict(float)
        for counts, chance in paths.items():
            for answer, own in enumerate(p):
                grown[*counts[:answer], counts[answer] + 1, *counts[answer + 1 :]] += own * chance
        said = {counts: sequence_verdict(max(counts), n, share) for counts in grown}
        for counts, what in said.items():
            found[what] += grown[counts] if what != "inconclusive" else 0.0
        paths = {counts: chance for counts, chance in grown.items() if said[counts] == "inconclusive"}
    return found


@pytest.mark.parametrize(
    ("p", "share", "runs", "at_least"),
    [
        ([0.7, 0.3], 0.7, 400, 0.5),
        ([0.5, 0.5], 0.5, 400, 0.5),
        ([0.51, 0.49], 0.51, 400, 0.4),
        ([0.6, 0.4], 0.6, 400, 0.5),
        ([0.9, 0.1], 0.9, 400, 0.5),
        ([0.7, 0.2, 0.1], 0.7, 50, 0.3),
        ([0.4, 0.4, 0.2], 0.4, 50, 0.2),
        ([1 / 3, 1 / 3, 1 / 3], 1 / 3, 50, 0.3),
    ],
)
def test_a_mode_at_the_threshold_is_seldom_called_either(
    p: list[float], share: float, runs: int, at_least: float
) -> None:
    """Looked at after every run: collapsed in 2.5 % of all courses at most, diverse in 2.5 %, counted exactly.

    The first is no empty promise: it comes within the given share of 2.5 %.
    """
    found = ever(p, share, runs)
    assert at_least * ALPHA < found["collapsed"] <= ALPHA
    assert found["diverse"] <= ALPHA


def test_an_interval_for_fixed_runs_would_err_too_often() -> None:
    """The check above can fail: the fixed-run p-value, looked at after every run, errs more than twice as often."""
    alive, wrong = {0: 1.0}, 0.0
    for n in range(1, 151):
        grown: dict[int, float] = defaultdict(float)
        for m, chance in alive.items():
            grown[m + 1] += 0.7 * chance
            grown[m] += 0.3 * chance
        alive = {}
        for m, chance in grown.items():
            if mode_share_p_value(m, n, 0.7) < ALPHA:
                wrong += chance
            else:
                alive[m] = chance
    assert wrong > 2 * ALPHA


@settings(max_examples=80, deadline=None)
@given(counted, st.sampled_from([0.025, 0.005, 0.1]))
def test_what_is_rejected_lies_outside_the_bounds(seen: tuple[int, int], alpha: float) -> None:
    """At every share of a grid: the verdict by test and the verdict by bounds are one, so the bounds hide no gap."""
    m, n = seen
    low, high = mode_share_sequence(m, n, alpha)
    assert 0.0 <= low < m / n <= high <= 1.0
    for share in [step / 100 for step in range(1, 100)]:
        if min(abs(share - low), abs(share - high)) > 1e-9:
            assert sequence_verdict(m, n, share, alpha) == verdict(low, high, share)


def test_what_is_rejected_is_one_piece_also_where_the_correction_changes() -> None:
    """On a fine grid, across one half, for all counts up to 24 runs."""
    grid = [step / 397 for step in range(1, 397)]
    for n in range(1, 25):
        for m in range(1, n + 1):
            said = [sequence_verdict(m, n, share) for share in grid]
            order = [{"collapsed": 0, "inconclusive": 1, "diverse": 2}.get(what, 9) for what in said]
            assert order == sorted(order)
    sequence_verdict.cache_clear()


@settings(max_examples=80, deadline=None)
@given(counted, shares)
def test_more_of_the_mode_moves_the_bounds_up(seen: tuple[int, int], share: float) -> None:
    """One more run that agrees, in place of one that does not, raises both; the p-value falls."""
    m, n = seen
    assume(m < n)
    (low, high), (more_low, more_high) = mode_share_sequence(m, n), mode_share_sequence(m + 1, n)
    assert low <= more_low
    assert high <= more_high
    assert sequence_p_value(m + 1, n, share) <= sequence_p_value(m, n, share)


@settings(max_examples=60, deadline=None)
@given(counted)
def test_ten_times_the_runs_say_more(seen: tuple[int, int]) -> None:
    """At the same share of the mode the interval of ten times the runs lies inside."""
    m, n = seen
    low, high = mode_share_sequence(m, n)
    longer = mode_share_sequence(10 * m, 10 * n)
    assert low <= longer[0]
    assert longer[1] <= high


@settings(max_examples=60, deadline=None)
@given(counted)
def test_looking_always_costs_a_wider_interval(seen: tuple[int, int]) -> None:
    """The bounds contain those for a fixed number of runs."""
    (low, high), (fixed_low, fixed_high) = mode_share_sequence(*seen), mode_share_interval(*seen)
    assert low <= fixed_low + 1e-12
    assert fixed_high <= high + 1e-12


@given(counted, shares)
def test_a_p_value_of_alpha_is_the_verdict(seen: tuple[int, int], share: float) -> None:
    """Collapsed exactly where it is ALPHA or less."""
    m, n = seen
    p = sequence_p_value(m, n, share)
    assume(abs(p - ALPHA) > 1e-12)
    assert 0.0 < p <= 1.0
    assert (sequence_verdict(m, n, share) == "collapsed") == (p <= ALPHA)


@pytest.mark.parametrize("alpha", [Fraction(1, 2), Fraction(1, 10), Fraction(1, 40), Fraction(1, 200)])
@pytest.mark.parametrize("share", [Fraction(1, 10), Fraction(1, 2), Fraction(3, 5), Fraction(9, 10)])
def test_a_p_value_is_the_e_value_with_the_correction(share: Fraction, alpha: Fraction) -> None:
    """Counted exactly: 1/s up to one half; above it, by the fewest runs, all alike, that reach 1/alpha at one half."""
    fewest = next(n for n in range(1, 99) if exact_e_above(n, n, Fraction(1, 2)) >= 1 / alpha)
    answers = 1 / share if share <= Fraction(1, 2) else 1 + ((1 - share) / share) ** fewest
    for m, n in ((40, 40), (39, 40), (28, 40), (3, 40)):
        exact = min(Fraction(1), answers / exact_e_above(m, n, share))
        assert sequence_p_value(m, n, float(share), float(alpha)) == pytest.approx(float(exact), rel=1e-9)


@pytest.mark.parametrize(
    ("m", "n", "expected"),
    [
        (12, 12, "inconclusive"),
        (13, 13, "collapsed"),
        (1, 6, "inconclusive"),
        (1, 7, "diverse"),
        (35, 50, "inconclusive"),
        (46, 50, "collapsed"),
        (700, 1000, "inconclusive"),
    ],
)
def test_verdicts_of_known_counts(m: int, n: int, expected: str) -> None:
    """Thirteen that agree are collapsed (eleven would be, fixed beforehand); seven of which none agree are diverse."""
    assert sequence_verdict(m, n, 0.7) == expected


def test_an_answer_seen_once_has_no_lower_bound() -> None:
    """However many runs there were, any small share explains it."""
    assert [mode_share_sequence(1, n)[0] for n in (1, 2, 50, 10_000)] == [0.0] * 4


@pytest.mark.parametrize(("m", "n"), [(1_000_000, 1_000_000), (1, 1_000_000), (700_001, 1_000_000), (2, 2)])
def test_extreme_counts_have_bounds(m: int, n: int) -> None:
    """Of a million runs too, the bounds are finite, ordered, and hold the share seen."""
    low, high = mode_share_sequence(m, n)
    assert 0.0 <= low <= m / n <= high <= 1.0
    assert high - low < (0.01 if n > 2 else 1.0)


def test_a_verdict_takes_microseconds() -> None:
    """Ten thousand counts never seen before within three seconds; the bound leaves room for a busy machine."""
    sequence_verdict.cache_clear()
    began = time.process_time()
    for n in range(1, 10_001):
        sequence_verdict(1 + 7 * n // 10, n + 1, 0.7)
    assert time.process_time() - began < 3
