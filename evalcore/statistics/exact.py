"""Exact sums, and statistics that several evaluators share: entropy, Gini coefficient, Wilson's interval."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist
from typing import Annotated

import msgspec

from evalq.evalcore.model.state import Merging

# Every finite float is an integer multiple of 2**-1074, the smallest subnormal.
_SCALE = 1074
_LARGEST = 1 << 16
"""The largest exponent on the wire, far beyond any sum of floats: a damaged message must not fill the memory."""
_DECIMALS = 12
"""Numbers are compared as decimals of this many digits behind the point, as people write them."""
_WHOLE_BITS = 62
_WHOLE = float(1 << _WHOLE_BITS)
_LEAST_WHOLE = 2.0 ** (53 - _WHOLE_BITS)
"""From this value on, a float times _WHOLE has no fraction."""
_LARGE = 1e250
"""Values beyond this are scaled down before they are compared, because their sum may exceed the largest float."""


class ExactSum(Merging, array_like=True, eq=True):
    """A sum of floats and integers without rounding, equal for every order of the values and every cut into parts.

        ExactSum.of([0.1] * 10).value()        # 1.0, where sum() gives 0.9999999999999999

    On the wire it is ``[mantissa, exponent]``: the sum is the hexadecimal mantissa times 2**exponent. The mantissa is
    odd or zero, so equal sums are equal bytes.
    """

    mantissa: Annotated[str, msgspec.Meta(pattern=r"^(?:0|-?[1-9a-f][0-9a-f]*(?<=[13579bdf]))\Z")] = "0"
    exponent: Annotated[int, msgspec.Meta(ge=-_SCALE, le=_LARGEST)] = 0

    @classmethod
    def of(cls, values: Iterable[float]) -> ExactSum:
        """The exact sum of finite numbers. Raises ValueError or OverflowError on NaN or infinity."""
        values = tuple(values)
        if set(map(type, values)) == {float} and min(values) >= _LEAST_WHOLE and max(values) < _LARGE:
            # In this range a float (53 bits) times a power of two is a whole number, exactly.
            return cls()._set(sum(map(int, map(_WHOLE.__mul__, values))) << (_SCALE - _WHOLE_BITS))
        total = 0
        for value in values:
            if type(value) is int:
                total += value << _SCALE
            else:
                # A float's denominator is a power of two, so its bit length gives the exponent.
                numerator, denominator = value.as_integer_ratio()
                total += numerator << (_SCALE + 1 - denominator.bit_length())
        return cls()._set(total)

    def merge(self, later: ExactSum) -> None:
        """Add ``later`` to this sum, in place."""
        # Skip the conversion to an integer and back for an empty sum, which is frequent.
        if later.mantissa != "0":
            self._set(self._scaled() + later._scaled())

    def value(self) -> float:
        """The sum, rounded once to the nearest float. Raises OverflowError if it exceeds the largest float."""
        return self._scaled() / (1 << _SCALE)

    def mean(self, count: int) -> float:
        """Sum / ``count``, rounded once. Raises ZeroDivisionError if ``count`` is 0."""
        return self._scaled() / (count << _SCALE)

    def _scaled(self) -> int:
        return int(self.mantissa, 16) << (self.exponent + _SCALE)

    def _set(self, scaled: int) -> ExactSum:
        # Trailing zero bits go to the exponent, so that equal sums have one wire form.
        zeros = (scaled & -scaled).bit_length() - 1 if scaled else 0
        self.mantissa = format(scaled >> zeros, "x")
        self.exponent = zeros - _SCALE if scaled else 0
        return self


def shannon_bits(counts: Iterable[int]) -> float:
    """Plug-in Shannon entropy of ``counts``, in bits; 0.0 for fewer than two positive counts.

    The terms are summed exactly, in ascending order of count, so the order of ``counts`` does not matter.
    """
    present = sorted(count for count in counts if count)
    total = sum(present)
    if len(present) < 2:
        return 0.0
    return math.fsum(-(c / total) * math.log2(c / total) for c in present)


def gini(values: Iterable[float]) -> float:
    """Gini coefficient of ``values`` >= 0: 2 * sum(i * x_i) / (n * sum x) - (n + 1) / n for ascending x, i from 1.

    0.0 if all values are zero, or there are none.
    """
    ascending = sorted(values)
    # Scaling by a power of two is exact, so it does not change the coefficient.
    if ascending and ascending[-1] > _LARGE:
        ascending = [math.ldexp(value, -math.frexp(ascending[-1])[1]) for value in ascending]
    total = math.fsum(ascending)
    if not ascending or total == 0:
        return 0.0
    n = len(ascending)
    weighted = math.fsum(i * x for i, x in enumerate(ascending, start=1))
    # For equal values the exact result is 0; rounding may make it slightly negative.
    return max(0.0, 2 * weighted / (n * total) - (n + 1) / n)


def wilson(successes: int, of: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval (1927) for the proportion ``successes / of``: (low, high), both within [0, 1].

    ``confidence``, in (0, 1), is the probability that the interval contains the true proportion, on average over
    proportions. For small numbers it is closer to that than the normal interval (Brown, Cai and DasGupta 2001).

        wilson(8, 10)                          # (0.490, 0.943)

    Raises ZeroDivisionError if ``of`` is 0.
    """
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share, weight = successes / of, 1 + z * z / of
    middle = (share + z * z / (2 * of)) / weight
    reach = z / weight * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    # At 0 and at ``of`` successes a bound is exactly 0 or 1; floats would miss it by rounding.
    low = 0.0 if successes == 0 else max(0.0, middle - reach)
    return low, 1.0 if successes == of else min(1.0, middle + reach)


def is_below(value: float, threshold: float) -> bool:
    """Whether ``value`` is below ``threshold`` as decimals: 0.7 - 0.4 is not below 0.3, although its double is."""
    return round(value, _DECIMALS) < round(threshold, _DECIMALS)
