"""From an interval to a verdict, to the runs still needed, and to one statement over many cases."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal

__all__ = ["MOST_RUNS", "Verdict", "fisher_combined", "holm", "rejected", "runs_to_decide", "verdict"]

Verdict = Literal["collapsed", "diverse", "inconclusive", "no_data"]

MOST_RUNS = 1_000_000
"""Beyond this many runs in all, `runs_to_decide` does not look."""


def verdict(low: float, high: float, share: float) -> Verdict:
    """Where the interval of the mode's share lies: above ``share``, below it, or across it."""
    if low > share:
        return "collapsed"
    return "diverse" if high < share else "inconclusive"


@lru_cache(maxsize=4096)  # cases of one report have the same number of runs, and so often the same counts
def runs_to_decide(m: int, n: int, share: float, settled: Callable[[int, int, float], bool]) -> int | None:
    """Further runs after which about every second case like this has a verdict: those whose mode then has its share of
    ``m`` in ``n``, or one farther from the threshold.

    ``settled`` says of (m, n, share) whether there is one.

    0 when decided. None when MOST_RUNS would not do, as where the share seen is the threshold itself. Found by doubling
    and halving over whole runs; as counts are whole, a slightly smaller number may do too.
    """

    def enough(total: int) -> bool:
        # Rounded towards the threshold, so that rounding alone never decides.
        toward = m * total // n if m > share * n else -(-m * total // n)
        return settled(toward, total, share)

    if settled(m, n, share):
        return 0
    short, long = n, n + 1
    while not enough(long):
        if long >= MOST_RUNS:
            return None
        short, long = long, min(2 * long, MOST_RUNS)
    while long - short > 1:
        middle = (short + long) // 2
        short, long = (short, middle) if enough(middle) else (middle, long)
    return long - n


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) adjusted p-values, in the given order: those at most alpha hold together with error alpha."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        # Never below an earlier one: a hypothesis is rejected only where all with smaller p-values are.
        highest = max(highest, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def rejected(p_values: Sequence[float], alpha: float) -> int:
    """How many of these p-values, the smallest first, Holm's procedure (1979) rejects with error ``alpha`` in all."""
    # The first that is not surprising enough ends it, whatever those after it are.
    return next((rank for rank, p in enumerate(p_values) if p > alpha / (len(p_values) - rank)), len(p_values))


def fisher_combined(p_values: Sequence[float]) -> float:
    """Fisher's (1932) p-value of independent p-values taken together: that all their hypotheses hold; 1 for none.

    The chance that a chi-squared variable of 2k degrees exceeds -2 sum log p. For a whole k that is the chance of fewer
    than k events of a Poisson variable with mean -sum log p. A p-value that is too large, as those of counts are, makes
    this one too large as well.
    """
    if not p_values or min(p_values) <= 0.0:
        return 0.0 if p_values else 1.0
    mean = -math.fsum(map(math.log, p_values))
    if mean <= 0.0:
        return 1.0
    # Each term by its logarithm, from the largest: for thousands of cases the terms themselves are no doubles.
    logs = [j * math.log(mean) - mean - math.lgamma(j + 1) for j in range(len(p_values))]
    most = max(logs)
    return min(1.0, math.exp(most) * math.fsum(math.exp(each - most) for each in logs))
