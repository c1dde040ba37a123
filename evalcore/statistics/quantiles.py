"""Quantiles of many numbers in little memory: counts in buckets, the same whatever pieces the numbers came in.

A bucket is one of 64 equal steps of a number's binary mantissa at its exponent (as in HdrHistogram; Tene 2012), so that
its middle is within 1/128 of every number in it. No logarithm is taken: which bucket a number falls into is exact, and
the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated

import msgspec

from evalq.evalcore.model.merging import Merging
from evalq.evalcore.statistics.exact import ExactSum

__all__ = ["RELATIVE_ERROR", "Quantiles"]

_STEPS = 64
RELATIVE_ERROR = 1 / (2 * _STEPS)
"""How far from the number in its place a quantile can be, as a share of that number."""
_SMALLEST = 2.0**-60
"""What is below counts as zero: no cost and no time is so small, and a hostile record must not fill the buckets."""
_LARGEST = 2.0**60

_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]


class Quantiles(Merging, array_like=True):
    """Numbers from 0 on: how many (``count``), their exact sum, the least and the largest, and counts by bucket."""

    count: _Count = 0
    zeros: _Count = 0
    least: float | None = None
    most: float = 0.0
    total: ExactSum = msgspec.field(default_factory=ExactSum)
    buckets: dict[int, _Count] = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, values: Iterable[float]) -> Quantiles:
        """What ``values`` add up to: finite, from 0 on."""
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
            # What is larger shares one bucket: as with small ones, a record must not be able to add any number of them.
            mantissa, exponent = math.frexp(min(value, _LARGEST))
            key = exponent * _STEPS + int((mantissa - 0.5) * 2 * _STEPS)
            buckets[key] = buckets.get(key, 0) + 1
        return made

    def merge(self, later: Quantiles) -> None:
        """Add what ``later`` holds."""
        self.count += later.count
        self.zeros += later.zeros
        if later.least is not None:
            self.least = later.least if self.least is None else min(self.least, later.least)
        self.most = max(self.most, later.most)
        self.total.merge(later.total)
        for key, count in later.buckets.items():
            self.buckets[key] = self.buckets.get(key, 0) + count

    def to_wire(self) -> bytes:
        """JSON of the fields, the buckets in order: the same in whatever order parts were merged."""
        self.buckets = dict(sorted(self.buckets.items()))
        return msgspec.json.encode(self)

    def quantile(self, share: float) -> float | None:
        """The smallest number that at least ``share`` of them do not exceed, within RELATIVE_ERROR; None for none."""
        if not self.count or self.least is None:
            return None
        rank = max(1, math.ceil(share * self.count))
        seen = self.zeros
        if rank <= seen:
            return self.least if self.count == self.zeros else 0.0
        for key in sorted(self.buckets):
            seen += self.buckets[key]
            if rank <= seen:
                # The middle of the outermost buckets may lie beyond all numbers that there are.
                return min(self.most, max(self.least, _middle(key)))
        return self.most

    def mean(self) -> float | None:
        """Their exact mean, rounded once; None for none."""
        return self.total.mean(self.count) if self.count else None


def _middle(key: int) -> float:
    exponent, step = divmod(key, _STEPS)
    return math.ldexp(0.5 + (step + 0.5) / (2 * _STEPS), exponent)
