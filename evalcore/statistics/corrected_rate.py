"""A fallible judge's rate, corrected by people's labels of a random sample of the same answers.

The estimate is prediction-powered (Angelopoulos et al. 2023), with the weight of the judge that has the least variance
(PPI++, 2023). For pass and fail that is the stratified estimate: people's rates among passed and among failed answers,
weighted by how often the judge passes and fails all answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from evalq.evalcore.statistics.distributions import student_t
from evalq.evalcore.statistics.rates import ALPHA, Interval, Rate, clustered, exact_interval


class Labelled(NamedTuple):
    """One case: how many of its ``answers`` the judge ``passed``, and people's labels.

    ``both``: passed by judge and person, ``false_pass``: by the judge alone, ``false_fail``: by the person alone,
    ``neither``: by none.
    """

    both: int
    false_pass: int
    false_fail: int
    neither: int
    passed: int
    answers: int
    weight: float = 1.0

    @property
    def labels(self) -> int:
        """How many answers have a label."""
        return self.both + self.false_pass + self.false_fail + self.neither


class CorrectedRate(NamedTuple):
    """The rate as people would see it, with its interval, and the rate of the labels alone."""

    value: float
    interval: Interval
    alone: float
    alone_interval: Interval


class _Stratum(NamedTuple):
    """The answers with one verdict of the judge: their share of all answers, people's rate among the labelled ones, and
    the effective numbers of labels and cases, since weights are unequal.
    """

    share: float
    rate: float
    labels: float
    cases: float


class _RateSpread(NamedTuple):
    """Variances over cases of the linearised estimate: by labels, by the judge's rates, and twice their covariance.

    ``heads`` is the effective number of labelled cases.
    """

    labels: float
    judge: float
    common: float
    heads: float


def _labels_alone(cases: Sequence[Labelled]) -> list[Rate]:
    """The rates of the labels alone, for `clustered`. A case's weight does not grow with its share of labels."""
    return [
        Rate((case.both + case.false_fail) / case.labels, case.labels, case.weight * case.labels / case.answers)
        for case in cases
        if case.labels and case.weight > 0
    ]


def corrected(cases: Sequence[Labelled], alpha: float = ALPHA) -> CorrectedRate | None:
    """The mean over cases like these of the rate at which people pass answers; None without a label that counts.

    The labelled answers, or cases, must be a random sample. The interval is the narrower of the corrected one and that
    of the labels alone, so that a useless judge costs nothing.
    """
    counted = [case for case in cases if case.answers and case.weight > 0]
    rates = _labels_alone(counted)
    by_labels = _alone(rates, len(counted), alpha)
    if by_labels is None:
        return None
    whole = math.fsum(rate.weight for rate in rates)
    alone = math.fsum(rate.weight * rate.value for rate in rates) / whole
    # A single labelled case does not show how cases differ, which the correction needs.
    if len(rates) == 1 < len(counted):
        return CorrectedRate(alone, by_labels, alone, by_labels)
    value, interval = _stratified(counted, alpha)
    if by_labels.high - by_labels.low < interval.high - interval.low:
        value, interval = alone, by_labels
    return CorrectedRate(value, interval, alone, by_labels)


class CorrectedShare(NamedTuple):
    """A share of answers, with its interval."""

    value: float
    interval: Interval


def corrected_share(
    wanted: Sequence[Labelled], others: Sequence[Labelled], alpha: float = ALPHA
) -> CorrectedShare | None:
    """The share of the ``wanted`` among these and ``others``, both rates of the same answers, as people would see them.

    So the pass rate of the answers that count, where people say of some answers whether they count. None without a
    label, or if no answer counts. The interval joins the low end of the one rate with the high end of the other, which
    holds for any dependence of the two.
    """
    one, other = _by_any_labels(wanted, alpha), _by_any_labels(others, alpha)
    if one is None or other is None or one.value + other.value <= 0.0:
        return None
    low = one.interval.low / (one.interval.low + other.interval.high) if one.interval.low > 0.0 else 0.0
    high = one.interval.high / (one.interval.high + other.interval.low) if other.interval.low > 0.0 else 1.0
    return CorrectedShare(one.value / (one.value + other.value), Interval(low, high))


