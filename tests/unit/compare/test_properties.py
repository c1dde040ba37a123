"""What holds of any two runs: signs, evidence, missing answers, and the ends of intervals."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.compare.comparison import compare
from evalq.evalcore.compare.intervals import _MeanSpread, level_of
from evalq.evalcore.compare.outlook import bound_checks
from evalq.evalcore.compare.pairs import pairs_of
from evalq.evalcore.compare.policy import Gate
from evalq.evalcore.contract.measures import Measure
from evalq.evalcore.statistics.distributions import student_t
from tests.unit.compare.made import PASS, SCORE, passes, scores

# Strategies are made once: where each example makes its own, that takes as long as what is tested.
_OF = {n: st.tuples(st.integers(0, n), st.just(n)) for n in range(1, 13)}
_COUNTS = st.integers(1, 12).flatmap(_OF.__getitem__)
_SIDES = {cases: st.tuples(*[st.lists(_COUNTS, min_size=cases, max_size=cases)] * 2) for cases in range(1, 13)}
_RUNS = st.integers(1, 12).flatmap(_SIDES.__getitem__)


@given(_RUNS)
def test_exchanging_the_runs_turns_every_number(runs: tuple[list[tuple[int, int]], list[tuple[int, int]]]) -> None:
    """Delta, the interval, the p-values and the verdict."""
    there = compare(passes(runs[0]), passes(runs[1]), PASS, 0.05)
    back = compare(passes(runs[1]), passes(runs[0]), PASS, 0.05)
    a, b = there.observed, back.observed
    assert a is not None
    assert b is not None
    assert (a.delta, a.low, a.high) == pytest.approx((-b.delta, -b.high, -b.low))
    # Sums of unequal weights are put on a grid, where what lies near the value seen counts as equal to it, on its side.
    assert (a.p_worse, a.p_better) == pytest.approx((b.p_better, b.p_worse), abs=5e-3)
    assert there.verdict == {"worse": "better", "better": "worse"}.get(back.verdict, back.verdict)


@given(_RUNS)
def test_failures_counted_instead_of_passes_change_nothing(
    runs: tuple[list[tuple[int, int]], list[tuple[int, int]]],
) -> None:
    """A measure of which less is better has the same change, turned."""
    failures = Measure("pass_rate", better="lower")
    turned = [[(n - m, n) for m, n in run] for run in runs]
    a = compare(passes(runs[0]), passes(runs[1]), PASS, 0.05)
    b = compare(passes(turned[0]), passes(turned[1]), failures, 0.05)
    assert a.verdict == b.verdict
    assert a.observed is not None
    assert b.observed is not None
    assert (a.observed.delta, a.observed.low) == pytest.approx((b.observed.delta, b.observed.low))
    assert (a.observed.p_worse, a.observed.p_better) == pytest.approx(
        (b.observed.p_worse, b.observed.p_better), abs=1e-9
    )
    assert a.named == b.named


@given(_RUNS, st.data())
def test_one_more_failure_never_speaks_for_the_candidate(
    runs: tuple[list[tuple[int, int]], list[tuple[int, int]]], data: st.DataObject
) -> None:
    """A pass of the candidate taken away: p_worse does not grow, p_better does not fall, the change does not rise."""
    passing = [number for number, (m, _) in enumerate(runs[1]) if m]
    if not passing:
        return
    at = data.draw(st.sampled_from(passing))
    fewer = [(m - (number == at), n) for number, (m, n) in enumerate(runs[1])]
    before = compare(passes(runs[0]), passes(runs[1]), PASS, 0.05).observed
    after = compare(passes(runs[0]), passes(fewer), PASS, 0.05).observed
    assert before is not None
    assert after is not None
    assert after.delta < before.delta


@given(_RUNS)
def test_an_interval_holds_its_estimate_and_stays_on_the_scale(
    runs: tuple[list[tuple[int, int]], list[tuple[int, int]]],
) -> None:
    """Whatever the counts."""
    found = compare(passes(runs[0]), passes(runs[1]), PASS, 0.05).observed
    assert found is not None
    assert -1 <= found.low <= found.high <= 1
    assert found.low - 1e-9 <= found.delta <= found.high + 1e-9
    assert 0 <= found.detectable <= 1


@given(_RUNS)
def test_what_is_missing_only_counts_against_the_candidate(
    runs: tuple[list[tuple[int, int]], list[tuple[int, int]]],
) -> None:
    """The worst is never better than what was observed."""
    base = passes(runs[0], missing=[1] * len(runs[0]))
    cand = passes(runs[1], missing=[2] * len(runs[1]))
    found = compare(base, cand, PASS, 0.05)
    assert found.observed is not None
    assert found.worst is not None
    assert found.worst.delta <= found.observed.delta + 1e-12
    assert found.missing == len(runs[0])


def test_a_case_that_the_candidate_lacks_is_lost_and_one_of_its_own_is_not() -> None:
    """Unpaired cases are listed on their side, and only the baseline's are missing."""
    base = passes([(3, 3), (3, 3)], ids=["a", "b"])
    cand = passes([(3, 3), (0, 3)], ids=["b", "c"])
    found = compare(base, cand, PASS, 0.05)
    assert (found.alone, found.new, found.missing) == (["a"], ["c"], 3)
    assert found.worst is not None
    assert found.worst.cases == 2
    assert found.worst.delta == -0.5


