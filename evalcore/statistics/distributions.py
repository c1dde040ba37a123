"""The incomplete beta function, binomial tails and Student's t, with only the standard library.

Results are accurate to about 1e-11 for parameters up to 100,000; beyond, the error of `math.lgamma` dominates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

_NEAR_ONE = 4e-16  # about two units in the last place of 1: a factor this near to 1 changes nothing more
_NEVER_ZERO = 1e-300
_HALVINGS = 100  # 2^-100 is 1e-30
_THIRDS = 80  # (2/3)^80 is 1e-14
_FARTHEST = 1e12


def beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction F with B_x(a, b) = x^a (1-x)^b F / a, for a > 0, b >= 0 and x in [0, (a+1)/(a+b+2)].

    Evaluated by the modified method of Lentz (Abramowitz and Stegun 26.5.8). For larger x it converges slowly; callers
    use I_x(a, b) = 1 - I_(1-x)(b, a) there.
    """
    # Lentz's method divides by partial results, which may be exactly zero. Each line replaces a zero itself: a function
    # call for it would take as long as the sum.
    both, ahead = a + b, 1.0
    behind = 1.0 / (1.0 - both * x / (a + 1.0) or _NEVER_ZERO)
    value = behind
    m = 0
    while True:
        m += 1
        here = a + 2 * m
        even = m * (b - m) * x / ((here - 1) * here)
        behind = 1.0 / (1.0 + even * behind or _NEVER_ZERO)
        ahead = 1.0 + even / ahead or _NEVER_ZERO
        value *= behind * ahead
        odd = -(a + m) * (both + m) * x / (here * (here + 1))
        behind = 1.0 / (1.0 + odd * behind or _NEVER_ZERO)
        ahead = 1.0 + odd / ahead or _NEVER_ZERO
        step = behind * ahead
        value *= step
        if abs(step - 1.0) < _NEAR_ONE:
            return value


def beta_cdf(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), for a, b > 0 and x in [0, 1]."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x <= (a + 1.0) / (a + b + 2.0):
        return math.exp(log_front) * beta_fraction(a, b, x) / a
    # Use the symmetry: for this x the fraction itself converges slowly.
    return 1.0 - math.exp(log_front) * beta_fraction(b, a, 1.0 - x) / b


def at_least(m: int, n: int, p: float) -> float:
    """P(X >= m) for a binomial X with n trials and success probability p."""
    if m <= 0 or m > n:
        return 1.0 if m <= 0 else 0.0
    return beta_cdf(m, n - m + 1, p)


def at_most(m: int, n: int, p: float) -> float:
    """P(X <= m) for a binomial X with n trials and success probability p; small values keep their relative accuracy."""
    return at_least(n - m, n, 1.0 - p)


def smallest(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The smallest x in [low, high] for which ``holds(x)``, by bisection to 1e-30 or adjacent doubles.

    ``holds`` must be monotone, false before true, and true at ``high``.
    """
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        # low and high are adjacent doubles.
        if middle in (low, high):
            break
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def lowest(exponent: Callable[[float], float], step: float) -> float:
    """Approximately the minimum of a convex function over t >= 0; ``step`` > 0 is a first t.

    Meant for bounds that hold at every t, where a value slightly above the minimum is still a bound.
    """
    top = step
    # By convexity: once doubling t lowers the value no more, the minimum is below the doubled t.
    while exponent(2 * top) < exponent(top) and top < _FARTHEST:
        top *= 2
    low, high = 0.0, 2 * top
    for _ in range(_THIRDS):
        third = (high - low) / 3
        if exponent(low + third) < exponent(high - third):
            high -= third
        else:
            low += third
    return exponent((low + high) / 2)


@lru_cache(maxsize=4096)
def student_t(freedom: float, alpha: float) -> float:
    """The upper ``alpha``-quantile, ``alpha`` < 1/2, of Student's t with ``freedom`` > 0 degrees of freedom."""
    # Solve for y = t^2 / (freedom + t^2): it is small, and therefore accurate, for large freedom.
    inside = 1.0 - 2.0 * alpha
    y = smallest(lambda y: beta_cdf(0.5, freedom / 2.0, y) >= inside, 0.0, 1.0)
    return math.sqrt(freedom * y / (1.0 - y))