def _by_any_labels(cases: Sequence[Labelled], alpha: float) -> CorrectedShare | None:
    """The corrected rate; that of the labels alone if no label is of one kind of verdict, of which nothing is known."""
    found = corrected(cases, alpha)
    if found is None:
        return None
    passed, failed = (any(case.passed for case in cases), any(case.passed < case.answers for case in cases))
    labelled = (
        any(case.both or case.false_pass for case in cases),
        any(case.false_fail or case.neither for case in cases),
    )
    if (passed and not labelled[0]) or (failed and not labelled[1]):
        return CorrectedShare(found.alone, found.alone_interval)
    return CorrectedShare(found.value, found.interval)


def _alone(rates: Sequence[Rate], cases: int, alpha: float) -> Interval | None:
    if len(rates) == 1 and cases > 1:
        # The other cases are unknown, so all labels of this one count as one case.
        return exact_interval(rates[0].value, 1.0, alpha)
    return clustered(rates, alpha)


def _stratified(cases: Sequence[Labelled], alpha: float) -> tuple[float, Interval]:
    """The corrected rate: the hull of two intervals, as in `clustered`."""
    whole = math.fsum(case.weight for case in cases)
    share = math.fsum(case.weight * case.passed / case.answers for case in cases) / whole
    by_judge = clustered([Rate(case.passed / case.answers, case.answers, case.weight) for case in cases], alpha)
    assert by_judge is not None, "there are cases that count"
    labelled = [case for case in cases if case.labels]
    passed, failed = _strata(labelled, share)
    if len(cases) == 1:
        # With a single case, each of its answers counts as a case.
        passed, failed = passed._replace(cases=passed.labels), failed._replace(cases=failed.labels)
    spread = _spread(cases, labelled, passed, failed)
    value = passed.share * passed.rate + failed.share * failed.rate
    low, high = _by_parts(
        value, passed, failed, by_judge, _design_effect(labelled, passed, failed, spread, alpha), alpha
    )
    if len(labelled) > 1:
        # Add one labelled case, of the kind that would move the rate most.
        more = spread.heads + 1
        half = _half(spread, len(labelled), cases, alpha) * spread.heads / more
        low = min(low, value - max(passed.rate, failed.rate) / more - half)
        high = max(high, value + (1.0 - min(passed.rate, failed.rate)) / more + half)
    return value, Interval(max(0.0, low), min(1.0, high))


def _by_parts(
    value: float, passed: _Stratum, failed: _Stratum, by_judge: Interval, deflated: float, alpha: float
) -> Interval:
    """MOVER (Zou and Donner 2008): combine each part's distance to its own bound, as if the others were known."""
    slope = passed.rate - failed.rate
    judge = Interval(passed.share - by_judge.low, by_judge.high - passed.share)
    if slope < 0:
        judge = Interval(judge.high, judge.low)
    down, up = [slope * judge.low], [slope * judge.high]
    for stratum in (passed, failed):
        bounds = _of_stratum(stratum, deflated, alpha)
        down.append(stratum.share * (stratum.rate - bounds.low))
        up.append(stratum.share * (bounds.high - stratum.rate))
    return Interval(value - math.hypot(*down), value + math.hypot(*up))


def _of_stratum(stratum: _Stratum, deflated: float, alpha: float) -> Interval:
    if not stratum.labels:
        return Interval(0.0, 1.0)
    worth = stratum.labels / deflated
    if stratum.rate in (0.0, 1.0):
        # Equal labels do not show how alike those of one case are.
        worth = min(worth, stratum.cases)
    worth = max(min(1.0, stratum.cases), worth)
    return exact_interval(stratum.rate * worth, worth, alpha)