@given(st.lists(_COUNTS, min_size=1, max_size=12), st.floats(0.01, 0.99))
def test_a_bound_s_surprise_is_where_the_interval_begins_to_hold_it(rows: list[tuple[int, int]], bound: float) -> None:
    """Duality: the interval at that error ends at the bound."""
    side = pairs_of(passes(rows), passes(rows), PASS).cand
    level = level_of(side, 0.0, 1.0)
    p = level.p_below(bound)
    if 1e-9 < p < 0.49:
        assert level.interval(p)[1] == pytest.approx(bound, abs=1e-6)
    low, high = level.interval()
    assert 0 <= low <= level.mean + 1e-12
    assert level.mean - 1e-12 <= high <= 1


def test_a_bound_is_kept_broken_or_open() -> None:
    """By the interval; what is missing can open it again."""
    gate = Gate(metric="vs.pass_rate", min=0.8)
    for rows, missing, wanted in (
        ([(99, 100)] * 20, 0, "GO"),
        ([(50, 100)] * 20, 0, "NO-GO"),
        ([(8, 10)] * 2, 0, "INCONCLUSIVE"),
        ([(99, 100)] * 20, 60, "INCONCLUSIVE"),
    ):
        (check,) = bound_checks(gate, passes(rows, missing=[missing] * len(rows)), PASS)
        assert check.decided == wanted, check
    (check,) = bound_checks(gate, passes([]), PASS)
    assert (check.decided, check.reason) == ("INCONCLUSIVE", "no case has an answer")


@pytest.mark.parametrize("freedom", [1.0, 1.7, 3.0, 12.5, 400.0, 1e6])
@pytest.mark.parametrize("alpha", [0.4, 0.025, 1e-4, 1e-6])
def test_the_quantile_is_that_of_student(freedom: float, alpha: float) -> None:
    """Found by two ways; the other one loses digits where 1 - 2 alpha has few left."""
    assert _MeanSpread(1.0, freedom, 1.0).t(alpha) == pytest.approx(student_t(freedom, alpha), rel=1e-5)


def test_scores_without_any_spread_are_judged_as_if_one_loss_and_one_win_had_been_seen() -> None:
    """Two constants that differ are no proof by themselves; many of them are."""
    few = compare(scores([[0.5, 0.5]] * 2), scores([[0.4, 0.4]] * 2), SCORE, 0.05)
    many = compare(scores([[0.5, 0.5]] * 200), scores([[0.4, 0.4]] * 200), SCORE, 0.05)
    assert (few.verdict, many.verdict) == ("inconclusive", "worse")
    lone = compare(scores([[0.5]]), scores([[0.4]]), SCORE, 0.05)
    assert lone.observed is not None
    assert (lone.verdict, lone.observed.low, lone.observed.high) == ("inconclusive", -1, 1)
    assert not math.isnan(lone.observed.detectable)
