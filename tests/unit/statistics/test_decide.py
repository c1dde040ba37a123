"""Verdicts, runs still needed, and Holm's correction."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evalq.evalcore.statistics.mode_share import (
    FIXED_RUNS,
    MOST_RUNS,
    holm,
    mode_share_interval,
    rejected,
    runs_to_decide,
    verdict,
)
from tests.portions import some

decided = FIXED_RUNS.decided

shares = st.sampled_from([0.2, 0.4, 0.5, 0.505, 0.55, 0.7, 0.9])
counted = st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n)))


@pytest.mark.parametrize(
    ("m", "n", "expected"),
    [
        (47, 50, "collapsed"),
        (1, 10, "diverse"),
        (1, 1, "inconclusive"),
        (35, 50, "inconclusive"),
        (11, 11, "collapsed"),
    ],
)
def test_verdicts_of_known_counts(m: int, n: int, expected: str) -> None:
    """47 of 50 is collapsed, ten different answers are diverse, one run decides nothing."""
    assert verdict(*mode_share_interval(m, n), 0.7) == expected


@pytest.mark.parametrize(("low", "high"), [(0.7, 0.9), (0.5, 0.7), (0.7, 0.7)])
def test_a_bound_at_the_threshold_decides_nothing(low: float, high: float) -> None:
    """The interval must lie beyond the threshold, not reach to it."""
    assert verdict(low, high, 0.7) == "inconclusive"


@given(counted, shares)
def test_one_tail_decides_as_the_interval_does(seen: tuple[int, int], share: float) -> None:
    """The verdict without the search for the bounds is the one that they give."""
    assert FIXED_RUNS.verdict(*seen, share) == verdict(*mode_share_interval(*seen), share)


def test_runs_to_decide_and_the_verdict_never_contradict_each_other() -> None:
    """Just above one half too: no case is inconclusive with no further run to go."""
    for n in some((*range(1, 40), 60, 90, 119)):
        for m in range(1, n + 1):
            interval = mode_share_interval(m, n)
            for share in (0.5, 0.501, 0.505, 0.51, 0.6, 0.7):
                said, more = FIXED_RUNS.verdict(m, n, share), runs_to_decide(m, n, share, decided)
                assert (said != "inconclusive") == (more == 0), (m, n, share)
                assert said == verdict(*interval, share)


@given(counted, shares)
def test_that_many_further_runs_do_decide(seen: tuple[int, int], share: float) -> None:
    """With the promised runs, and the mode at its share (rounded towards the threshold), the interval is off it."""
    m, n = seen
    more = runs_to_decide(m, n, share, decided)
    if more is None:
        return
    total = n + more
    toward = m if more == 0 else (m * total // n if m > share * n else -(-m * total // n))
    assert decided(toward, total, share)
    assert (more == 0) == decided(m, n, share)


@pytest.mark.parametrize(("m", "n", "more"), [(1, 1, 10), (10, 10, 1), (47, 50, 0), (1, 10, 0)])
def test_runs_to_decide_of_known_counts(m: int, n: int, more: int) -> None:
    """One run needs ten more: .7^11 is the first power under .025."""
    assert runs_to_decide(m, n, 0.7, decided) == more


def test_a_mode_at_the_threshold_is_never_decided() -> None:
    """At a share of exactly the threshold no number of runs up to MOST_RUNS is enough."""
    assert runs_to_decide(7, 10, 0.7, decided) is None
    assert runs_to_decide(MOST_RUNS * 7 // 10, MOST_RUNS, 0.7, decided) is None


def adjusted_by_definition(values: list[float]) -> list[float]:
    """Holm's step-down written out: the largest, over all smaller or equal ones, of its value times those left."""
    found = []
    for index, value in enumerate(values):
        before = [j for j, other in enumerate(values) if other < value or (other == value and j <= index)]
        steps = sorted(values[j] for j in before)
        found.append(min(1.0, max((len(values) - rank) * p for rank, p in enumerate(steps))))
    return found


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_follows_its_definition(values: list[float]) -> None:
    """The adjusted p-values are the step-down's, in the given order."""
    assert holm(values) == pytest.approx(adjusted_by_definition(values))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_lies_between_no_correction_and_bonferroni(values: list[float]) -> None:
    """No adjusted p-value is below its own, or above the number of values times its own."""
    for value, adjusted in zip(values, holm(values), strict=True):
        assert value <= adjusted + 1e-15
        assert adjusted <= min(1.0, len(values) * value) + 1e-15


@given(st.lists(st.floats(0, 1), max_size=20), st.floats(1e-6, 0.5))
def test_what_is_rejected_is_what_the_adjusted_values_say(values: list[float], alpha: float) -> None:
    """But for values within rounding of a bound: one divides by the number of hypotheses, the other multiplies."""
    values.sort()
    adjusted = adjusted_by_definition(values)
    assume(all(abs(value - alpha) > 1e-12 for value in adjusted))
    assert rejected(values, alpha) == sum(value <= alpha for value in adjusted)
