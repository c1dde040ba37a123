"""Rates corrected by labels, and how far a judge agrees with people: known answers, and coverage."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evalq.evalcore.statistics.agreement import AgreementTable, kappa, share
from evalq.evalcore.statistics.corrected_rate import Labelled, corrected
from evalq.evalcore.statistics.rates import exact_interval
from tests.bench.checks_coverage import LEAST
from tests.bench.labels_coverage import JUDGES, Setting, agreement_coverage, corrected_coverage
from tests.unit.statistics.intervals import Cases, between_cases, by_labels


def test_the_corrected_rate_is_the_stratified_one() -> None:
    """One case, 1,000 answers of which the judge passes 600: people pass 9 of 10 of these and 1 of 5 of the others."""
    found = corrected([Labelled(9, 1, 1, 4, 600, 1000)])
    assert found is not None
    assert found.value == pytest.approx(0.6 * 0.9 + 0.4 * 0.2)
    assert found.alone == pytest.approx(10 / 15)
    assert found.alone_interval == exact_interval(10, 15)
    assert found.interval.low < found.value < found.interval.high


@pytest.mark.parametrize("cells", [(9, 1, 0, 8), (10, 0, 2, 6), (8, 2, 3, 5)])
def test_of_one_case_each_part_is_as_far_off_as_its_own_bound(cells: tuple[int, int, int, int]) -> None:
    """Zou and Donner (2008), by hand: the judge's share, and people's rates among its passes and its fails, exact each;
    each answer of a single case stands for one, also where labels are all alike.
    """
    found = corrected([Labelled(*cells, 600, 1000)])
    assert found is not None
    share = (0.6, exact_interval(600, 1000))
    passed, failed = ((good / (good + bad), exact_interval(good, good + bad)) for good, bad in (cells[:2], cells[2:]))
    parts = ((passed[0] - failed[0], share), (share[0], passed), (1 - share[0], failed))
    value = share[0] * passed[0] + (1 - share[0]) * failed[0]
    low = value - math.hypot(*(weight * (at - bounds.low) for weight, (at, bounds) in parts))
    high = value + math.hypot(*(weight * (bounds.high - at) for weight, (at, bounds) in parts))
    assert found.interval == pytest.approx((max(0.0, low), min(1.0, high)))


def test_a_judge_that_passes_all_leaves_the_labels_as_they_are() -> None:
    """Its verdict tells nothing apart: the interval is that of the labels alone."""
    found = corrected([Labelled(8, 2, 0, 0, 500, 500)])
    assert found is not None
    assert found.value == pytest.approx(0.8)
    assert found.interval == pytest.approx(exact_interval(8, 10))


def test_a_good_judge_of_many_answers_narrows_the_interval() -> None:
    """As 50 labels that agree with it do, of 200 cases."""
    cases = [Labelled(0, 0, 0, 0, 5 * (at % 2), 5) for at in range(150)]
    cases += [Labelled(at % 2, 0, 0, 1 - at % 2, 5 * (at % 2), 5) for at in range(50)]
    found = corrected(cases)
    assert found is not None
    assert found.value == pytest.approx(0.5)
    assert found.interval.high - found.interval.low < 0.7 * (found.alone_interval.high - found.alone_interval.low)


def test_no_label_and_no_weight_say_nothing() -> None:
    """No estimate is made up: not of unlabelled cases, nor of those that count for nothing."""
    assert corrected([]) is None
    assert corrected([Labelled(0, 0, 0, 0, 5, 10)]) is None
    assert corrected([Labelled(3, 0, 0, 0, 5, 10, 0.0), Labelled(0, 0, 0, 0, 5, 10)]) is None


def test_one_labelled_case_of_several_is_worth_one_label() -> None:
    """However many of its answers are: nothing is known of the others."""
    for cells in ((50, 0, 0, 50), (30, 20, 20, 30)):
        found = corrected([Labelled(*cells, 50, 100), Labelled(0, 0, 0, 0, 50, 100)])
        assert found is not None
        assert found.interval == exact_interval(0.5, 1.0)


_case = st.tuples(*[st.integers(0, 3)] * 4, st.integers(0, 5), st.integers(0, 5), st.sampled_from([0.0, 0.5, 1.0, 7.0]))


@given(st.lists(_case, max_size=6))
@settings(deadline=None)
def test_any_labels_give_an_interval_that_holds_its_estimate(
    drawn: list[tuple[int, int, int, int, int, int, float]],
) -> None:
    """Within 0 and 1, never wider than the labels alone, in any order of the cases."""
    cases = [
        Labelled(a, b, c, d, a + b + more, a + b + c + d + more + less, weight)
        for a, b, c, d, more, less, weight in drawn
    ]
    found = corrected(cases)
    if found is None:
        assert not any(case.labels and case.weight for case in cases)
        return
    assert 0.0 <= found.interval.low <= found.value + 1e-9
    assert found.value - 1e-9 <= found.interval.high <= 1.0
    alone = found.alone_interval
    assert found.interval.high - found.interval.low <= alone.high - alone.low + 1e-12
    again = corrected(cases[::-1])
    assert again is not None
    assert again.value == pytest.approx(found.value)
    assert again.interval == pytest.approx(found.interval)


@given(st.lists(_case, min_size=2, max_size=6))
@settings(deadline=None, max_examples=40)
@example([(0, 0, 1, 2, 2, 1, 1.0), (0, 0, 2, 1, 1, 2, 0.5)])  # of what the judge passed, none is labelled
@example([(1, 2, 0, 0, 2, 1, 1.0), (2, 1, 0, 0, 1, 2, 0.5)])  # of what it failed
@example([(2, 0, 0, 3, 1, 1, 1.0), (1, 0, 0, 2, 0, 2, 7.0), (3, 0, 0, 1, 0, 0, 0.5)])  # it was never wrong
@example([(0, 3, 3, 0, 1, 1, 1.0), (0, 1, 2, 0, 0, 2, 1.0), (0, 0, 0, 0, 3, 0, 1.0)])  # it was never right
@example([(3, 1, 1, 2, 0, 0, 1.0), (1, 2, 0, 3, 1, 1, 7.0)])  # one case weighs most
@example([(1, 0, 0, 0, 4, 5, 1.0), (0, 1, 0, 0, 4, 5, 1.0), (0, 0, 1, 0, 4, 5, 1.0), (0, 0, 0, 1, 4, 5, 1.0)])
@example([(0, 2, 0, 0, 0, 3, 1.0), (5, 7, 0, 0, 0, 9, 1.0), (0, 1, 0, 0, 3, 1, 1.0)])  # unlabelled fails widen it
@example([(0, 0, 19, 8, 78, 3, 1.0), (0, 0, 9, 0, 4, 27, 1.0), (0, 0, 14, 9, 51, 2, 0.5)])  # labels of a case are alike
def test_the_interval_is_that_of_its_definition(drawn: list[tuple[int, int, int, int, int, int, float]]) -> None:
    """By another computation, from the papers: the narrower of the corrected one and that of the labels alone."""
    rows = [
        Labelled(a, b, c, d, a + b + more, a + b + c + d + more + less, weight)
        for a, b, c, d, more, less, weight in drawn
    ]
    cases = Cases.of(rows)
    labelled = cases.labels > 0
    if labelled.sum() < 2:
        return
    found = corrected(rows)
    assert found is not None
    weights = (cases.weights * cases.labels / cases.answers)[labelled]
    rates = (cases.good.sum(axis=0)[labelled] / cases.labels[labelled]).tolist()
    alone = between_cases(rates, cases.labels[labelled].astype(int).tolist(), weights.tolist())
    assert found.alone == pytest.approx(float(np.average(rates, weights=weights)))
    assert found.alone_interval == pytest.approx(alone, abs=1e-7)
    value, interval = by_labels(cases)
    if abs((alone[1] - alone[0]) - (interval[1] - interval[0])) < 1e-9:
        return  # as wide as one another: either is right
    if alone[1] - alone[0] < interval[1] - interval[0]:
        value, interval = found.alone, alone
    assert found.value == pytest.approx(value)
    assert found.interval == pytest.approx(interval, abs=1e-7)


@pytest.mark.parametrize(("good", "bad"), [(1.0, 0.0), (0.9, 0.2), (0.5, 0.5)])
@pytest.mark.parametrize("rate", [0.0, 0.3, 0.9, 1.0])
def test_one_case_is_covered_for_any_judge(rate: float, good: float, bad: float) -> None:
    """Counted over all tables of six labels of very many answers, no simulation."""
    chances = (rate * good, (1 - rate) * bad, rate * (1 - good), (1 - rate) * (1 - bad))
    answers = 1_000_000
    passed, held = round(answers * (chances[0] + chances[1])), 0.0
    for cells in product(range(7), repeat=4):
        if sum(cells) != 6:
            continue
        both, false_pass, false_fail, neither = cells
        chance = float(math.factorial(6))
        for count, each in zip(cells, chances, strict=True):
            chance *= each**count / math.factorial(count)
        if chance:
            found = corrected([Labelled(both, false_pass, false_fail, neither, passed, answers)])
            assert found is not None
            held += chance * (found.interval.low - 1e-4 <= rate <= found.interval.high + 1e-4)
    assert held >= LEAST


@pytest.mark.parametrize(
    ("cases", "labels", "whole", "judge", "mean", "correlation"),
    [
        (5, 20, True, "good", 0.8, 0.9),
        (30, 20, False, "fair", 0.5, 0.9),
        (30, 10, False, "wrong on whole cases", 0.95, 0.3),
    ],
)
def test_clustered_labels_are_covered(
    cases: int, labels: int, whole: bool, judge: str, mean: float, correlation: float
) -> None:
    """Simulated, with room for chance; `python -m tests.bench.labels_coverage` has the whole table."""
    setting = Setting(cases, 10, labels, whole, JUDGES[judge], mean, correlation)
    held, width = corrected_coverage(setting, 200, np.random.default_rng(1))
    assert held >= LEAST - 0.03
    assert width <= 1.0
    assert min(agreement_coverage(setting, 200, np.random.default_rng(2))) >= LEAST - 0.03


def test_agreement_is_exact_where_labels_are_of_different_cases() -> None:
    """Clopper and Pearson's; of one case among others it is one label, however many there are."""
    assert share([(1, 1)] * 8 + [(0, 1)] * 2, 20).interval == exact_interval(8, 10)
    assert share([(8, 10)], 1).interval == exact_interval(8, 10)
    assert share([(10, 10)], 20).interval == exact_interval(1, 1)
    assert share([(0, 0)], 20) == (None, None)
    clustered = share([(10, 10), (8, 10), (2, 10)], 20)
    assert clustered.value == pytest.approx(20 / 30)
    assert clustered.interval is not None
    assert clustered.interval.low < exact_interval(20, 30).low


