"""Intervals for the mean over cases and for its change, if only the answers within a case vary.

A golden set is a specification: its cases are fixed, all weigh the same, and another run would give other answers to
the same cases.
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
    """The ``variance`` of an estimate over cases, its degrees of ``freedom``, and its effective ``answers``."""

    variance: float
    freedom: float
    answers: float

    def t(self, alpha: float) -> float:
        """Student's t that is exceeded with probability ``alpha``; infinite without any degree of freedom."""
        return _quantile(self.freedom, alpha) if self.freedom > 0 and alpha > 0 else math.inf


class Change(NamedTuple):
    """The change of the mean over cases from base to candidate, on a scale of ``width``."""

    delta: float
    width: float
    spread: _MeanSpread

    def interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        """Bounds of the change, each wrong with probability ``alpha``, in simulations at most 1.4 times that.

        The hull of two intervals: Student's of the differences, with one loss and one win added so that identical runs
        do not look certain (after Bonett and Price 2012); and a score interval as in Tango (1998) for one pair a case,
        which matters if nearly all cases agree.
        """
        t = self.spread.t(alpha)
        return (-self.width, self.width) if math.isinf(t) else self._within(t)

    def p_margin(self, margin: float) -> float:
        """The p-value of a fall of at most ``margin``: the smallest error at which the interval lies below that.

        1 if no interval does. Exact at the level: ``interval(p)`` ends at ``-margin``.
        """
        # GATE 6: like the p-value of a bound, it comes from the t at which the upper end reaches the margin.
        if self.spread.freedom <= 0 or self._within(0.0)[1] >= -margin:
            return 1.0
        t = smallest(lambda t: self._within(t)[1] >= -margin, 0.0, _FARTHEST)
        return t_tail(t, self.spread.freedom)

    def _within(self, t: float) -> tuple[float, float]:
        """The interval by Student's ``t``; a larger t makes it wider."""
        h, (variance, _, n) = self.width, self.spread
        # GATE 4: the added loss and win are h from 0 each, hence 2 h^2.
        centre = self.delta * n / (n + 2)
        half = t * math.sqrt(n * n * variance + 2 * h * h) / (n + 2)
        ends = [centre - half, centre + half, *_score_ends(self.delta, h, t * t / n)]
        return max(-h, min(ends)), min(h, max(ends))

    def detectable(self, alpha: float = ALPHA) -> float:
        """The smallest change that the comparison shows with a power of 80 %."""
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
        """The distance within which an end of an interval counts as at a bound, because ``low + width`` rounds."""
        return 1e-12 * self.width

    def interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        """Bounds of the mean: the hull of Student's interval, with a worst and a best answer added, and Wilson's."""
        t = self.spread.t(alpha)
        return (self.low, self.low + self.width) if math.isinf(t) else self._within(t)

    def keeps(self, bound: float, alpha: float = ALPHA, *, least: bool) -> bool:
        """Whether the interval lies within ``bound``, a ``least`` or a greatest value, which counts as within."""
        low, high = self.interval(alpha)
        return low >= bound - self.rounding if least else high <= bound + self.rounding

    def p_below(self, bound: float) -> float:
        """The p-value of so low a mean if the true one is ``bound`` or more."""
        return self._p_of(lambda t: self._within(t)[1] >= bound - self.rounding)

    def p_above(self, bound: float) -> float:
        """The p-value of so high a mean if the true one is ``bound`` or less."""
        return self._p_of(lambda t: self._within(t)[0] <= bound + self.rounding)

    def _within(self, t: float) -> tuple[float, float]:
        h, (variance, _, n) = self.width, self.spread
        x = self.mean - self.low
        # The added worst and best answers are h/2 from the middle each: h^2/2 together.
        centre = (n * x + h) / (n + 2)
        half = t * math.sqrt(n * n * variance + h * h / 2) / (n + 2)
        wilson_centre = (x + t * t * h / (2 * n)) / (1 + t * t / n)
        wilson_half = t * math.sqrt(max(0.0, x * (h - x)) / n + t * t * h * h / (4 * n * n)) / (1 + t * t / n)
        low = min(centre - half, wilson_centre - wilson_half)
        high = max(centre + half, wilson_centre + wilson_half)
        return self.low + max(0.0, low), self.low + min(h, high)

    def _p_of(self, holds: Callable[[float], bool]) -> float:
        """The error from which on an interval includes a bound; 1 if all intervals do."""
        if self.spread.freedom <= 0 or holds(0.0):
            return 1.0
        return t_tail(smallest(holds, 0.0, _FARTHEST), self.spread.freedom)


def uniform_change(delta: float, width: float, cases: int) -> Change:
    """A change that is equal in all ``cases``, as if each had one answer on either side."""
    return Change(delta, width, _MeanSpread(0.0, cases - 1, cases))


