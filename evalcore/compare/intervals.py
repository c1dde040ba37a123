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
from collections.abc import Sequence
from typing import Protocol

import msgspec

from evalq.evalcore.compare.summary import Took
from evalq.evalcore.statistics.distributions import at_least, at_most
from evalq.evalcore.statistics.quantiles import lower_rank, upper_rank

ALPHA = 0.025
"""The error allowed on either side of an interval of 95 %."""
_POWER = 0.8416
"""The normal quantile of a power of 80 %."""
_FARTHEST = 1e6
_STEPS = 200


class _MeanSpread(NamedTuple):
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
    spread: _MeanSpread

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
        return Change(self.delta, self.width, _MeanSpread(variance / factor, freedom * factor, answers * factor))


class MeanLevel(NamedTuple):
    """The mean over cases of one run, on a scale from ``low`` of ``width``."""

    mean: float
    low: float
    width: float
    spread: _MeanSpread

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


def uniform_change(delta: float, width: float, cases: int) -> Change:
    """A change that is the same in each of ``cases``: as if each had been asked once on either side."""
    return Change(delta, width, _MeanSpread(0.0, cases - 1, cases))


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


def level_of(side: Side, low: float, width: float) -> MeanLevel:
    """The mean over the cases of one run, at least one of them; its spread as in `change_of`."""
    means = side.mean
    answers = len(means) ** 2 / float((1 / side.answers).sum())
    if side.answers.min() < 2:
        return MeanLevel(float(means.mean()), low, width, _between(means, answers, means * means))
    within = _within([(side.variance / side.answers, side.answers)], len(means), answers)
    return MeanLevel(float(means.mean()), low, width, within)


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


def _between(values: NDArray[float64], answers: float, squares: NDArray[float64]) -> _MeanSpread:
    """The spread of ``values`` over cases; ``squares`` are those of the means that they come from."""
    cases = len(values)
    if cases < 2:
        return _MeanSpread(0.0, 0.0, answers)
    variance = float(values.var(ddof=1))
    # Means that are all alike, or have all changed alike, differ by their rounding.
    return _MeanSpread(variance / cases if variance > ROUNDED * float(squares.mean()) else 0.0, cases - 1, answers)


def _within(parts: list[tuple[NDArray[float64], NDArray[int64]]], cases: int, answers: float) -> _MeanSpread:
    total = sum(float(terms.sum()) for terms, _ in parts)
    spread = sum(float((terms * terms / (count - 1)).sum()) for terms, count in parts)
    every = sum(float((count - 1).sum()) for _, count in parts)
    # GATE 3: without any spread as many degrees as there were answers that could have shown one.
    return _MeanSpread(total / cases**2, total * total / spread if spread > 0 else every, answers)


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


# What answers took: a quantile and a mean, of one run and between two. The unit is the answer within its case: another
# run would give other answers to the same cases. Where the cases of two runs changed more differently than their own
# answers explain (a case that was slow all of that day), the case is the unit.

_SMALLEST_P = 1e-12
_HALVINGS = 24
"""P-values are known to a few millionths of themselves, and never too small."""


class SpreadLevel(NamedTuple):
    """A number of one run, and where it lies at 95 %; against a bound the p-values of saying that it is ``p_broken`` or
    ``p_kept`` and being wrong.
    """

    value: float
    low: float
    high: float
    p_broken: float
    p_kept: float


def quantile_level(took: Took, share: float, bound: float, *, least: bool, missing_above: bool) -> SpreadLevel:
    """The ``share``-quantile of one run's answers against a ``bound``, its ``least`` or else its greatest.

    "p95 <= b" is "at most 5 % of answers above b": the exact binomial test, in which answers in the bucket of the bound
    count against the verdict. Answers that lack the number lie above or below all others.
    """
    sketch, lacking = took.sketch, took.lacking
    n = sketch.count + lacking
    sure, possible = sketch.above(bound)
    if missing_above:
        sure, possible = sure + lacking, possible + lacking
    allowed = 1.0 - share
    if least:
        # At least so many above it: the same with the sides turned. What is at the bound keeps it.
        p_broken, p_kept = at_most(possible, n, allowed), at_least(sure, n, allowed)
    else:
        p_broken, p_kept = at_least(sure, n, allowed), at_most(possible, n, allowed)
    bounds = _Bounds(took, missing_above=missing_above)
    return SpreadLevel(
        sketch.quantile(share) or 0.0, bounds.low(share, ALPHA)[0], bounds.high(share, ALPHA)[1], p_broken, p_kept
    )


