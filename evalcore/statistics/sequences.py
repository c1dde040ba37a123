"""Verdicts at any time: confidence sequences for a share, and errors spent over a known number of interim looks."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from evalq.evalcore.statistics.distributions import beta_cdf, smallest

ALPHA = 0.025
"""The error allowed on either side."""

_NEAR_ONE = 0.5
"""A share t above the tested one has the weight (1-t)^(this - 1), which is largest near 1: collapsed agents repeat."""


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
    # An underflow makes the e-value 0, which is no evidence, so it can only prevent a verdict.
    if regular <= 0.0:
        return -math.inf
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b) + math.log(regular)


def sequence_p_value(m: int, n: int, share: float, alpha: float = ALPHA) -> float:
    """The p-value of ``m`` of ``n`` if no answer has a probability above ``share``, valid after any number of looks.

    The chance that it is ever at or below a level is at most that level, for levels up to ``alpha``.
    """
    # Beyond 700 the exponential overflows a double.
    return min(1.0, _answers(share, alpha) * math.exp(min(700.0, -log_e_above(m, n, share))))


def _answers(share: float, alpha: float) -> float:
    """The factor of the chance of an e-value of 1/alpha because the data choose the answer (a union bound).

    Up to one half it is 1/share. Above, only one answer can be as probable as ``share``. The part of the others falls
    by (1-share)/share with each of the runs that an e-value of 1/alpha takes at least.
    """
    return 1.0 / share if share <= 0.5 else 1.0 + ((1.0 - share) / share) ** _fewest(alpha)


@lru_cache(maxsize=64)
def _fewest(alpha: float) -> int:
    """The fewest equal runs with an e-value of 1/alpha against one half; larger shares take at least as many."""
    n = 1
    while log_e_above(n, n, 0.5) < -math.log(alpha):
        n += 1
    return n


def surely_above(m: int, n: int, share: float, alpha: float = ALPHA) -> bool:
    """Whether the commonest answer, seen ``m`` of ``n`` times, has a probability above ``share``.

    The chance that it is ever wrong is at most ``alpha``.
    """
    return log_e_above(m, n, share) >= math.log(_answers(share, alpha) / alpha)


def surely_below(m: int, n: int, share: float, alpha: float = ALPHA) -> bool:
    """Whether the commonest answer has a probability below ``share``; the chance of ever being wrong is the same."""
    # This needs no correction: the true mode came at most as often as the observed one, and the e-value falls with m.
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
    """Bounds for the chance of an event, chosen beforehand, that came ``m`` of ``n`` times, 0 <= m <= n.

    The chance that the lower one is ever above the truth is at most ``alpha``, and the same for the upper one below it.
    """
    enough = -math.log(alpha)
    low = 0.0 if m == 0 else smallest(lambda p: log_e_above(m, n, p) < enough, 0.0, m / n)
    high = 1.0 if m == n else smallest(lambda p: log_e_below(m, n, p) >= enough, m / n, 1.0)
    return low, high


# Verdicts after every run up to a known cap, with the error spent exactly over the cap. A confidence sequence allows
# any number of looks. With at most ``of`` runs that is more than needed, and spending decides more cases. The count of
# an event with probability p is a binomial walk, so the chance that it ever crosses given limits is a finite sum. The
# limits are the widest, run by run, whose chance of ever being crossed at the threshold stays within the error spent so
# far (Lan and DeMets 1983). So a verdict depends on (m, n, of) alone. docs/reference/vs-stopping.md has the proofs.

MOST_LOOKS = 5000
"""The largest cap: limits take time in its square, and beyond it a confidence sequence loses little."""
_EARLY = 0.3
"""The part of the error to spend evenly in the log of the runs, so that plain cases stop soon. The rest goes with the
cube of the runs, so that most of it is left for close cases at the end."""
_DROPPED = 1e-18
"""A walk drops end points with less probability, which count as error."""


class Walk:
    """The count of an event with probability ``p``, run by run, as long as it crosses no limit."""

    def __init__(self, p: float) -> None:
        self._p = p
        self.low = 0  # the count of the first chance
        self.chances = [1.0]
        self.gone = 0.0
        """The chance that the walk crossed a limit so far, or was dropped."""

    def step(self) -> None:
        """Make one more run."""
        p, q, before = self._p, 1.0 - self._p, self.chances
        self.chances = [a * q + b * p for a, b in zip([*before, 0.0], [0.0, *before], strict=True)]
        while self.chances and self.chances[-1] < _DROPPED:
            self.gone += self.chances.pop()
        skip = 0
        while skip < len(self.chances) and self.chances[skip] < _DROPPED:
            self.gone += self.chances[skip]
            skip += 1
        del self.chances[:skip]
        self.low += skip

    @property
    def end(self) -> int:
        """The first count above all possible ones."""
        return self.low + len(self.chances)

    def at(self, count: int) -> float:
        """The chance that the count is ``count`` now."""
        index = count - self.low
        return self.chances[index] if 0 <= index < len(self.chances) else 0.0

    def stop_from(self, count: int) -> None:
        """Stop the walks at ``count`` or above."""
        keep = max(0, count - self.low)
        self.gone += sum(self.chances[keep:])
        del self.chances[keep:]

    def stop_to(self, count: int) -> None:
        """Stop the walks at ``count`` or below."""
        drop = max(0, min(len(self.chances), count + 1 - self.low))
        self.gone += sum(self.chances[:drop])
        del self.chances[:drop]
        self.low += drop


def spent(n: int, of: int) -> float:
    """The part of the error that may be spent in ``n`` of ``of`` runs; 1 at the end."""
    early = math.log(1 + n) / math.log(1 + of)
    return _EARLY * early + (1.0 - _EARLY) * (n / of) ** 3


class SpendingLimits(NamedTuple):
    """By number of runs, from 0: the least count that is surely above the threshold, and the largest surely below it.

    A limit out of reach is n + 1, or -1.
    """

    above: tuple[int, ...]
    below: tuple[int, ...]


@lru_cache(maxsize=256)
def rate_limits(share: float, of: int, alpha: float = ALPHA) -> SpendingLimits:
    """The limits for a chance of ``share`` in (0, 1) over ``of`` runs at most: either is ever crossed wrongly with
    probability ``alpha`` at most.

    A larger chance is ahead of a smaller one at every run, if both are drawn from the same numbers; so the chance that
    a limit is ever crossed on the wrong side is largest at the threshold itself.
    """
    upper, lower = Walk(share), Walk(share)
    above, below = [1], [-1]
    for n in range(1, of + 1):
        upper.step()
        room, count = alpha * spent(n, of) - upper.gone, upper.end  # beyond it nothing is left to cross
        # Never cross the threshold itself: such a limit would decide a case that does not reach it.
        while count - 1 > share * n and (more := upper.at(count - 1)) <= room:
            room -= more
            count -= 1
        upper.stop_from(count)
        above.append(count)
        lower.step()
        room, count = alpha * spent(n, of) - lower.gone, lower.low - 1  # below it nothing is left
        while count + 1 < share * n and (more := lower.at(count + 1)) <= room:
            room -= more
            count += 1
        lower.stop_to(count)
        below.append(count)
    return SpendingLimits(tuple(above), tuple(below))