def _strata(labelled: Sequence[Labelled], share: float) -> tuple[_Stratum, _Stratum]:
    passed = _stratum([(case, case.both, case.both + case.false_pass) for case in labelled], share)
    failed = _stratum([(case, case.false_fail, case.false_fail + case.neither) for case in labelled], 1.0 - share)
    # If no label is of a kind, use the other kind's rate.
    if not passed.labels:
        return passed._replace(rate=failed.rate), failed
    return passed, failed if failed.labels else failed._replace(rate=passed.rate)


def _stratum(rows: Sequence[tuple[Labelled, int, int]], share: float) -> _Stratum:
    """The stratum from rows of (case, passing labels, labels)."""
    rows = [row for row in rows if row[2]]
    if not rows:
        return _Stratum(share, 0.0, 0.0, 0.0)
    sums = [case.weight / case.answers * of for case, _, of in rows]
    whole = math.fsum(sums)
    rate = math.fsum(case.weight / case.answers * good for case, good, _ in rows) / whole
    labels = whole * whole / math.fsum(each * each / of for each, (_, _, of) in zip(sums, rows, strict=True))
    # A case with labels of both kinds is one case, not two.
    heads = math.fsum(each * each * case.labels / of for each, (case, _, of) in zip(sums, rows, strict=True))
    return _Stratum(share, min(1.0, rate), labels, whole * whole / heads)


def _spread(cases: Sequence[Labelled], labelled: Sequence[Labelled], passed: _Stratum, failed: _Stratum) -> _RateSpread:
    """The sums of squares of how far each case moves the rate."""
    whole = math.fsum(case.weight for case in cases)
    sums = [
        math.fsum(case.weight / case.answers * (case.both + case.false_pass) for case in labelled),
        math.fsum(case.weight / case.answers * (case.false_fail + case.neither) for case in labelled),
    ]
    by_labels, judged = [], []
    for case in cases:
        moved = 0.0
        for stratum, total, good, bad in (
            (passed, sums[0], case.both, case.false_pass),
            (failed, sums[1], case.false_fail, case.neither),
        ):
            if good + bad:
                moved += stratum.share / total * case.weight / case.answers * (good - stratum.rate * (good + bad))
        by_labels.append(moved)
        beyond = case.passed / case.answers - passed.share
        judged.append(case.weight / whole * (passed.rate - failed.rate) * beyond)
    weights = [case.weight * case.labels / case.answers for case in labelled]
    return _RateSpread(
        math.fsum(x * x for x in by_labels),
        math.fsum(y * y for y in judged),
        2.0 * math.fsum(x * y for x, y in zip(by_labels, judged, strict=True)),
        math.fsum(weights) ** 2 / math.fsum(weight * weight for weight in weights),
    )


def _half(spread: _RateSpread, labelled: int, cases: Sequence[Labelled], alpha: float) -> float:
    """Half of Student's interval; labels and judge each have the degrees of freedom of their effective cases."""
    all_heads = math.fsum(case.weight for case in cases) ** 2 / math.fsum(case.weight * case.weight for case in cases)
    few = student_t(_freedom(spread.heads), alpha) ** 2 * labelled / (labelled - 1)
    many = student_t(_freedom(all_heads), alpha) ** 2 * len(cases) / (len(cases) - 1)
    return math.sqrt(few * (spread.labels + max(0.0, spread.common)) + many * spread.judge)


def _freedom(heads: float) -> float:
    """The degrees of freedom of so many effective cases."""
    return max(1.0, heads - 1.0)


def _design_effect(
    labelled: Sequence[Labelled], passed: _Stratum, failed: _Stratum, spread: _RateSpread, alpha: float
) -> float:
    """The factor by which labels of the same cases are worth less than labels of different ones; at least 1."""
    cases, labels = len(labelled), sum(case.labels for case in labelled)
    plain = math.fsum(s.share**2 * s.rate * (1.0 - s.rate) / s.labels for s in (passed, failed) if s.labels)
    if cases < 2 or plain <= 0.0:
        return 1.0
    freedom = _freedom(spread.heads)
    ratio = student_t(freedom, alpha) / student_t(labels - 1, alpha) if labels - 1 > freedom else 1.0
    return max(1.0, spread.labels * cases / (cases - 1) / plain) * ratio * ratio
