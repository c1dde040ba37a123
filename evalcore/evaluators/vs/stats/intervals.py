"""Intervals for the share of the commonest answer and for the chance that two answers agree (SPEC section 1)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

from evalcore.evaluators.vs.stats.special import at_least, at_most, smallest, student_t

__all__ = ["ALPHA", "collision_interval", "collision_probability", "mode_share_interval", "mode_share_p_value"]

ALPHA = 0.025
"""The error allowed on either side of an interval of 95 %."""


def mode_share_p_value(m: int, n: int, share: float) -> float:
    """How surprising it is that some answer came ``m`` times in ``n`` if none has a probability above ``share`` > 0.

    At most 1/share answers can be that probable, so the binomial tail counts that often (a union bound): the data,
    not the analyst, chose which answer to look at. Above one half there is room for one only.
    """
    candidates = 1.0 / share if share <= 0.5 else 1.0
    return min(1.0, candidates * at_least(m, n, share))


@lru_cache(maxsize=65536)
def mode_share_interval(m: int, n: int, alpha: float = ALPHA) -> tuple[float, float]:
    """Bounds for the probability of the commonest answer, seen ``m`` of ``n`` times (1 <= m <= n).

    Lower: the smallest share whose p-value reaches ``alpha``. Upper: Clopper and Pearson (1934), the largest p
    with P(X <= m) >= alpha; it needs no correction, since the true mode came at most as often as the one seen most.
    """
    if m == 1:
        low = 0.0  # 1/p times the tail tends to n as p falls: any small share explains an answer seen once
    elif mode_share_p_value(m, n, 0.5) >= alpha:
        low = smallest(lambda p: mode_share_p_value(m, n, p) >= alpha, 0.0, 0.5)
    else:
        low = smallest(lambda p: at_least(m, n, p) >= alpha, 0.5, 1.0)
    high = 1.0 if m == n else smallest(lambda p: at_most(m, n, p) < alpha, m / n, 1.0)
    return low, high


def collision_probability(counts: Iterable[int]) -> float | None:
    """The unbiased estimate U = sum c(c-1) / (n(n-1)) that two runs answer alike; None for fewer than two runs."""
    present = list(counts)
    n = sum(present)
    return sum(c * (c - 1) for c in present) / (n * (n - 1)) if n > 1 else None


@lru_cache(maxsize=65536)
def collision_interval(estimate: float, n: int, alpha: float = ALPHA) -> tuple[float, float]:
    """All t with |U - t| <= T * s(t), for U = ``estimate`` of ``n`` >= 2 runs and T Student's t with n - 1 degrees.

    s(t)^2 = 4(n-2)/(n(n-1)) (t^1.5 - t^2) + 2t(1-t)/(n(n-1)) bounds the variance of U (Hoeffding 1948, with the sum of
    cubes at most t^1.5). In the root of t the condition is a quartic with two changes of sign, so the set is one
    interval, and it holds the estimate.
    """
    pairs = n * (n - 1)
    t_squared = student_t(n - 1, alpha) ** 2

    def inside(t: float) -> bool:
        variance = 4 * (n - 2) / pairs * (t * math.sqrt(t) - t * t) + 2 / pairs * t * (1 - t)
        return (estimate - t) ** 2 <= t_squared * variance

    low = 0.0 if estimate <= 0.0 else smallest(inside, 0.0, estimate)
    high = 1.0 if estimate >= 1.0 else smallest(lambda t: not inside(t), estimate, 1.0)
    return low, high
