"""Intervals for the share of the commonest answer and for the chance that two answers agree (SPEC section 1)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

from evalq.evalcore.statistics.distributions import at_least, at_most, smallest, student_t

__all__ = [
    "ALPHA",
    "collision_interval",
    "collision_probability",
    "mean_interval",
    "mode_share_interval",
    "mode_share_p_value",
]

ALPHA = 0.025
"""The error allowed on either side of an interval of 95 %."""
_FEW_DIFFER, _FEW_AGREE = 3, 6


def mode_share_p_value(m: int, n: int, share: float) -> float:
    """How surprising it is that some answer came ``m`` times in ``n`` if none has a probability above ``share`` > 0.

    The data, not the analyst, chose which answer to look at. At most 1/share answers can be that probable, so up to one
    half the binomial tail counts that often (a union bound). Above, there is room for one only, and the worst that all
    others together do is done by a single one that has the rest, 1 - share.
    """
    tail = at_least(m, n, share)
    return min(1.0, tail / share if share <= 0.5 else tail + at_least(m, n, 1.0 - share))


@lru_cache(maxsize=65536)
def mode_share_interval(m: int, n: int, alpha: float = ALPHA) -> tuple[float, float]:
    """Bounds for the probability of the commonest answer, seen ``m`` of ``n`` times (1 <= m <= n).

    Lower: the smallest share whose p-value reaches ``alpha``. Upper: Clopper and Pearson (1934), the largest p
    with P(X <= m) >= alpha; it needs no correction, since the true mode came at most as often as the one seen most.
    """
    # 1/p times the tail tends to n as p falls: any small share explains an answer seen once.
    low = 0.0 if m == 1 else smallest(lambda p: p > 0.0 and mode_share_p_value(m, n, p) >= alpha, 0.0, 1.0)
    high = 1.0 if m == n else smallest(lambda p: at_most(m, n, p) < alpha, m / n, 1.0)
    return low, high


def collision_probability(counts: Iterable[int]) -> float | None:
    """The unbiased estimate U = sum c(c-1) / (n(n-1)) that two runs answer alike; None for fewer than two runs."""
    present = list(counts)
    n = sum(present)
    return sum(c * (c - 1) for c in present) / (n * (n - 1)) if n > 1 else None


@lru_cache(maxsize=65536)
def collision_interval(estimate: float, m: int, n: int, alpha: float = ALPHA) -> tuple[float, float]:
    """All t with |U - t| <= T * s(t), for U = ``estimate`` of ``n`` >= 2 runs and T Student's t with n - 1 degrees,
    widened where that set is too narrow; ``m`` is how often the commonest answer came.

    s(t)^2 = 4(n-2)/(n(n-1)) (t^1.5 - t^2) + 2t(1-t)/(n(n-1)) bounds the variance of U (Hoeffding 1948, with the sum of
    cubes at most t^1.5). In the root of t the condition is a quartic with two changes of sign, so the set is one
    interval, and it holds the estimate.

    Where nearly all runs agree, or none do, U says little of its own spread; what the mode's share can be says more.
    With the share in [L, H], two runs agree with probability H^2 + (1-H)^2 or L^2 + (1-L)^2 at most, as long as the
    mode has one half or more, and with L^2 at least. The first is allowed for where n - m is at most 3 or a tenth of n,
    the second where m is at most 6: so all that was enumerated is covered in 93 % (tests/bench/exact_coverage.py).
    """
    pairs = n * (n - 1)
    t_squared = student_t(n - 1, alpha) ** 2

    def inside(t: float) -> bool:
        variance = 4 * (n - 2) / pairs * (t * math.sqrt(t) - t * t) + 2 / pairs * t * (1 - t)
        return (estimate - t) ** 2 <= t_squared * variance

    low = 0.0 if estimate <= 0.0 else smallest(inside, 0.0, estimate)
    high = 1.0 if estimate >= 1.0 else smallest(lambda t: not inside(t), estimate, 1.0)
    few_differ, few_agree = n - m <= max(_FEW_DIFFER, n / 10), m <= _FEW_AGREE
    if few_differ or few_agree:  # else the mode's interval is not needed, and to look for it takes long
        least, most = mode_share_interval(m, n, alpha)
        high = max(high, _agreement(most), _agreement(least) if least >= 0.5 else 0.0) if few_differ else high
        low = min(low, least * least) if few_agree else low
    return low, high


def mean_interval(found: Sequence[tuple[float, float, float]], weights: Sequence[float]) -> tuple[float, float] | None:
    """Bounds for the mean of several independent numbers, each (value, low, high); None where none has a weight.

    How far each number may be off, the larger of its distances to its bounds, is added as independent errors are. (Side
    by side, as Zou and Donner (2008) have it, it covers 87 % where most of many numbers stand at their own bound.) The
    numbers are these and no sample of others: of cases that were not asked it says nothing. Of one, they are its own.
    """
    whole = math.fsum(weights)
    counted = [(each, weight) for each, weight in zip(found, weights, strict=True) if weight]
    if len(counted) < 2:
        return counted[0][0][1:] if counted else None
    mean = math.fsum(weight * value for (value, _, _), weight in counted) / whole
    off = math.sqrt(math.fsum((w * max(value - low, high - value)) ** 2 for (value, low, high), w in counted)) / whole
    return max(0.0, mean - off), min(1.0, mean + off)


def _agreement(share: float) -> float:
    """The chance that two runs answer alike where one answer has ``share`` and another the rest."""
    return share * share + (1.0 - share) * (1.0 - share)