def change_of(base: Side, cand: Side, width: float) -> Change:
    """The change over the cases of both, at least one of them.

    Its variance is that within cases, its freedom Satterthwaite's (1946). If a case has one answer on a side, its
    spread is unknown, and the variance is that of the differences over cases, which is never too small.
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
    """(variance, freedom) of the change if each case's answers on both sides come from one source.

    None if both sides have equally many answers of each case, since then it is the variance of `change_of`, and if no
    answers differ. A case with one answer a side gets the spread of the others.
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
    # The squares of very small spreads are 0 as doubles: then take the degrees of all answers, as in `_within`.
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
    # Newton's method from the normal quantile, which is smaller: the tail is convex, so no step goes too far.
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
    """The spread of ``values`` over cases; ``squares`` are the squares of the means behind them."""
    cases = len(values)
    if cases < 2:
        return _MeanSpread(0.0, 0.0, answers)
    variance = float(values.var(ddof=1))
    # Equal means, or equal changes, still differ by rounding.
    return _MeanSpread(variance / cases if variance > ROUNDED * float(squares.mean()) else 0.0, cases - 1, answers)


def _within(parts: list[tuple[NDArray[float64], NDArray[int64]]], cases: int, answers: float) -> _MeanSpread:
    total = sum(float(terms.sum()) for terms, _ in parts)
    spread = sum(float((terms * terms / (count - 1)).sum()) for terms, count in parts)
    every = sum(float((count - 1).sum()) for _, count in parts)
    # GATE 3: without any spread, take the degrees of all answers that could have shown one.
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


# Usage of answers: a quantile and a mean, of one run and between two. The unit is the answer within its case: another
# run would give other answers to the same cases. If cases changed in more different ways than their answers explain (a
# case that was slow all day), the case is the unit.

_SMALLEST_P = 1e-12
_HALVINGS = 24
"""How many times to halve the range of p-values: they have a few correct digits, and are never too small."""


class SpreadLevel(NamedTuple):
    """A number of one run with its 95 % interval, and against a bound the p-values of ``broken`` and ``kept``."""

    value: float
    low: float
    high: float
    p_broken: float
    p_kept: float


def quantile_level(took: Took, share: float, bound: float, *, least: bool, missing_above: bool) -> SpreadLevel:
    """The ``share``-quantile of one run's answers against a ``bound``, a ``least`` or a greatest value.

    "p95 <= b" is "at most 5 % of answers above b", by the exact binomial test. Answers in the bucket of the bound count
    against the verdict. Answers that lack the number lie above or below all others.
    """
    sketch, lacking = took.sketch, took.lacking
    n = sketch.count + lacking
    sure, possible = sketch.above(bound)
    if missing_above:
        sure, possible = sure + lacking, possible + lacking
    allowed = 1.0 - share
    if least:
        # Swap the sides of the test. A value at the bound keeps it.
        p_broken, p_kept = at_most(possible, n, allowed), at_least(sure, n, allowed)
    else:
        p_broken, p_kept = at_least(sure, n, allowed), at_most(possible, n, allowed)
    bounds = _Bounds(took, missing_above=missing_above)
    return SpreadLevel(
        sketch.quantile(share) or 0.0, bounds.low(share, ALPHA)[0], bounds.high(share, ALPHA)[1], p_broken, p_kept
    )


class _Bounds:
    """Bounds of a run's quantiles, each as the ends of its bucket."""

    def __init__(self, took: Took, *, missing_above: bool, effect: float = 1.0, strayed: float = 0.0) -> None:
        """``effect`` answers count as one; a share of ``strayed`` answers may be of other cases."""
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
    """The change of a number of the answers from baseline to candidate."""

    def above(self, factor: float, more: float) -> float:
        """The p-value of the claim that it is above ``factor`` times the baseline's plus ``more``."""

    def below(self, factor: float, more: float) -> float:
        """The p-value of the claim that it is below that."""


class QuantileChange(NamedTuple):
    """The change of a quantile of the answers from baseline to candidate."""

    base: _Bounds
    cand: _Bounds
    share: float

    @classmethod
    def of(cls, base: Took, cand: Took, share: float, *, worst: bool, rises: bool) -> QuantileChange:
        """At the ``worst``, answers without the number count against the candidate: they lie above if it ``rises``."""
        effect, other = design_effect(base, cand), _strayed(base, cand)
        above = rises if worst else not rises
        return cls(
            _Bounds(base, missing_above=not above, effect=effect),
            _Bounds(cand, missing_above=above, effect=effect, strayed=other),
            share,
        )

    def above(self, factor: float, more: float) -> float:
        """The p-value of the claim that it is above ``factor`` times the baseline's plus ``more``; each bound has half
        of the error.
        """

        def shown(alpha: float) -> bool:
            low, _ = self.cand.low(self.share, alpha / 2)
            _, high = self.base.high(self.share, alpha / 2)
            return low > factor * high + more

        return _least(shown)

    def below(self, factor: float, more: float) -> float:
        """The p-value of the claim that it is below that."""

        def shown(alpha: float) -> bool:
            _, high = self.cand.high(self.share, alpha / 2)
            low, _ = self.base.low(self.share, alpha / 2)
            return high < factor * low + more

        return _least(shown)


