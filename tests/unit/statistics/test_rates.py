"""Rates: exact intervals, unbiased estimates, clusters; and limits that may be looked at after every answer."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.statistics.rates import ALPHA, Rate, clustered, exact_interval, pass_at_k, pass_hat_k
from evalq.evalcore.statistics.sequences import rate_limits, rate_sequence
from tests.unit.statistics.intervals import between_cases, clopper_pearson


@pytest.mark.parametrize(
    ("passed", "answers", "low", "high"),
    [(0, 10, 0.0, 0.3084971), (10, 10, 0.6915029, 1.0), (8, 10, 0.4439045, 0.9747893), (1, 1, 0.025, 1.0)],
)
def test_exact_intervals_are_those_of_the_tables(passed: int, answers: int, low: float, high: float) -> None:
    """Clopper and Pearson's, as published tables have them."""
    assert exact_interval(passed, answers) == pytest.approx((low, high), abs=1e-6)


@given(st.integers(1, 9), st.data())
def test_estimates_are_the_shares_of_all_choices(answers: int, data: st.DataObject) -> None:
    """pass@k and pass^k are what all ways to draw k of the answers say, and None for fewer."""
    passed, k = data.draw(st.integers(0, answers)), data.draw(st.integers(1, answers))
    drawn = list(combinations([True] * passed + [False] * (answers - passed), k))
    assert pass_at_k(passed, answers, k) == pytest.approx(sum(map(any, drawn)) / len(drawn))
    assert pass_hat_k(passed, answers, k) == pytest.approx(sum(map(all, drawn)) / len(drawn))
    assert pass_at_k(passed, answers, answers + 1) is None
    assert pass_hat_k(passed, answers, answers + 1) is None


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20), st.sampled_from([0.0, 0.5, 1.0, 4.0])), max_size=12))
def test_a_clustered_interval_holds_its_mean(cases: list[tuple[int, int, float]]) -> None:
    """Whatever the cases: within 0 and 1, around the weighted mean; None where nothing has a weight."""
    rates = [Rate(min(m, n) / n, n, weight) for m, n, weight in cases]
    whole = sum(rate.weight for rate in rates)
    found = clustered(rates)
    if not whole:
        assert found is None
        return
    mean = sum(rate.weight * rate.value for rate in rates) / whole
    assert found is not None
    assert 0.0 <= found.low <= mean + 1e-12
    assert mean - 1e-12 <= found.high <= 1.0


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), st.sampled_from([0.0, 0.5, 1.0, 4.0])), min_size=1),
)
@settings(max_examples=40)
def test_a_clustered_interval_is_the_papers(cases: list[tuple[int, int, float]]) -> None:
    """By another computation, from the definition: Korn and Graubard's, and Student's with one case more."""
    rows = [(min(m, n) / n, n, weight) for m, n, weight in cases]
    found = clustered([Rate(*row) for row in rows])
    if found is not None:
        values, answers, weights = zip(*rows, strict=True)
        assert found == pytest.approx(between_cases(values, answers, weights), abs=1e-7)


@given(st.integers(0, 40), st.integers(1, 40), st.sampled_from([0.001, 0.025, 0.2]))
@settings(max_examples=60)
def test_an_exact_interval_solves_for_its_error(passed: int, answers: int, alpha: float) -> None:
    """At each end the tail beyond what came has the error that is allowed."""
    passed = min(passed, answers)
    assert exact_interval(passed, answers, alpha) == pytest.approx(clopper_pearson(passed, answers, alpha), abs=1e-9)


@pytest.mark.parametrize("answers", [1, 7, 40])
def test_all_or_none_leave_the_end_where_it_is(answers: int) -> None:
    """Nothing is known that would keep a rate from 0 or 1."""
    assert rate_sequence(answers, answers)[1] == 1.0
    assert rate_sequence(0, answers)[0] == 0.0


def test_one_case_stands_for_itself_and_alike_ones_for_one_answer_each() -> None:
    """Cases that do not differ say nothing of how cases differ."""
    assert clustered([Rate(0.5, 20)]) == exact_interval(10, 20)
    assert clustered([Rate(1.0, 20)] * 5) == exact_interval(5, 5)


@pytest.mark.parametrize("value", [1 / 3, 0.1, 2 / 7, 0.9])
def test_whether_cases_differ_is_no_matter_of_rounding(value: float) -> None:
    """A mean by unequal weights misses their one rate by a bit, which is no spread between them."""
    for weights in ((0.375, 0.3), (1.0, 0.7, 0.1), (3.0, 7.0, 11.0)):
        heads = sum(weights) ** 2 / sum(weight * weight for weight in weights)
        found = clustered([Rate(value, 30, weight) for weight in weights])
        assert found == pytest.approx(exact_interval(value * heads, heads))
        nearly = [Rate(value + 1e-16 * at, 30, weight) for at, weight in enumerate(weights)]
        assert clustered(nearly) == pytest.approx(found)


def test_cases_of_hardly_any_weight_do_not_tell_how_cases_differ() -> None:
    """Where two cases have nearly all of it, the interval is about as wide as for these two."""
    two = [Rate(0.2, 10), Rate(0.8, 10)]
    found, alone = clustered([*two, *[Rate(0.5, 10, 1e-6)] * 50]), clustered(two)
    assert found is not None
    assert alone is not None
    assert found.high - found.low > 0.95 * (alone.high - alone.low)
    whole = clustered([*two, *[Rate(0.5, 10)] * 50])
    assert whole is not None
    assert whole.high - whole.low < 0.5 * (alone.high - alone.low)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("of", [1, 5, 20, 60])
def test_limits_are_crossed_wrongly_as_rarely_as_said(share: float, of: int) -> None:
    """Counted over all walks: at the threshold and on its wrong side, ever, at most ALPHA; either side by itself."""
    limits = rate_limits(share, of)
    for p, above in ((share, True), (share * 0.9, True), (share, False), (share + 0.1 * (1 - share), False)):
        alive, crossed = {0: 1.0}, 0.0
        for n in range(1, of + 1):
            grown: dict[int, float] = defaultdict(float)
            for m, chance in alive.items():
                grown[m + 1] += p * chance
                grown[m] += (1 - p) * chance
            out = [m for m in grown if (m >= limits.above[n] if above else m <= limits.below[n])]
            crossed += sum(grown.pop(m) for m in out)
            alive = grown
        assert crossed <= ALPHA + 1e-12


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9])
def test_limits_never_overlap_and_decide_plain_cases_soon(share: float) -> None:
    """No count is both; all passes are above long before the end."""
    limits = rate_limits(share, 100)
    assert all(low < high for low, high in zip(limits.below, limits.above, strict=True))
    assert next(n for n in range(1, 101) if n >= limits.above[n]) < 60
    assert next(n for n in range(1, 101) if limits.below[n] >= 0) < 60


@given(st.integers(1, 60), st.data())
def test_a_rate_sequence_is_wider_than_the_interval_of_a_fixed_number(answers: int, data: st.DataObject) -> None:
    """It pays for looking; both hold what was seen."""
    passed = data.draw(st.integers(0, answers))
    low, high = rate_sequence(passed, answers)
    fixed = exact_interval(passed, answers)
    assert low <= fixed.low + 1e-9
    assert fixed.high <= high + 1e-9
