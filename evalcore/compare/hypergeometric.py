"""Chances of a draw without replacement: exact where numbers are small, and between two bounds where they are not."""

from __future__ import annotations

import math

__all__ = ["ABOUT", "EXACT", "between", "ways"]

EXACT = 10_000
"""Draws from no more than this are exact. Whole numbers take the square of it in time: a few hundredths of a second."""
ABOUT = 1e-4
"""What share of itself a chance over more may be off by, for the logarithms of the gamma function; 2e-6 was seen."""
_DEVIATIONS, _FEWEST = 10, 100
"""So many standard deviations and so many steps are added one by one; a geometric sum bounds what is beyond."""
_TINY = 1e-300


def ways(taken: int, marked: int, every: int, least: int) -> int:
    """In how many of the ``comb(every, taken)`` draws at least ``least`` of the ``marked`` ones are drawn."""
    # Fewer cannot be drawn, where so many are taken that the others do not suffice.
    first, last = max(least, taken - (every - marked), 0), min(taken, marked)
    if first > last:
        return 0
    found = total = math.comb(marked, first) * math.comb(every - marked, taken - first)
    for x in range(first, last):
        # By the ratio of one to the next: each binomial anew would take the cube of the numbers.
        found = found * ((marked - x) * (taken - x)) // ((x + 1) * (every - marked - taken + x + 1))
        total += found
    return total


def between(taken: int, marked: int, every: int, least: int) -> tuple[float, float]:
    """Bounds of the chance that ``taken`` of ``every`` hold at least ``least`` of the ``marked`` ones.

    Both are the chance, rounded once, up to `EXACT`. Beyond they differ by at most 3 `ABOUT` of it where ``least`` is
    above the mean, of one minus it where it is below, and by 1e-300: whoever asks takes the side that errs to no
    decision.
    """
    if least <= max(0, taken - (every - marked)):
        return 1.0, 1.0
    if least > min(taken, marked):
        return 0.0, 0.0
    if every <= EXACT:
        exact = ways(taken, marked, every, least) / math.comb(every, taken)
        return exact, exact
    if least * every >= taken * marked:
        return _tail(taken, marked, every, least)
    # Below the mean it is the other tail that is small, and falls: so many of those that are not marked.
    low, high = _tail(taken, every - marked, every, taken - least + 1)
    return 1.0 - high, 1.0 - low


def _tail(taken: int, marked: int, every: int, least: int) -> tuple[float, float]:
    """The same from the mean on, where each chance is less than the one before."""
    import numpy as np

    last, share = min(taken, marked), marked / every
    deviation = math.sqrt(taken * share * (1 - share) * (1 - taken / every))
    steps = min(last - least, _FEWEST + math.ceil(_DEVIATIONS * deviation))
    x = np.arange(least, least + steps, dtype=float)
    falling = (marked - x) * (taken - x) / ((x + 1) * (every - marked - taken + x + 1))
    terms = np.cumprod(falling)
    first = math.exp(_log(marked, least) + _log(every - marked, taken - least) - _log(every, taken))
    # Ratios go on falling, so that what is beyond is less than if the last of them went on.
    rest = float(terms[-1] * falling[-1] / (1 - falling[-1])) if least + steps < last else 0.0
    total = 1.0 + float(terms.sum())
    return first * total * (1 - ABOUT), min(1.0, max(_TINY, first * (total + rest) * (1 + ABOUT)))


def _log(n: int, k: int) -> float:
    """The logarithm of n over k."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