def test_kappa_is_the_textbooks() -> None:
    """Of 20, 5, 10 and 15 in the four cells .4 (agreement .7, by chance .5); none where all is in one cell."""
    found = kappa([AgreementTable(20, 5, 10, 15)], 1)
    assert found.value == pytest.approx(0.4)
    assert found.interval is not None
    # Fleiss, Cohen and Everitt (1969) give a standard error of .127.
    assert (found.interval.low, found.interval.high) == pytest.approx(
        (0.4 - 2.01 * 0.127, 0.4 + 2.01 * 0.127), abs=0.03
    )
    assert kappa([AgreementTable(5, 0, 0, 0)], 1).value is None
    assert kappa([], 3) == (None, None)
    assert kappa([AgreementTable(3, 0, 0, 3)], 3).interval == (-1.0, 1.0)


def test_a_judge_that_was_right_so_far_is_not_known_to_be_perfect() -> None:
    """Twenty labels that agree: kappa 1, and an interval that has a width."""
    found = kappa([AgreementTable(1, 0, 0, 0)] * 10 + [AgreementTable(0, 0, 0, 1)] * 10, 20)
    assert found.value == 1.0
    assert found.interval is not None
    assert 0.4 < found.interval.low < 0.9
    assert found.interval.high == 1.0
