"""The incomplete beta function and what follows from it: binomial tails and Student's t, with the math module alone.

Accurate to about 1e-11 for parameters up to a hundred thousand, where the logarithms of the gamma
function set the limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

_NEAR_ONE = 4e-16  # about two units in the last place of 1: a step this near changes nothing more
_NEVER_ZERO = 1e-300
_HALVINGS = 100  # 2^-100 is 1e-30
_THIRDS = 80  # (2/3)^80 is 1e-14
_FARTHEST = 1e12


def beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction F with B_x(a, b) = x^a (1-x)^b F / a, for a > 0, b >= 0 and x in [0, (a+1)/(a+b+2)].

    Evaluated from the front by the modified method of Lentz (Abramowitz and Stegun 26.5.8). Beyond the
    given x it converges slowly; the caller mirrors.
    """
    # Lentz's method divides by partial results, one of which may be exactly zero. (That stands in each line: to call a
    # function for it takes as long as the sum.)
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
    # Mirrored: beyond that x the fraction converges slowly.
    return 1.0 - math.exp(log_front) * beta_fraction(b, a, 1.0 - x) / b


def at_least(m: int, n: int, p: float) -> float:
    """P(X >= m) for X binomial with n trials of probability p."""
    if m <= 0 or m > n:
        return 1.0 if m <= 0 else 0.0
    return beta_cdf(m, n - m + 1, p)


def at_most(m: int, n: int, p: float) -> float:
    """P(X <= m) for X binomial with n trials of probability p; by its own tail, so that small values are exact."""
    return at_least(n - m, n, 1.0 - p)


def smallest(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The smallest x in [low, high] where ``holds`` (false, then true, and true at ``high``), to 1e-30 or a bit."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        # No double is left between the two.
        if middle in (low, high):
            break
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def lowest(exponent: Callable[[float], float], step: float) -> float:
    """The least value of a convex function over t >= 0, about; ``step`` is a t to begin with, above 0.

    For bounds that hold at every t: one that is not quite the least still bounds.
    """
    top = step
    # It is convex: once doubling falls no more, the least lies below the doubled one.
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
    """The t that a Student variable of ``freedom`` > 0 degrees exceeds with probability ``alpha`` < 1/2."""
    # Solved in y = t^2 / (freedom + t^2), which is small, and so exact, where freedom is large.
    inside = 1.0 - 2.0 * alpha
    y = smallest(lambda y: beta_cdf(0.5, freedom / 2.0, y) >= inside, 0.0, 1.0)
    return math.sqrt(freedom * y / (1.0 - y))
