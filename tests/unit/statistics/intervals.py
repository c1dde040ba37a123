"""Intervals of rates, again and by other means: the beta function by its power series, cases as arrays.

Written from docs/reference/checks-statistics.md and the papers that it names; slow, and as plain as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Ends = tuple[float, float]


def incomplete(a: float, b: float, x: float) -> float:
    """I_x(a, b) by the series of the hypergeometric function (Abramowitz and Stegun 26.5.4), mirrored above 1/2."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > 0.5:
        return 1 - incomplete(b, a, 1 - x)
    term = total = 1.0
    n = 0
    while term > 1e-17 * total:
        term *= x * (a + b + n) / (a + 1 + n)
        total += term
        n += 1
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return math.exp(a * math.log(x) + b * math.log(1 - x) - log_beta) / a * total


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


@cache
def quantile_of_t(freedom: float, alpha: float = 0.025) -> float:
    """What a Student variable exceeds with probability ``alpha``."""

    def within(t: float) -> float:
        return alpha - incomplete(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2

    return _root(within, 0.0, 1e3)


def clopper_pearson(passed: float, of: float, alpha: float = 0.025) -> Ends:
    """The chances at which so many passes or more, or so many or fewer, come with probability ``alpha``."""
    low = 0.0 if passed <= 0 else _root(lambda p: incomplete(passed, of - passed + 1, p) - alpha, 0.0, 1.0)
    if passed >= of:
        return low, 1.0
    return low, _root(lambda p: alpha - 1 + incomplete(passed + 1, of - passed, p), 0.0, 1.0)


def heads_of(weights: Numbers) -> float:
    """As many of one weight as these are worth (Kish 1965)."""
    return float(weights.sum() ** 2 / (weights**2).sum())


def between_cases(values: Sequence[float], answers: Sequence[int], weights: Sequence[float]) -> Ends:
    """Where the mean over cases like these lies: Korn and Graubard's, and Student's with one case more at each end."""
    x, n, w = (np.array(each, float) for each in (values, answers, weights))
    x, n, w = x[w > 0], n[w > 0], w[w > 0] / w.sum()
    mean, heads = float((w * x).sum()), heads_of(w)
    if len(x) == 1:
        return clopper_pearson(mean * n[0], n[0])
    variance = len(x) / (len(x) - 1) * float((w**2 * (x - mean) ** 2).sum())
    if np.ptp(x) < 1e-9:
        return clopper_pearson(mean * heads, heads)
    freedom = max(heads - 1, 1)
    worth = min(n.sum(), mean * (1 - mean) / variance)
    if n.sum() - 1 > freedom:
        worth *= (quantile_of_t(n.sum() - 1) / quantile_of_t(freedom)) ** 2
    worth = max(worth, 1)
    low, high = clopper_pearson(mean * worth, worth)
    half = quantile_of_t(freedom) * math.sqrt(variance) * heads / (heads + 1)
    fails, passes = heads * mean / (heads + 1), (heads * mean + 1) / (heads + 1)
    return max(0.0, min(low, fails - half)), min(1.0, max(high, passes + half))


class Cases(NamedTuple):
    """Labelled cases as arrays, those of no weight and no answer left out.

    ``good`` and ``bad`` have a row for what the judge passed and one for what it failed: labels by people.
    """

    good: Numbers
    bad: Numbers
    passed: Numbers
    answers: Numbers
    weights: Numbers

    @classmethod
    def of(cls, rows: Sequence[Sequence[Any]]) -> Cases:
        """Of rows as `Labelled` has them."""
        both, false_pass, false_fail, neither, passed, answers, weights = np.array(rows, float).T
        kept = (weights > 0) & (answers > 0)
        good, bad = np.array([both, false_fail])[:, kept], np.array([false_pass, neither])[:, kept]
        return cls(good, bad, passed[kept], answers[kept], weights[kept] / weights[kept].sum())

    @property
    def labels(self) -> Numbers:
        """Of each case, those of both kinds."""
        every: Numbers = (self.good + self.bad).sum(axis=0)
        return every


def by_labels(cases: Cases) -> tuple[float, Ends]:
    """The corrected rate and its interval, of two labelled cases at least, by the judge's verdicts on all answers."""
    share = np.array([1.0, 0.0]) + np.array([-1.0, 1.0]) * (cases.weights * (1 - cases.passed / cases.answers)).sum()
    each = cases.weights / cases.answers
    labelled = cases.labels > 0
    of = cases.good + cases.bad
    sums = each * of
    seen = sums.sum(axis=1)
    rate = np.divide((each * cases.good).sum(axis=1), seen, out=np.full(2, -1.0), where=seen > 0)
    rate = np.where(rate < 0, rate[::-1], rate)
    value = float((share * rate).sum())

    # Linearised (Angelopoulos et al. 2023): by how much each case moves the rate through its labels, and its verdicts.
    moved = np.zeros(len(each))
    for kind in (0, 1):
        if seen[kind]:
            moved += share[kind] / seen[kind] * each * (cases.good[kind] - rate[kind] * of[kind])
    judged = cases.weights * (rate[0] - rate[1]) * (cases.passed / cases.answers - share[0])
    own, theirs, common = (moved**2).sum(), (judged**2).sum(), 2 * (moved * judged).sum()
    heads, all_heads = heads_of((each * cases.labels)[labelled]), heads_of(cases.weights)
    freedom, many = max(heads - 1, 1), len(each)
    few = labelled.sum()

    # What labels of few cases are worth beside as many of as many cases.
    sizes, alone = np.zeros(2), np.zeros(2)
    for kind in (0, 1):
        there = of[kind] > 0
        if there.any():
            sizes[kind] = seen[kind] ** 2 / (sums[kind][there] ** 2 / of[kind][there]).sum()
            alone[kind] = seen[kind] ** 2 / (sums[kind][there] ** 2 * cases.labels[there] / of[kind][there]).sum()
    plain = sum(share[k] ** 2 * rate[k] * (1 - rate[k]) / sizes[k] for k in (0, 1) if sizes[k])
    effect = 1.0
    if plain > 0:
        total = cases.labels.sum()
        ratio = quantile_of_t(freedom) / quantile_of_t(total - 1) if total - 1 > freedom else 1.0
        effect = max(1.0, own * few / (few - 1) / plain) * ratio**2

    # Zou and Donner (2008): each part by itself.
    low, high = between_cases(list(cases.passed / cases.answers), list(map(int, cases.answers)), list(cases.weights))
    slope = rate[0] - rate[1]
    ends = sorted((slope * (low - share[0]), slope * (high - share[0])))
    down, up = [ends[0]], [ends[1]]
    for kind in (0, 1):
        bounds = (0.0, 1.0)
        if sizes[kind]:
            worth = sizes[kind] / effect
            if rate[kind] in (0, 1):
                worth = min(worth, alone[kind])
            worth = max(worth, min(1.0, alone[kind]))
            bounds = clopper_pearson(rate[kind] * worth, worth)
        down.append(share[kind] * (rate[kind] - bounds[0]))
        up.append(share[kind] * (bounds[1] - rate[kind]))
    found = [value - math.hypot(*down), value + math.hypot(*up)]

    # Student's with one labelled case more, of the kind that would move it most.
    t, wide = quantile_of_t(freedom), quantile_of_t(max(all_heads - 1, 1))
    variance = t**2 * few / (few - 1) * (own + max(0.0, common)) + wide**2 * many / (many - 1) * theirs
    half = math.sqrt(variance) * heads / (heads + 1)
    found[0] = min(found[0], value - max(rate) / (heads + 1) - half)
    found[1] = max(found[1], value + (1 - min(rate)) / (heads + 1) + half)
    return value, (max(0.0, found[0]), min(1.0, found[1]))