class _Bounds:
    """Bounds of a run's quantiles, each as the ends of the bucket that it lies in."""

    def __init__(self, took: Took, *, missing_above: bool, effect: float = 1.0, strayed: float = 0.0) -> None:
        """With ``effect`` answers that count as one, and a share of ``strayed`` that may be of other cases."""
        self._sketch, self._above, self._strayed = took.sketch, missing_above, strayed
        self._lacking = took.lacking
        self.n = took.sketch.count + took.lacking
        self.effective = max(1, math.floor(self.n / effect + 1e-9))

    def low(self, share: float, alpha: float) -> tuple[float, float]:
        rank = lower_rank(self.effective, share - self._strayed, alpha)
        return (0.0, 0.0) if not rank else self._at((rank - 1) * self.n // self.effective + 1)

    def high(self, share: float, alpha: float) -> tuple[float, float]:
        rank = upper_rank(self.effective, share + self._strayed, alpha)
        return (math.inf, math.inf) if rank > self.effective else self._at(-(-rank * self.n // self.effective))

    def _at(self, rank: int) -> tuple[float, float]:
        rank -= 0 if self._above else self._lacking
        if rank < 1:
            return 0.0, 0.0
        return (math.inf, math.inf) if rank > self._sketch.count else self._sketch.at_rank(rank)


class Spread(Protocol):
    """How far a number of the candidate's answers may have moved from the baseline's."""

    def above(self, factor: float, more: float) -> float:
        """The p-value of saying that it is above ``factor`` times the baseline's and ``more``."""

    def below(self, factor: float, more: float) -> float:
        """The p-value of saying that it is below that."""


class QuantileChange(NamedTuple):
    """How far a quantile of the candidate's answers may have moved from the baseline's."""

    base: _Bounds
    cand: _Bounds
    share: float

    @classmethod
    def of(cls, base: Took, cand: Took, share: float, *, worst: bool, rises: bool) -> QuantileChange:
        """At the ``worst`` what lacks the number lies where it counts against the candidate: above if ``rises`` are."""
        effect, other = design_effect(base, cand), _strayed(base, cand)
        above = rises if worst else not rises
        return cls(
            _Bounds(base, missing_above=not above, effect=effect),
            _Bounds(cand, missing_above=above, effect=effect, strayed=other),
            share,
        )

    def above(self, factor: float, more: float) -> float:
        """The p-value of saying that it is above ``factor`` times the baseline's and ``more``: each bound has half."""

        def shown(alpha: float) -> bool:
            low, _ = self.cand.low(self.share, alpha / 2)
            _, high = self.base.high(self.share, alpha / 2)
            return low > factor * high + more

        return _least(shown)

    def below(self, factor: float, more: float) -> float:
        """The p-value of saying that it is below that."""

        def shown(alpha: float) -> bool:
            _, high = self.cand.high(self.share, alpha / 2)
            low, _ = self.base.low(self.share, alpha / 2)
            return high < factor * low + more

        return _least(shown)


def _least(shown: Callable[[float], bool]) -> float:
    """The smallest error at which something is shown; 1 where none does."""
    if not shown(0.99):
        return 1.0
    low, high = math.log10(_SMALLEST_P), math.log10(0.99)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if shown(10**middle) else (middle, high)
    return float(10**high)


class CaseMoments(NamedTuple):
    """A case on either side: how many answers, their mean and their unbiased variance."""

    n_b: int
    mean_b: float
    var_b: float
    n_c: int
    mean_c: float
    var_c: float


def _shared(base: Took, cand: Took, *, logs: bool = False) -> list[CaseMoments]:
    """The cases that both runs have answers to, by the number or by its logarithm."""
    place = {case: at for at, case in enumerate(base.ids)}
    found = []
    for at, case in enumerate(cand.ids):
        before = place.get(case)
        if before is not None and base.count[before] and cand.count[at]:
            found.append(CaseMoments(*_moments(base, before, logs=logs), *_moments(cand, at, logs=logs)))
    return found


def _moments(took: Took, at: int, *, logs: bool) -> tuple[int, float, float]:
    n = took.count[at]
    total, squares = (took.logs[at], took.log_squares[at]) if logs else (took.total[at], took.squares[at])
    spread = squares - total * total / n
    # What rounding leaves of equal numbers is no spread.
    return n, total / n, spread / (n - 1) if n > 1 and spread > 1e-12 * squares else 0.0


def _filled(took: Took, value: float) -> Took:
    """With ``value`` for each answer that lacks the number."""
    rows = list(zip(took.count, took.missing, took.total, took.squares, strict=True))
    return msgspec.structs.replace(
        took,
        count=[count + missing for count, missing, _, _ in rows],
        missing=[0] * len(rows),
        total=[total + missing * value for _, missing, total, _ in rows],
        squares=[squares + missing * value * value for _, missing, _, squares in rows],
    )


def _strayed(base: Took, cand: Took) -> float:
    """The share of the candidate's answers that would have to be of other cases for the runs to be made up alike."""
    counts = [
        {case: n + lacking for case, n, lacking in zip(took.ids, took.count, took.missing, strict=True)}
        for took in (base, cand)
    ]
    wholes = [sum(each.values()) for each in counts]
    if not all(wholes):
        return 1.0
    shares = [
        (counts[0].get(case, 0) / wholes[0], counts[1].get(case, 0) / wholes[1])
        for case in counts[0].keys() | counts[1]
    ]
    apart = math.fsum(abs(b - c) for b, c in shares) / 2
    return apart if apart > 1e-9 else 0.0


def design_effect(base: Took, cand: Took) -> float:
    """As how many answers one counts, at least: 1 where cases differ between the runs no more than chance has it.

    By logarithms, so that one factor for all cases is no difference between them: the variance of the cases' changes
    over that which their answers explain, where an F test at 2.5 % says that it is larger.
    """
    cases = _shared(base, cand, logs=True)
    if len(cases) < 2:
        return 1.0
    changes = [case.mean_c - case.mean_b for case in cases]
    between = _variance(changes)
    terms = [case.var_b / case.n_b + case.var_c / case.n_c for case in cases]
    freedom = sum(case.n_b + case.n_c - 2 for case in cases)
    within = math.fsum(terms) / len(terms)
    if freedom < 1:
        return 1.0
    if within <= 0.0:
        # All answers of a case are one: each case is an answer, unless nothing differs at all.
        return max(1.0, sum(cand.count) / len(cases)) if between > 1e-12 else 1.0
    ratio, degrees = between / within, len(cases) - 1
    tail = beta_cdf(freedom / 2, degrees / 2, freedom / (freedom + degrees * ratio))
    # No more than if all answers of a case were one.
    return min(max(1.0, ratio), sum(cand.count) / len(cases)) if tail <= ALPHA else 1.0


def _variance(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


class MeanChange(NamedTuple):
    """The means of the cases that both runs answered, all cases weighing the same."""

    cases: tuple[CaseMoments, ...]

    @classmethod
    def of(cls, base: Took, cand: Took, *, worst: bool, rises: bool) -> MeanChange:
        """At the ``worst`` answers that lack the number have the largest one of both runs, or none of it: what counts
        against the candidate.
        """
        if worst:
            most = max(base.sketch.most, cand.sketch.most)
            base, cand = _filled(base, 0.0 if rises else most), _filled(cand, most if rises else 0.0)
        return cls(tuple(_shared(base, cand)))

    @property
    def means(self) -> tuple[float, float]:
        """The baseline's and the candidate's."""
        count = len(self.cases)
        return math.fsum(c.mean_b for c in self.cases) / count, math.fsum(c.mean_c for c in self.cases) / count

    def above(self, factor: float, more: float) -> float:
        """The p-value of saying that it is above ``factor`` times the baseline's and ``more``."""
        return self._tail(factor, more, 1.0)

    def below(self, factor: float, more: float) -> float:
        """The p-value of saying that it is below that."""
        return self._tail(factor, more, -1.0)

    def _tail(self, factor: float, more: float, sign: float) -> float:
        if not self.cases:
            return 1.0
        base, cand = self.means
        over, count = sign * (cand - factor * base - more), len(self.cases)
        parts = [(factor * factor * c.var_b / c.n_b, c.n_b) for c in self.cases]
        parts += [(c.var_c / c.n_c, c.n_c) for c in self.cases]
        within = math.fsum(part for part, _ in parts) / count**2
        freedom = _satterthwaite(parts)
        answers = count * count / math.fsum(1 / min(c.n_b, c.n_c) for c in self.cases)
        between = _variance([c.mean_c - factor * c.mean_b for c in self.cases]) / count if count > 1 else math.inf
        size = max(abs(factor * base), abs(cand))
        alone = any(c.n_b < 2 or c.n_c < 2 for c in self.cases)
        found = [_student(over, between, count - 1, answers, size)] if count > 1 else []
        if not alone:
            found.append(_student(over, within, freedom, answers, size))
        # The larger: where cases changed differently the case is the unit. Of one case only its answers tell.
        return max(found, default=1.0)


_FAR = 1e6


def _satterthwaite(parts: Sequence[tuple[float, int]]) -> float:
    whole = math.fsum(part for part, _ in parts)
    spread = math.fsum(part * part / (n - 1) for part, n in parts if n > 1)
    return whole * whole / spread if spread > 0 else float(sum(n - 1 for _, n in parts))


def _student(over: float, variance: float, freedom: float, answers: float, size: float) -> float:
    """How surprising it is to be ``over`` so far: by Student's t, as seen and with two answers added.

    These lie ``size`` above and below, as far as the mean is large, so that a few equal answers are not certain.
    """
    if freedom <= 0:
        return 1.0
    found = []
    if variance > 0:
        found.append(t_tail(over / math.sqrt(variance), freedom))
    added = math.sqrt(answers * answers * variance + 2 * size * size)
    if added > 0:
        found.append(t_tail(over * answers / added, freedom))
    # Nothing varies, and nothing is there: 0 of everything.
    return max(found) if found else (0.0 if over > 0 else 1.0)


def mean_level(took: Took, bound: float, *, least: bool, missing_above: bool | None = None) -> SpreadLevel:
    """The mean of one run over its cases against a ``bound``, its ``least`` or else its greatest.

    Answers that lack the number are left out, or have the largest one that was seen, or none of it.
    """
    if missing_above is not None:
        took = _filled(took, took.sketch.most if missing_above else 0.0)
    cases = [_moments(took, at, logs=False) for at in range(len(took.ids)) if took.count[at]]
    count = len(cases)
    value = math.fsum(mean for _, mean, _ in cases) / count
    parts = [(variance / n, n) for n, _, variance in cases]
    answers = count * count / math.fsum(1 / n for n, _, _ in cases)
    if all(n > 1 for n, _, _ in cases):
        variance, freedom = math.fsum(part for part, _ in parts) / count**2, _satterthwaite(parts)
    else:
        # Of a case with one answer its own spread is unknown: that of the means over cases is never too small.
        variance = _variance([mean for _, mean, _ in cases]) / count if count > 1 else 0.0
        freedom = float(count - 1)

    def above(limit: float) -> float:
        return _student(value - limit, variance, freedom, answers, abs(value))

    def below(limit: float) -> float:
        return _student(limit - value, variance, freedom, answers, abs(value))

    scale = max(abs(value), 1e-300)
    low = value - scale * smallest(lambda x: above(value - x * scale) <= ALPHA, 0.0, _FAR)
    high = value + scale * smallest(lambda x: below(value + x * scale) <= ALPHA, 0.0, _FAR)
    p_above, p_below = above(bound), below(bound)
    return SpreadLevel(value, low, high, *((p_below, p_above) if least else (p_above, p_below)))
