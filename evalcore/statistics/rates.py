"""Pass rates and their intervals: of one case over its repeats, and of many cases as clusters of repeats."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import NamedTuple

from evalq.evalcore.statistics.distributions import beta_cdf, smallest, student_t

ALPHA = 0.025
"""The error probability on each side of a 95 % interval."""

_ROUNDING = 1e-12
"""Two different rates over at most a million answers differ by more than this."""


class Interval(NamedTuple):
    """The bounds of a rate, both within [0, 1]."""

    low: float
    high: float


class Rate(NamedTuple):
    """The pass rate of one case: ``value`` in [0, 1] over ``answers`` answers, and the case's weight in a mean.

    Cases of one ``cluster`` are not independent, and an interval takes them as one.
    """

    value: float
    answers: int
    weight: float = 1.0
    cluster: str = ""


def _by_cluster(rates: Sequence[Rate], times: Sequence[int]) -> tuple[list[Rate], list[int]]:
    """The rates and how often each is there, with those of one cluster as one: their mean by weight."""
    if not any(rate.cluster for rate in rates):
        return list(rates), list(times)
    alone = [(rate, count) for rate, count in zip(rates, times, strict=True) if not rate.cluster]
    clusters: dict[str, list[tuple[Rate, int]]] = {}
    for rate, count in zip(rates, times, strict=True):
        if rate.cluster:
            clusters.setdefault(rate.cluster, []).append((rate, count))
    for found in clusters.values():
        weight = math.fsum(rate.weight * count for rate, count in found)
        value = math.fsum(rate.weight * rate.value * count for rate, count in found) / weight
        alone.append((Rate(value, sum(rate.answers * count for rate, count in found), weight), 1))
    return [rate for rate, _ in alone], [count for _, count in alone]


@lru_cache(maxsize=65536)
def exact_interval(passed: float, answers: float, alpha: float = ALPHA) -> Interval:
    """Clopper and Pearson's (1934) bounds of a pass probability, each wrong with a probability of at most ``alpha``.

    ``passed`` and ``answers`` may be fractional, because effective sample sizes are.
    """
    low, high = 0.0, 1.0
    # Without a pass the lower bound is 0, without a failure the upper bound is 1; neither needs solving.
    if passed > 0:
        low = smallest(lambda p: beta_cdf(passed, answers - passed + 1, p) >= alpha, 0.0, passed / answers)
    if passed < answers:
        high = smallest(lambda p: beta_cdf(answers - passed, passed + 1, 1.0 - p) < alpha, passed / answers, 1.0)
    return Interval(low, high)


@lru_cache(maxsize=65536)
def pass_at_k(passed: int, answers: int, k: int) -> float | None:
    """pass@k: the unbiased estimate of P(at least one of ``k`` answers passes), 1 - C(n-c, k) / C(n, k).

    Here c is ``passed`` and n is ``answers`` (Chen et al. 2021). None for fewer than ``k`` answers.
    """
    none = pass_hat_k(answers - passed, answers, k)
    return None if none is None else 1.0 - none


@lru_cache(maxsize=65536)
def pass_hat_k(passed: int, answers: int, k: int) -> float | None:
    """pass^k: the unbiased estimate of P(all of ``k`` answers pass), C(c, k) / C(n, k) (Yao et al. 2024).

    Here c is ``passed`` and n is ``answers``. None for fewer than ``k`` answers.
    """
    if answers < k:
        return None
    # The probability that k answers drawn without replacement all pass.
    return math.prod(max(0, passed - at) / (answers - at) for at in range(k))


def exact_sum(values: Iterable[float], times: Iterable[int]) -> float:
    """The sum of values that occur so many times each, rounded once: the same as of all of them in any order."""
    return math.fsum(chain.from_iterable(map(repeat, values, times)))


def mean_rate(rates: Sequence[Rate], times: Sequence[int]) -> float | None:
    """The mean by weight over cases of the same rates, so many of each; None without weights."""
    whole = exact_sum((rate.weight for rate in rates), times)
    return exact_sum((rate.weight * rate.value for rate in rates), times) / whole if whole else None


def clustered(
    rates: Sequence[Rate], alpha: float = ALPHA, times: Sequence[int] = (), unseen: int = 1
) -> Interval | None:
    """The interval of the mean pass rate over cases like these, which are clusters of answers; None without weights.

    ``times`` says how many cases have each rate; one each without it.

    The result is the hull of two intervals. One is Korn and Graubard's (1998): Clopper and Pearson's for the effective
    number of answers, by the variance between cases. The other is Student's over the cases and ``unseen`` more, which
    fail at the lower end and pass at the upper; they allow for a rare kind of case that is not among these. If all
    cases have one rate, their variance is unknown, and each counts as one answer. For a single case, the interval is
    about that case alone.
    """
    several = times or [1] * len(rates)
    counted = [rate for rate in rates if rate.weight > 0]
    number = [count for rate, count in zip(rates, several, strict=True) if rate.weight > 0]
    counted, number = _by_cluster(counted, number)
    if not counted:
        return None
    whole, cases = exact_sum((rate.weight for rate in counted), number), sum(number)
    mean = min(1.0, max(0.0, exact_sum((rate.weight * rate.value for rate in counted), number) / whole))
    # The effective number of cases (Kish): near 1 if one case has nearly all of the weight.
    heads = whole * whole / exact_sum((rate.weight * rate.weight for rate in counted), number)
    if cases == 1:
        # One case says nothing about others: this interval is about its own rate.
        return exact_interval(mean * counted[0].answers, counted[0].answers, alpha)
    spread = exact_sum(((rate.weight * (rate.value - mean)) ** 2 for rate in counted), number)
    variance = cases / (cases - 1) * spread / (whole * whole)
    # Compare with a tolerance: a mean by unequal weights is rounded.
    alike = max(rate.value for rate in counted) - min(rate.value for rate in counted) < _ROUNDING
    if alike or variance <= 0.0:
        return exact_interval(mean * heads, heads, alpha)
    # The degrees of freedom of as many cases of equal weight: if few cases have most of it, few show the variance.
    freedom = max(1.0, heads - 1.0)
    t = student_t(freedom, alpha)
    answers = sum(rate.answers * count for rate, count in zip(counted, number, strict=True))
    effective = _effective(answers, freedom, mean, variance, alpha)
    low, high = exact_interval(mean * effective, effective, alpha)
    half = t * heads * math.sqrt(variance) / (heads + unseen)
    return Interval(
        max(0.0, min(low, heads * mean / (heads + unseen) - half)),
        min(1.0, max(high, (heads * mean + unseen) / (heads + unseen) + half)),
    )


def _effective(answers: int, freedom: float, mean: float, variance: float, alpha: float) -> float:
    """The effective number of answers: how many independent ones would determine the mean as well."""
    # At most the actual number: cases that differ less than by chance add no answers.
    worth = min(float(answers), mean * (1.0 - mean) / variance)
    ratio = student_t(answers - 1, alpha) / student_t(freedom, alpha) if answers - 1 > freedom else 1.0
    return max(1.0, worth * ratio * ratio)
