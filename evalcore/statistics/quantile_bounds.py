"""Bounds of a quantile by order statistics, exact for independent answers whatever their distribution.

Of n answers the number at or below the true q-quantile is binomial. So the r-th smallest answer lies above the
quantile with probability P(Bin(n, q) <= r - 1), and the s-th smallest below it with probability P(Bin(n, q) >= s)
(Thompson 1936). Answers of several fixed cases, each with its own distribution, are a mixture: then the count varies
less than a binomial one (Hoeffding 1956), and both bounds err no more often.
"""

from __future__ import annotations

import math
from functools import lru_cache

from evalq.evalcore.statistics.distributions import at_least, at_most

__all__ = ["answers_needed", "lower_rank", "upper_rank"]


@lru_cache(maxsize=65536)
def lower_rank(n: int, share: float, alpha: float) -> int:
    """The largest rank whose answer is above the ``share``-quantile with probability ``alpha`` at most; 0: none."""
    if share <= 0.0:
        return 0
    # By halves: the chance rises with the rank.
    low, high = 0, min(n, math.ceil(n * min(1.0, share)) + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if at_most(middle - 1, n, min(1.0, share)) <= alpha else (low, middle - 1)
    return low


@lru_cache(maxsize=65536)
def upper_rank(n: int, share: float, alpha: float) -> int:
    """The smallest rank whose answer lies below the ``share``-quantile that rarely; n + 1 for none."""
    if share >= 1.0:
        return n + 1
    low, high = max(0, math.floor(n * max(0.0, share)) - 1), n + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if at_least(middle, n, max(0.0, share)) <= alpha else (middle + 1, high)
    return max(1, low)


@lru_cache(maxsize=256)
def answers_needed(share: float, alpha: float) -> int:
    """The fewest answers whose ``share``-quantile has a bound on either side: 72 for .95 at .025, 86 at .0125."""
    # The smallest answer lies above it with (1 - share)^n, the largest below it with share^n.
    return math.ceil(math.log(alpha) / math.log(max(share, 1.0 - share)) - 1e-9)
