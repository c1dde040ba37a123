"""Rates of passes: of one case by its repeats, and of many cases, each of which is a cluster of its repeats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from evalq.evalcore.statistics.distributions import beta_cdf, smallest, student_t

ALPHA = 0.025
"""The error allowed on either side of an interval of 95 %."""

_ROUNDING = 1e-12
"""Rates of up to a million answers that differ, differ by more."""


class Interval(NamedTuple):
    """Where a rate lies."""

    low: float
    high: float


class Rate(NamedTuple):
    """One case's share: ``value`` over ``answers`` answers, and what it counts for."""

    value: float
    answers: int
    weight: float = 1.0


@lru_cache(maxsize=65536)
def exact_interval(passed: float, answers: float, alpha: float = ALPHA) -> Interval:
    """Bounds of the chance of a pass by Clopper and Pearson (1934), each wrong with probability ``alpha`` at most.

    Numbers that are not whole are taken as they are: an effective number of answers seldom is.
    """
    low, high = 0.0, 1.0
    # No failure at all leaves the upper bound at 1, no pass the lower one at 0: there is nothing to solve for.
    if passed > 0:
        low = smallest(lambda p: beta_cdf(passed, answers - passed + 1, p) >= alpha, 0.0, passed / answers)
    if passed < answers:
        high = smallest(lambda p: beta_cdf(answers - passed, passed + 1, 1.0 - p) < alpha, passed / answers, 1.0)
    return Interval(low, high)


@lru_cache(maxsize=65536)
def pass_at_k(passed: int, answers: int, k: int) -> float | None:
    """The unbiased estimate that one of ``k`` answers passes, 1 - C(n-c, k) / C(n, k) (Chen et al. 2021).

    None for fewer answers than k.
    """
    none = pass_hat_k(answers - passed, answers, k)
    return None if none is None else 1.0 - none


@lru_cache(maxsize=65536)
def pass_hat_k(passed: int, answers: int, k: int) -> float | None:
    """The unbiased estimate that all of ``k`` answers pass, C(c, k) / C(n, k) (Yao et al. 2024); None as above."""
    if answers < k:
        return None
    # Without replacement: all k are passes.
    return math.prod(max(0, passed - at) / (answers - at) for at in range(k))


def clustered(rates: Sequence[Rate], alpha: float = ALPHA) -> Interval | None:
    """Where the mean over cases like these lies; None where none has a weight.

    Cases are clusters of their answers. The hull of two: Korn and Graubard's interval (1998), which is Clopper and
    Pearson's for as many answers as the spread between cases is worth; and Student's over the cases with one more that
    fails at the lower end, or passes at the upper, since a rare case of another kind may not be among these. Where the
    cases do not differ, nothing is known of their spread, and each counts as one answer.
    A single case stands for itself.
    """
    counted = [rate for rate in rates if rate.weight > 0]
    if not counted:
        return None
    whole = math.fsum(rate.weight for rate in counted)
    mean = min(1.0, max(0.0, math.fsum(rate.weight * rate.value for rate in counted) / whole))
    # By weight: where one case has nearly all of it, there is hardly more than one.
    heads = whole * whole / math.fsum(rate.weight * rate.weight for rate in counted)
    if len(counted) == 1:
        # Of other cases it says nothing: this is where its own rate lies.
        return exact_interval(mean * counted[0].answers, counted[0].answers, alpha)
    spread = math.fsum((rate.weight * (rate.value - mean)) ** 2 for rate in counted)
    variance = len(counted) / (len(counted) - 1) * spread / (whole * whole)
    # Also where they are one rate but for rounding, of which a mean by unequal weights has some.
    alike = max(rate.value for rate in counted) - min(rate.value for rate in counted) < _ROUNDING
    if alike or variance <= 0.0:
        return exact_interval(mean * heads, heads, alpha)
    # As many degrees of freedom as cases of one weight would have: where few have most of it, few say how they differ.
    freedom = max(1.0, heads - 1.0)
    t = student_t(freedom, alpha)
    effective = _effective(sum(rate.answers for rate in counted), freedom, mean, variance, alpha)
    low, high = exact_interval(mean * effective, effective, alpha)
    half = t * heads * math.sqrt(variance) / (heads + 1)
    return Interval(
        max(0.0, min(low, heads * mean / (heads + 1) - half)),
        min(1.0, max(high, (heads * mean + 1) / (heads + 1) + half)),
    )


def _effective(answers: int, freedom: float, mean: float, variance: float, alpha: float) -> float:
    """As how many independent answers the mean counts."""
    # Never more than there are: cases that differ less than chance has it add no answers.
    worth = min(float(answers), mean * (1.0 - mean) / variance)
    ratio = student_t(answers - 1, alpha) / student_t(freedom, alpha) if answers - 1 > freedom else 1.0
    return max(1.0, worth * ratio * ratio)
