"""A confidence sequence for the share of the commonest answer: bounds that hold at every number of runs at once.

An interval for a fixed number of runs errs far more often than it says when one looks after every run and stops at
the first verdict. Here one may: each bound inverts tests by e-values. An e-value is a nonnegative process with mean 1
under the share tested, so by Ville's inequality (1939) it ever reaches 1/alpha with probability alpha at most. It is a
likelihood ratio averaged over the shares on the other side of the one tested (Robbins 1970), and needs only how often
the commonest answer came: the order of the runs does not matter. docs/reference/vs-stopping.md has the proofs.
"""

from __future__ import annotations

import math
from functools import lru_cache

from evalq.evalcore.statistics.distributions import beta_cdf, smallest

__all__ = [
    "log_e_above",
    "log_e_below",
    "mode_share_sequence",
    "rate_sequence",
    "sequence_p_value",
    "surely_above",
    "surely_below",
]

ALPHA = 0.025
"""The error allowed on either side."""

_NEAR_ONE = 0.5
"""The weight of a share t above the one tested goes as (1-t)^(this - 1): most near 1, since collapsed agents repeat."""


def log_e_above(m: int, n: int, share: float) -> float:
    """The log of the e-value that an answer seen ``m`` of ``n`` times has a probability above ``share`` in (0, 1).

    The mean of (t/share)^m ((1-t)/(1-share))^(n-m), where (1-t)/(1-share) is Beta(1/2, 1) on (0, 1). It rises with
    ``m`` and is a martingale at a probability of ``share``, a supermartingale below.
    """
    rest = n - m + _NEAR_ONE
    area = _log_beta(rest, m + 1.0, 1.0 - share)
    return math.log(_NEAR_ONE) + area - m * math.log(share) - rest * math.log1p(-share)


def log_e_below(m: int, n: int, share: float) -> float:
    """The log of the e-value that an answer seen ``m`` of ``n`` times has a probability below ``share`` in (0, 1).

    The mean of (t/share)^m ((1-t)/(1-share))^(n-m) over t uniform on (0, share). It falls with ``m`` and is a
    martingale at a probability of ``share``, a supermartingale above.
    """
    return _log_beta(m + 1.0, n - m + 1.0, share) - (m + 1) * math.log(share) - (n - m) * math.log1p(-share)


def _log_beta(a: float, b: float, x: float) -> float:
    """The log of the incomplete beta function B_x(a, b), which is no longer divided by B(a, b)."""
    regular = beta_cdf(a, b, x)
    # Underflowed: an e-value of 0 is no evidence, so this can only keep a verdict back.
    if regular <= 0.0:
        return -math.inf
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b) + math.log(regular)


def sequence_p_value(m: int, n: int, share: float, alpha: float = ALPHA) -> float:
    """How surprising ``m`` of ``n`` is if no answer has a probability above ``share``, however often one has looked.

    The chance that it is ever at most a level is that level at most, for levels up to ``alpha``.
    """
    # Beyond 700 the exponential is no double any more.
    return min(1.0, _answers(share, alpha) * math.exp(min(700.0, -log_e_above(m, n, share))))


def _answers(share: float, alpha: float) -> float:
    """By how much the chance of an e-value of 1/alpha grows because the data choose the answer (a union bound).

    1/share; above one half only one answer can be as probable as ``share``, and what the others add falls by
    (1-share)/share with each of the runs that an e-value of 1/alpha takes at least.
    """
    return 1.0 / share if share <= 0.5 else 1.0 + ((1.0 - share) / share) ** _fewest(alpha)


@lru_cache(maxsize=64)
def _fewest(alpha: float) -> int:
    """The fewest runs, all alike, whose e-value against one half is 1/alpha; against more it takes no fewer."""
    n = 1
    while log_e_above(n, n, 0.5) < -math.log(alpha):
        n += 1
    return n


def surely_above(m: int, n: int, share: float, alpha: float = ALPHA) -> bool:
    """Whether the commonest answer, seen ``m`` of ``n`` times, has a probability above ``share``.

    The chance that it is ever said wrongly is ``alpha`` at most.
    """
    return log_e_above(m, n, share) >= math.log(_answers(share, alpha) / alpha)


def surely_below(m: int, n: int, share: float, alpha: float = ALPHA) -> bool:
    """Whether it has one below ``share``, said wrongly as rarely."""
    # Needs no correction: the true mode came at most as often as the one seen most, and the e-value falls with m.
    return log_e_below(m, n, share) >= -math.log(alpha)


@lru_cache(maxsize=65536)
def mode_share_sequence(m: int, n: int, alpha: float = ALPHA) -> tuple[float, float]:
    """Bounds for the probability of the commonest answer, seen ``m`` of ``n`` times (1 <= m <= n).

    The chance that the lower one is ever above the truth is at most ``alpha``, and the same for the upper one below it.
    """
    low = 0.0 if m == 1 else smallest(lambda p: not surely_above(m, n, p, alpha), 0.0, m / n)
    high = 1.0 if m == n else smallest(lambda p: surely_below(m, n, p, alpha), m / n, 1.0)
    return low, high


@lru_cache(maxsize=65536)
def rate_sequence(m: int, n: int, alpha: float = ALPHA) -> tuple[float, float]:
    """Bounds for the chance of what came ``m`` of ``n`` times, 0 <= m <= n, and was chosen beforehand.

    The chance that the lower one is ever above the truth is at most ``alpha``, and the same for the upper one below it.
    """
    enough = -math.log(alpha)
    low = 0.0 if m == 0 else smallest(lambda p: log_e_above(m, n, p) < enough, 0.0, m / n)
    high = 1.0 if m == n else smallest(lambda p: log_e_below(m, n, p) >= enough, m / n, 1.0)
    return low, high
