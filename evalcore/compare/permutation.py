"""The exact permutation test of passes within cases, from counts alone."""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from evalq.evalcore.compare.pairs import Side

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

__all__ = ["ERROR", "permutation_p"]

ERROR = 1e-12
"""Absolute error of a p-value, and the smallest that is given: sums of many cases come from a Fourier transform."""
_GRID = 1 << 16
"""Points of the grid on which sums of unequal weights meet, over a window that holds all that matters."""
_DEVIATIONS = 4
"""So many standard deviations of the rounding to that grid count as equal to what was observed."""
_TIE = 1e-6
"""By how much of a step equal values of the statistic may differ, for rounding."""
_TAIL = 18.0
"""exp of minus twice this is below `ERROR`: so narrow may a window be, by Hoeffding's bound, that holds the rest."""


class _Sum(NamedTuple):
    """The distribution of a sum of whole numbers: ``weights[k]`` is the probability of ``low + k``.

    ``spread`` is the sum of the squared ranges of what was added, for Hoeffding's bound.
    """

    low: int
    weights: NDArray[float64]
    spread: float


def permutation_p(base: Side, cand: Side) -> tuple[float, float]:
    """(p_worse, p_better): how surprising it is that the candidate passes so rarely, or so often, if nothing changed.

    Given a case's m passes in R_b + R_c answers, which of them fell to the candidate is then a draw without
    replacement, so its passes are hypergeometric, independently over cases. The statistic is the sum of the
    differences of pass rates. With one answer a side this is McNemar's exact test.

    Where cases differ in their repeats, the sums of those with equal repeats are exact, and are put together on a
    grid, rounded without bias; values that rounding could have parted count as equal, so that p-values can only grow.
    """
    groups: dict[tuple[int, int], Counter[int]] = {}
    seen: Counter[tuple[int, int]] = Counter()
    passes = base.total + cand.total
    rows = zip(base.answers.tolist(), cand.answers.tolist(), passes.tolist(), cand.total.tolist(), strict=True)
    for r_b, r_c, m, x in rows:
        # Passes are whole numbers; sums of columns come as floats.
        groups.setdefault((r_b, r_c), Counter())[round(m)] += 1
        seen[r_b, r_c] += round(x)
    sums = {repeats: _sum_of(*repeats, counts) for repeats, counts in groups.items()}
    if len(sums) == 1:
        ((repeats, found),) = sums.items()
        return _tails(found, seen[repeats], seen[repeats])
    return _together(sums, seen)


@lru_cache(maxsize=4096)
def _hypergeometric(r_b: int, r_c: int, m: int) -> _Sum:
    """Passes of the candidate among its ``r_c`` answers, where ``m`` of all passed."""
    import numpy as np

    low, high = max(0, m - r_b), min(m, r_c)
    # From one probability to the next by their ratio, outwards from the greatest, so that nothing overflows.
    x = np.arange(low, high, dtype=float)
    rising = (m - x) * (r_c - x) / ((x + 1) * (r_b - m + x + 1))
    mode = int(np.searchsorted(-rising, -1.0))
    weights = np.concatenate([np.cumprod(1 / rising[:mode][::-1])[::-1], [1.0], np.cumprod(rising[mode:])])
    weights /= weights.sum()
    return _Sum(low, weights, float(high - low) ** 2)


def _sum_of(r_b: int, r_c: int, counts: Counter[int]) -> _Sum:
    """The candidate's passes over all cases of these repeats; ``counts`` has how many cases have so many passes.

    A product of transforms, in a window that holds all but less than `ERROR` of the mass.
    """
    import numpy as np

    each = {m: _hypergeometric(r_b, r_c, m) for m in sorted(counts)}
    low = sum(found.low * counts[m] for m, found in each.items())
    reach = sum((len(found.weights) - 1) * counts[m] for m, found in each.items())
    spread = sum(found.spread * counts[m] for m, found in each.items())
    mean = sum(float(np.arange(len(f.weights)) @ f.weights) * counts[m] for m, f in each.items())
    half = math.ceil(math.sqrt(_TAIL * spread)) + 1
    begin = max(0, math.floor(mean) - half)
    # A power of two, for the transform. What lies beyond it wraps around, and is less than `ERROR` by Hoeffding.
    size = 1 << max(1, (min(reach, 2 * half) + 1).bit_length())
    product = np.ones(size // 2 + 1, dtype=complex)
    for m, found in each.items():
        folded = np.zeros(size)
        folded[: len(found.weights)] = found.weights
        product *= np.fft.rfft(folded) ** counts[m]
    wrapped = np.fft.irfft(product, size)
    # What a transform leaves below 0 is rounding.
    weights = np.maximum(np.roll(wrapped, -(begin % size)), 0.0)
    return _Sum(low + begin, weights[: min(size, reach - begin + 1)], spread)


def _tails(found: _Sum, at_most: int, at_least: int) -> tuple[float, float]:
    below = float(found.weights[: max(0, at_most - found.low + 1)].sum())
    above = float(found.weights[max(0, at_least - found.low) :].sum())
    return _bounded(below), _bounded(above)


def _together(sums: dict[tuple[int, int], _Sum], seen: Counter[tuple[int, int]]) -> tuple[float, float]:
    """Over groups of other repeats: a pass moves the statistic by 1/R_b + 1/R_c there."""
    import numpy as np

    by = {repeats: 1 / repeats[0] + 1 / repeats[1] for repeats in sums}
    spread = sum(by[repeats] ** 2 * found.spread for repeats, found in sums.items())
    reach = sum(by[repeats] * (len(found.weights) - 1) for repeats, found in sums.items())
    width = min(reach, 2 * math.sqrt(_TAIL * spread))
    # Room at the end: rounding may carry each group one point on.
    step = width / (_GRID - 4 * len(sums)) if width else 1.0
    mean = sum(by[r] * float(np.arange(len(f.weights)) @ f.weights) for r, f in sums.items()) / step
    # Where all sums fit nothing wraps around, and there is nothing to centre.
    begin = 0 if width == reach else math.floor(mean) - _GRID // 2
    product = np.ones(_GRID // 2 + 1, dtype=complex)
    for repeats, found in sums.items():
        places = by[repeats] * np.arange(len(found.weights)) / step
        below = np.floor(places + _TIE)
        above = np.maximum(places - below, 0.0)  # as much of the weight goes to the next point: the mean stays
        at = below.astype(np.int64) % _GRID
        folded = np.bincount(at, found.weights * (1 - above), _GRID)
        folded += np.bincount((at + 1) % _GRID, found.weights * above, _GRID)
        product *= np.fft.rfft(folded)
    weights = np.roll(np.maximum(np.fft.irfft(product, _GRID), 0.0), -(begin % _GRID))
    at_seen = sum(by[repeats] * (seen[repeats] - found.low) for repeats, found in sums.items()) / step - begin
    slack = _DEVIATIONS * math.sqrt(len(sums)) / 2
    below_seen = float(weights[: max(0, math.floor(at_seen + slack) + 1)].sum())
    return _bounded(below_seen), _bounded(float(weights[max(0, math.ceil(at_seen - slack)) :].sum()))


def _bounded(p: float) -> float:
    """Within its error, in as many digits as mean something."""
    return min(1.0, max(ERROR, round(p, 12)))
