"""Intervals for the mean over cases and for its change, where only the answers within a case vary.

A golden set is a specification: its cases are fixed, all weigh the same, and another run would have given other
answers to the same cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

from evalq.evalcore.compare.pairs import ROUNDED, Side
from evalq.evalcore.statistics.distributions import beta_cdf, smallest

if TYPE_CHECKING:
    from numpy import float64, int64
    from numpy.typing import NDArray

__all__ = ["ALPHA", "Change", "Level", "alike", "change_of", "level_of", "pooled_of", "t_tail"]

ALPHA = 0.025
"""The error allowed on either side of an interval of 95 %."""
_POWER = 0.8416
"""The normal quantile of a power of 80 %."""
_FARTHEST = 1e6
_STEPS = 200


class _Spread(NamedTuple):
    """What an estimate over cases is worth: its ``variance``, degrees of ``freedom``, and as how many ``answers``."""

    variance: float
    freedom: float
    answers: float

    def t(self, alpha: float) -> float:
        """Student's t that is exceeded with probability ``alpha``; infinite where there is nothing to judge by."""
        return _quantile(self.freedom, alpha) if self.freedom > 0 and alpha > 0 else math.inf


class Change(NamedTuple):
    """The change of the mean over cases from base to candidate, on a scale of ``width``."""

    delta: float
    width: float
    spread: _Spread

    def interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        """Where the change lies, each side wrong with probability ``alpha``, at most 1.4 times that in simulation.

        The hull of two: Student's interval of the differences with one loss and one win added, by which identical runs
        do not look certain (after Bonett and Price 2012); and a score interval as Tango (1998) has it for one pair a
        case, which counts where nearly all of them agree.
        """
        t = self.spread.t(alpha)
        return (-self.width, self.width) if math.isinf(t) else self._within(t)

    def p_margin(self, margin: float) -> float:
        """The p-value of a fall of ``margin`` at most: the smallest error at which the interval lies below that.

        1 where no interval does. Exact at the level: ``interval(p)`` ends at ``-margin``.
        """
        # GATE 6: as the p-value of a bound, by the t at which the upper end reaches the margin.
        if self.spread.freedom <= 0 or self._within(0.0)[1] >= -margin:
            return 1.0
        t = smallest(lambda t: self._within(t)[1] >= -margin, 0.0, _FARTHEST)
        return t_tail(t, self.spread.freedom)

    def _within(self, t: float) -> tuple[float, float]:
        """The interval by Student's ``t``; the wider the larger t is."""
        h, (variance, _, n) = self.width, self.spread
        # GATE 4: the loss and the win that are added lie h from 0 each, which is where 2 h^2 comes from.
        centre = self.delta * n / (n + 2)
        half = t * math.sqrt(n * n * variance + 2 * h * h) / (n + 2)
        ends = [centre - half, centre + half, *_score_ends(self.delta, h, t * t / n)]
        return max(-h, min(ends)), min(h, max(ends))

    def detectable(self, alpha: float = ALPHA) -> float:
        """The smallest change that would have been seen with a power of 80 %."""
        h, (variance, _, n) = self.width, self.spread
        factor = self.spread.t(alpha) + _POWER
        if math.isinf(factor):
            return h
        base = (n * n * variance + 2 * h * h) / (n + 2) ** 2
        return min(h, smallest(lambda d: d >= factor * math.sqrt(base + d * (h - d) / n), 0.0, h))

    def times(self, factor: float) -> Change:
        """The same change as it would look with ``factor`` times the repeats."""
        variance, freedom, answers = self.spread
        return Change(self.delta, self.width, _Spread(variance / factor, freedom * factor, answers * factor))


class Level(NamedTuple):
    """The mean over cases of one run, on a scale from ``low`` of ``width``."""

    mean: float
    low: float
    width: float
    spread: _Spread

    @property
    def rounding(self) -> float:
        """By how much an end of the scale, or of an interval, may miss a bound that it is: ``low + width`` rounds."""
        return 1e-12 * self.width

    def interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        """Where the mean lies: the hull of Student's interval, with a worst and a best answer added, and Wilson's."""
        t = self.spread.t(alpha)
        return (self.low, self.low + self.width) if math.isinf(t) else self._within(t)

    def keeps(self, bound: float, alpha: float = ALPHA, *, least: bool) -> bool:
        """Whether the interval lies within ``bound``, its ``least`` or else its greatest: at the bound is within."""
        low, high = self.interval(alpha)
        return low >= bound - self.rounding if least else high <= bound + self.rounding

    def p_below(self, bound: float) -> float:
        """How surprising so low a mean is if the true one is ``bound`` or more: where an interval begins to hold it."""
        return self._p_of(lambda t: self._within(t)[1] >= bound - self.rounding)

    def p_above(self, bound: float) -> float:
        """The same for a high mean, if the true one is ``bound`` or less."""
        return self._p_of(lambda t: self._within(t)[0] <= bound + self.rounding)

    def _within(self, t: float) -> tuple[float, float]:
        h, (variance, _, n) = self.width, self.spread
        x = self.mean - self.low
        # The worst and the best answer that are added lie h/2 from the middle each: h^2/2 together.
        centre = (n * x + h) / (n + 2)
        half = t * math.sqrt(n * n * variance + h * h / 2) / (n + 2)
        wilson_centre = (x + t * t * h / (2 * n)) / (1 + t * t / n)
        wilson_half = t * math.sqrt(max(0.0, x * (h - x)) / n + t * t * h * h / (4 * n * n)) / (1 + t * t / n)
        low = min(centre - half, wilson_centre - wilson_half)
        high = max(centre + half, wilson_centre + wilson_half)
        return self.low + max(0.0, low), self.low + min(h, high)

    def _p_of(self, holds: Callable[[float], bool]) -> float:
        """The error at which an interval, the wider the larger t is, begins to hold a bound; 1 where all of them do."""
        if self.spread.freedom <= 0 or holds(0.0):
            return 1.0
        return t_tail(smallest(holds, 0.0, _FARTHEST), self.spread.freedom)