def _least(shown: Callable[[float], bool]) -> float:
    """The smallest error at which ``shown`` is true; 1 if it never is."""
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
    """The cases with answers in both runs, by the number or by its logarithm."""
    index = {case: at for at, case in enumerate(base.ids)}
    cases = []
    for at, case in enumerate(cand.ids):
        before = index.get(case)
        if before is not None and base.count[before] and cand.count[at]:
            cases.append(CaseMoments(*_moments(base, before, logs=logs), *_moments(cand, at, logs=logs)))
    return cases


def _moments(took: Took, at: int, *, logs: bool) -> tuple[int, float, float]:
    n = took.count[at]
    total, squares = (took.logs[at], took.log_squares[at]) if logs else (took.total[at], took.squares[at])
    spread = squares - total * total / n
    # The rounding error of equal numbers is no spread.
    return n, total / n, spread / (n - 1) if n > 1 and spread > 1e-12 * squares else 0.0


def _filled(took: Took, value: float) -> Took:
    """The usage with ``value`` for each answer that lacks the number."""
    rows = list(zip(took.count, took.missing, took.total, took.squares, strict=True))
    return msgspec.structs.replace(
        took,
        count=[count + missing for count, missing, _, _ in rows],
        missing=[0] * len(rows),
        total=[total + missing * value for _, missing, total, _ in rows],
        squares=[squares + missing * value * value for _, missing, _, squares in rows],
    )


def _strayed(base: Took, cand: Took) -> float:
    """The share of the candidate's answers that would have to move to other cases to match the baseline's shares."""
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
    """How many answers count as one: 1 if the changes of cases differ no more than by chance.

    It is the variance of the cases' changes over the variance that their answers explain, if an F test at 2.5 % shows
    that it is larger. It uses logarithms, so that one factor for all cases makes no difference between them.
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
        # All answers of a case are equal: each case counts as one answer, unless nothing differs at all.
        return max(1.0, sum(cand.count) / len(cases)) if between > 1e-12 else 1.0
    ratio, degrees = between / within, len(cases) - 1
    tail = beta_cdf(freedom / 2, degrees / 2, freedom / (freedom + degrees * ratio))
    # At most as if all answers of a case were equal.
    return min(max(1.0, ratio), sum(cand.count) / len(cases)) if tail <= ALPHA else 1.0


def _variance(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


class MeanChange(NamedTuple):
    """The means of the cases that both runs answered; all cases weigh the same."""

    cases: tuple[CaseMoments, ...]

    @classmethod
    def of(cls, base: Took, cand: Took, *, worst: bool, rises: bool) -> MeanChange:
        """At the ``worst``, answers that lack the number get the largest value of both runs, or 0, whichever counts
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
        """The p-value of the claim that it is above ``factor`` times the baseline's plus ``more``."""
        return self._tail(factor, more, 1.0)

    def below(self, factor: float, more: float) -> float:
        """The p-value of the claim that it is below that."""
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
        p_values = [_student(over, between, count - 1, answers, size)] if count > 1 else []
        if not alone:
            p_values.append(_student(over, within, freedom, answers, size))
        # Take the larger: if cases changed differently, the case is the unit. For one case only its answers count.
        return max(p_values, default=1.0)


_FAR = 1e6


def _satterthwaite(parts: Sequence[tuple[float, int]]) -> float:
    whole = math.fsum(part for part, _ in parts)
    spread = math.fsum(part * part / (n - 1) for part, n in parts if n > 1)
    return whole * whole / spread if spread > 0 else float(sum(n - 1 for _, n in parts))


def _student(over: float, variance: float, freedom: float, answers: float, size: float) -> float:
    """The p-value of an excess of ``over``: by Student's t, as observed and with two answers added.

    The added answers lie ``size`` above and below the mean, so that a few equal answers are not certain.
    """
    if freedom <= 0:
        return 1.0
    p_values = []
    if variance > 0:
        p_values.append(t_tail(over / math.sqrt(variance), freedom))
    added = math.sqrt(answers * answers * variance + 2 * size * size)
    if added > 0:
        p_values.append(t_tail(over * answers / added, freedom))
    # Without any p-value all numbers are 0.
    return max(p_values) if p_values else (0.0 if over > 0 else 1.0)


def mean_level(took: Took, bound: float, *, least: bool, missing_above: bool | None = None) -> SpreadLevel:
    """The mean of one run over its cases against a ``bound``, a ``least`` or a greatest value.

    Answers that lack the number are left out, or get the largest observed value or 0, as ``missing_above`` says.
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
        # The spread of a case with one answer is unknown; that of the means over cases is never too small.
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
