"""Approximate quantiles of many numbers in little memory, from counts in buckets that merge exactly in any order.

A bucket is one of 64 equal steps of the binary mantissa at one exponent (as in HdrHistogram; Tene 2012). The middle of
a bucket is within 1/128 of every number in it, relative to the number. No logarithm is used, so a number's bucket is
exact and equal on every machine. The end of the file has exact bounds of quantiles by order statistics.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated

import msgspec

from evalq.evalcore.model.state import Merging
from evalq.evalcore.statistics.distributions import at_least, at_most
from evalq.evalcore.statistics.exact import ExactSum

_STEPS = 64
RELATIVE_ERROR = 1 / (2 * _STEPS)
"""The largest relative error of a quantile."""
_SMALLEST = 2.0**-60
"""Numbers below this count as zero: no cost and no time is so small, and hostile records must not fill the buckets."""
_LARGEST = 2.0**60
_LAST = 60
"""The exponent, as `math.frexp` gives it, of numbers just below _LARGEST."""

_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]


class Quantiles(Merging, array_like=True):
    """A summary of numbers >= 0: their ``count``, exact sum ``total``, minimum, maximum, and counts by bucket.

    ``zeros`` counts the numbers below _SMALLEST.
    """

    count: _Count = 0
    zeros: _Count = 0
    least: float | None = None
    most: float = 0.0
    total: ExactSum = msgspec.field(default_factory=ExactSum)
    buckets: dict[int, _Count] = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, values: Iterable[float]) -> Quantiles:
        """The summary of ``values``, which must be finite and >= 0."""
        made, known = cls(), [float(value) for value in values]
        if not known:
            return made
        made.count, made.least, made.most = len(known), min(known), max(known)
        made.total = ExactSum.of(known)
        buckets = made.buckets
        for value in known:
            if value < _SMALLEST:
                made.zeros += 1
                continue
            # All larger numbers share one bucket: hostile records must not be able to add arbitrarily many buckets.
            mantissa, exponent = math.frexp(min(value, _LARGEST))
            key = exponent * _STEPS + int((mantissa - 0.5) * 2 * _STEPS)
            buckets[key] = buckets.get(key, 0) + 1
        return made

    def merge(self, later: Quantiles) -> None:
        """Add the numbers summarised in ``later``, in place."""
        self.count += later.count
        self.zeros += later.zeros
        if later.least is not None:
            self.least = later.least if self.least is None else min(self.least, later.least)
        self.most = max(self.most, later.most)
        self.total.merge(later.total)
        for key, count in later.buckets.items():
            self.buckets[key] = self.buckets.get(key, 0) + count

    def to_wire(self) -> bytes:
        """JSON of the fields with sorted buckets, so that the bytes do not depend on the order of merges."""
        self.buckets = dict(sorted(self.buckets.items()))
        return msgspec.json.encode(self)

    def quantile(self, share: float) -> float | None:
        """The ``share``-quantile: the smallest number that at least that fraction of the numbers do not exceed.

        Its relative error is at most RELATIVE_ERROR. None without numbers.
        """
        if not self.count or self.least is None:
            return None
        rank = max(1, math.ceil(share * self.count))
        seen = self.zeros
        if rank <= seen:
            return self.least if self.count == self.zeros else 0.0
        for key in sorted(self.buckets):
            seen += self.buckets[key]
            if rank <= seen:
                # The middle of an outermost bucket can lie outside the range of the numbers.
                return min(self.most, max(self.least, _middle(key)))
        return self.most

    def at_rank(self, rank: int) -> tuple[float, float]:
        """Bounds (low, high) of the ``rank``-th smallest number, for ranks from 1 to ``count``: its bucket's ends."""
        seen, least = self.zeros, self.least or 0.0
        if rank <= seen:
            return least, min(self.most, _SMALLEST)
        for key in sorted(self.buckets):
            seen += self.buckets[key]
            if rank <= seen:
                low, high = _ends(key)
                return max(least, low), min(self.most, high)
        return self.most, self.most

    def above(self, bound: float) -> tuple[int, int]:
        """The least and the greatest possible count of numbers above ``bound``; they differ by the bucket it is in."""
        if self.most <= bound or self.least is None:
            return 0, 0
        if self.least > bound:
            return self.count, self.count
        sure = possible = 0
        for key, count in self.buckets.items():
            low, high = _ends(key)
            sure += count if low > bound else 0
            possible += count if high > bound else 0
        return sure, possible

    def mean(self) -> float | None:
        """The exact mean of the numbers, rounded once; None without numbers."""
        return self.total.mean(self.count) if self.count else None


def _ends(key: int) -> tuple[float, float]:
    """The bounds of a bucket, as a half-open range; the last bucket has no upper bound."""
    exponent, step = divmod(key, _STEPS)
    high = math.inf if exponent > _LAST else math.ldexp(0.5 + (step + 1) / (2 * _STEPS), exponent)
    return math.ldexp(0.5 + step / (2 * _STEPS), exponent), high


def _middle(key: int) -> float:
    exponent, step = divmod(key, _STEPS)
    return math.ldexp(0.5 + (step + 0.5) / (2 * _STEPS), exponent)


# Bounds of a quantile by order statistics, exact for independent answers of any distribution.
# The number of n answers at or below the true q-quantile is binomial. So the r-th smallest answer is above the
# quantile with probability P(Bin(n, q) <= r - 1), and the s-th smallest is below it with probability P(Bin(n, q) >= s)
# (Thompson 1936). Answers of several fixed cases, each with its own distribution, are a mixture. The count then varies
# less than a binomial one (Hoeffding 1956), so both bounds err no more often.


@lru_cache(maxsize=65536)
def lower_rank(n: int, share: float, alpha: float) -> int:
    """The largest rank whose answer is above the ``share``-quantile with probability <= ``alpha``; 0 for none."""
    if share <= 0.0:
        return 0
    # Bisect: the probability rises with the rank.
    low, high = 0, min(n, math.ceil(n * min(1.0, share)) + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if at_most(middle - 1, n, min(1.0, share)) <= alpha else (low, middle - 1)
    return low


@lru_cache(maxsize=65536)
def upper_rank(n: int, share: float, alpha: float) -> int:
    """The smallest rank whose answer is below the ``share``-quantile with probability <= ``alpha``; n + 1 for none."""
    if share >= 1.0:
        return n + 1
    low, high = max(0, math.floor(n * max(0.0, share)) - 1), n + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if at_least(middle, n, max(0.0, share)) <= alpha else (middle + 1, high)
    return max(1, low)


@lru_cache(maxsize=256)
def answers_needed(share: float, alpha: float) -> int:
    """The least number of answers for which the ``share``-quantile has both bounds at error ``alpha``.

    For example 72 for .95 at .025, and 86 at .0125.
    """
    # The smallest answer is above the quantile with probability (1 - share)^n, the largest below it with share^n.
    return math.ceil(math.log(alpha) / math.log(max(share, 1.0 - share)) - 1e-9)