def alike(delta: float, width: float, cases: int) -> Change:
    """A change that is the same in each of ``cases``: as if each had been asked once on either side."""
    return Change(delta, width, _Spread(0.0, cases - 1, cases))


def change_of(base: Side, cand: Side, width: float) -> Change:
    """The change over the cases of both, at least one of them.

    Its variance is that within cases, its freedom Satterthwaite's (1946). Where a case has one answer on a side, its
    own spread is unknown, and the variance is that of the differences over cases, which is never too small.
    """
    import numpy as np

    d = cand.mean - base.mean
    least = np.minimum(base.answers, cand.answers)
    # The harmonic mean of the repeats times the cases: a case with few answers weighs as much as any other.
    answers = len(d) ** 2 / float((1 / least).sum())
    if least.min() < 2:
        squares = base.mean * base.mean + cand.mean * cand.mean
        return Change(float(d.mean()), width, _between(d, answers, squares))
    of_base, of_cand = base.variance / base.answers, cand.variance / cand.answers
    within = _within([(of_base, base.answers), (of_cand, cand.answers)], len(d), answers)
    return Change(float(d.mean()), width, within)


def pooled_of(base: Side, cand: Side) -> tuple[float, float] | None:
    """(variance, freedom) of the change if each case's answers come from one source, whichever side they are on.

    None where either side has as many answers of each case, so that it is the variance of `change_of`, and where no
    answers differ. Of a case with one answer a side the spread is taken to be that of the others.
    """
    import numpy as np

    freedom = base.answers + cand.answers - 2
    squares = base.variance * (base.answers - 1) + cand.variance * (cand.answers - 1)
    if np.array_equal(base.answers, cand.answers) or not squares.any():
        return None
    known = freedom > 0
    spread = np.where(known, squares / np.maximum(freedom, 1), squares.sum() / freedom.sum())
    terms = spread * (1 / base.answers + 1 / cand.answers)
    seen = terms[known]
    # The squares of the least spreads are 0 as doubles: then as many degrees as there were answers, as in `_within`.
    least = float((seen * seen / freedom[known]).sum())
    return float(terms.sum()) / len(terms) ** 2, float(seen.sum()) ** 2 / least if least > 0 else float(freedom.sum())


def level_of(side: Side, low: float, width: float) -> Level:
    """The mean over the cases of one run, at least one of them; its spread as in `change_of`."""
    means = side.mean
    answers = len(means) ** 2 / float((1 / side.answers).sum())
    if side.answers.min() < 2:
        return Level(float(means.mean()), low, width, _between(means, answers, means * means))
    within = _within([(side.variance / side.answers, side.answers)], len(means), answers)
    return Level(float(means.mean()), low, width, within)


@lru_cache(maxsize=4096)
def _quantile(freedom: float, alpha: float) -> float:
    """The t that is exceeded with probability ``alpha`` < 1/2."""
    # Newton's method from the normal quantile, which lies below: the tail is convex, so it never steps over.
    t = NormalDist().inv_cdf(1 - alpha)
    scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    for _ in range(_STEPS):
        density = math.exp(scale - (freedom + 1) / 2 * math.log1p(t * t / freedom))
        step = (t_tail(t, freedom) - alpha) / density
        t += step
        if abs(step) < 1e-12 * t:
            break
    return t


def t_tail(t: float, freedom: float) -> float:
    """P(T >= t) for Student's t with ``freedom`` > 0 degrees."""
    tail = beta_cdf(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2
    return tail if t >= 0 else 1 - tail


def _between(values: NDArray[float64], answers: float, squares: NDArray[float64]) -> _Spread:
    """The spread of ``values`` over cases; ``squares`` are those of the means that they come from."""
    cases = len(values)
    if cases < 2:
        return _Spread(0.0, 0.0, answers)
    variance = float(values.var(ddof=1))
    # Means that are all alike, or have all changed alike, differ by their rounding.
    return _Spread(variance / cases if variance > ROUNDED * float(squares.mean()) else 0.0, cases - 1, answers)


def _within(parts: list[tuple[NDArray[float64], NDArray[int64]]], cases: int, answers: float) -> _Spread:
    total = sum(float(terms.sum()) for terms, _ in parts)
    spread = sum(float((terms * terms / (count - 1)).sum()) for terms, count in parts)
    every = sum(float((count - 1).sum()) for _, count in parts)
    # GATE 3: without any spread as many degrees as there were answers that could have shown one.
    return _Spread(total / cases**2, total * total / spread if spread > 0 else every, answers)


def _score_ends(delta: float, h: float, k: float) -> list[float]:
    """The ends of all x with (delta - x)^2 <= k |x| (h - |x|)."""
    ends = []
    for sign in (1, -1):
        middle = (2 * sign * delta + k * h) / (2 * (1 + k))
        inside = middle * middle - delta * delta / (1 + k)
        if inside >= 0:
            roots = [middle - math.sqrt(inside), middle + math.sqrt(inside)]
            ends += [sign * max(0.0, root) for root in roots if root >= 0]
    return ends
