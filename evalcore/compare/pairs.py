"""Cases of two runs in pairs, and exact tests of a change: permutations, and draws without replacement."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evalq.evalcore.compare.summary import CaseColumn, CaseSummary
from evalq.evalcore.contract.measures import Measure

if TYPE_CHECKING:
    from numpy import float64, int64
    from numpy.typing import NDArray
import math
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from evalq.evalcore.statistics.distributions import lowest

if TYPE_CHECKING:
    from numpy import complex128, float64
    from numpy.typing import NDArray


ROUNDED = 1e-12
"""A variance of no more than this, as a share of the mean square, is none: no double tells it from rounding."""
_PLACES = 2.0**-50


class Side(NamedTuple):
    """A run's answers to the cases of a comparison, an element each: how many, their sum, that of their squares."""

    answers: NDArray[int64]
    total: NDArray[float64]
    squares: NDArray[float64]

    @property
    def mean(self) -> NDArray[float64]:
        """The mean of each case's answers."""
        return self.total / self.answers

    @property
    def variance(self) -> NDArray[float64]:
        """The unbiased variance of each case's answers; 0 where there is but one, or where they are all alike."""
        import numpy as np

        spread = self.squares - self.total * self.total / self.answers
        # Of equal decimals the rounding of their sums is left, a few units of the last place for each of them: taken
        # for a spread it would make a change of them as good as certain, and one of binary fractions not.
        left = np.maximum(ROUNDED, self.answers * _PLACES) * self.squares
        return np.where(spread > left, spread, 0.0) / np.maximum(self.answers - 1, 1)


class Pairs(NamedTuple):
    """The cases answered on both sides, sorted by id, and those that are not.

    ``alone`` are answered by the base only, ``new`` by the candidate only. ``missing`` is how many answers to cases of
    the base the candidate lacks and the base does not: what a gate may hold against it.
    """

    ids: list[str]
    base: Side
    cand: Side
    alone: list[str]
    new: list[str]
    missing: int


def pairs_of(base: CaseSummary, cand: CaseSummary, measure: Measure, *, worst: bool = False) -> Pairs:
    """The two runs by ``measure``; a case without any answer on a side is not answered there.

    With ``worst`` every answer that is missing counts against the candidate: its own as the worst there is on the scale
    (for cases that it lacks altogether, as many as the base has answers), the base's as the best.
    """
    low, high = (measure.low, measure.high) if measure.better == "higher" else (measure.high, measure.low)
    ours = _answered(base, measure.name, fill=high if worst else None)
    theirs = _answered(cand, measure.name, fill=low if worst else None)
    lost = _lost(base, cand, measure.name)
    if worst:
        for case in ours.keys() - theirs.keys():
            count = ours[case][0]
            theirs[case] = (count, count * low, count * low * low)
    ids = sorted(ours.keys() & theirs.keys())
    alone, new = sorted(ours.keys() - theirs.keys()), sorted(theirs.keys() - ours.keys())
    return Pairs(ids, _side(ours, ids), _side(theirs, ids), alone, new, lost)


_Sums = tuple[int, float, float]


def _answered(run: CaseSummary, name: str, fill: float | None) -> dict[str, _Sums]:
    """{case: its sums}, with ``fill`` in place of each missing answer."""
    column, found = _column(run, name), {}
    rows = zip(run.ids, column.count, column.total, column.squares, run.missing, strict=True)
    for case, count, total, squares, missing in rows:
        if fill is not None and missing:
            count, total, squares = count + missing, total + missing * fill, squares + missing * fill * fill
        if count:
            found[case] = (count, total, squares)
    return found


def _column(run: CaseSummary, name: str) -> CaseColumn:
    """Empty where the run does not have that measure, as one by another version of its evaluator."""
    return run.columns.get(name) or CaseColumn([0] * len(run.ids), [0.0] * len(run.ids), [0.0] * len(run.ids))


def _lost(base: CaseSummary, cand: CaseSummary, name: str) -> int:
    there = dict(zip(cand.ids, zip(_column(cand, name).count, cand.missing, strict=True), strict=True))
    lost = 0
    for case, count, missing in zip(base.ids, _column(base, name).count, base.missing, strict=True):
        if count:
            answered, lacking = there.get(case, (0, 0))
            # What the baseline lacked as well is not held against the candidate.
            lost += max(0, lacking - missing) if answered or lacking else count
    return lost


def _side(sums: dict[str, _Sums], ids: list[str]) -> Side:
    import numpy as np

    # In shape also without any case, where numpy would make no columns.
    rows = np.array([sums[case] for case in ids], dtype=float).reshape(len(ids), 3)
    return Side(rows[:, 0].astype(np.int64), rows[:, 1].copy(), rows[:, 2].copy())


# The exact permutation test of passes within cases, from counts alone.

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


_MOST_GROUPS = 1 << 13
"""With more groups than this the grid would be mostly room for their rounding: a bound of the tails takes its place."""
_WIDE = 1 << 16
"""Of a case with more possible numbers of passes than this, those are kept that hold all but 1e-21 of the mass."""
_FAR = 25.0
"""exp of minus twice this is 2e-22."""
_KEPT = 1 << 12
"""No transform of more points than this is kept for the next call."""


class _Draw(NamedTuple):
    """The candidate's passes in one case, as a `_Sum` of one; ``mean`` is of what is above ``low``."""

    low: int
    weights: NDArray[float64]
    spread: float
    mean: float


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
    Of more than `_MOST_GROUPS` different repeats they are Chernoff's bounds, several times the exact values.
    """
    groups, seen = _groups(base, cand)
    sums = {repeats: _sum_of(*repeats, counts) for repeats, counts in groups.items()}
    if len(sums) == 1:
        ((repeats, found),) = sums.items()
        return _tails(found, seen[repeats], seen[repeats])
    return _together(sums, seen) if len(sums) <= _MOST_GROUPS else _bounds(sums, seen)


class Null(NamedTuple):
    """The statistic without change: the sum over cases of the differences of pass rates, given each case's answers.

    ``offsets`` are its values less the observed one, ``weights`` their probabilities. Values that rounding could have
    parted from the observed one stand at or below 0, so that sums up to there are a p-value of a fall.
    """

    offsets: NDArray[float64]
    weights: NDArray[float64]


def permutation_null(base: Side, cand: Side) -> Null | None:
    """The distribution that `permutation_p` takes its tails from; None where it takes bounds instead.

    For a test that adds further uncertainty to it, such as that of days.
    """
    import numpy as np

    groups, seen = _groups(base, cand)
    sums = {repeats: _sum_of(*repeats, counts) for repeats, counts in groups.items()}
    if len(sums) == 1:
        ((repeats, found),) = sums.items()
        by = 1 / repeats[0] + 1 / repeats[1]
        places = np.arange(len(found.weights), dtype=float)
        return Null(by * (places + found.low - seen[repeats]), found.weights)
    if len(sums) > _MOST_GROUPS:
        return None
    grid = _on_grid(sums, seen)
    return Null(grid.step * (np.arange(_GRID, dtype=float) - math.floor(grid.at_seen + grid.slack)), grid.weights)


_Repeats = tuple[int, int]


def _groups(base: Side, cand: Side) -> tuple[dict[_Repeats, dict[int, int]], dict[_Repeats, int]]:
    """By the answers of base and candidate: how many cases have so many passes, and how often the candidate passed."""
    import numpy as np

    # Passes are whole numbers; sums of columns come as floats.
    passes, ours = (np.rint(each).astype(np.int64) for each in (base.total + cand.total, cand.total))
    order = np.lexsort((passes, cand.answers, base.answers))
    keys = np.stack([base.answers[order], cand.answers[order], passes[order]])
    starts = np.flatnonzero(np.concatenate([[True], (keys[:, 1:] != keys[:, :-1]).any(axis=0)]))
    many = np.diff(np.append(starts, len(order)))
    rows = zip(
        np.minimum.reduceat(order, starts).tolist(),
        *keys[:, starts].tolist(),
        many.tolist(),
        np.add.reduceat(ours[order], starts).tolist(),
        strict=True,
    )
    groups: dict[_Repeats, dict[int, int]] = {}
    seen: Counter[_Repeats] = Counter()
    # In the order of the cases: sums of doubles over groups go by it.
    for _, r_b, r_c, m, cases, passed in sorted(rows):
        groups.setdefault((r_b, r_c), {})[m] = cases
        seen[r_b, r_c] += passed
    return groups, seen


def _hypergeometric(r_b: int, r_c: int, m: int) -> _Draw:
    """Passes of the candidate among its ``r_c`` answers, where ``m`` of all passed."""
    # A cache of many wide ones would take gigabytes.
    wide = min(m, r_c) - max(0, m - r_b) >= _KEPT
    return _drawn(r_b, r_c, m) if wide else _drawn_before(r_b, r_c, m)


def _drawn(r_b: int, r_c: int, m: int) -> _Draw:
    import numpy as np

    low, high = max(0, m - r_b), min(m, r_c)
    spread = float(high - low) ** 2
    if high - low >= _WIDE:
        # As few as these are drawn, whichever way it is seen, so that Hoeffding's bound has their number for a range.
        draws = min(r_b, r_c, m, r_b + r_c - m)
        half, middle = math.ceil(math.sqrt(_FAR * draws)), r_c * m // (r_b + r_c)
        low, high, spread = max(low, middle - half), min(high, middle + half), min(spread, float(draws))
    # From one probability to the next by their ratio, outwards from the greatest, so that nothing overflows.
    x = np.arange(low, high, dtype=float)
    rising = (m - x) * (r_c - x) / ((x + 1) * (r_b - m + x + 1))
    mode = int(np.searchsorted(-rising, -1.0))
    weights = np.concatenate([np.cumprod(1 / rising[:mode][::-1])[::-1], [1.0], np.cumprod(rising[mode:])])
    weights /= weights.sum()
    return _Draw(low, weights, spread, float(np.arange(len(weights)) @ weights))


_drawn_before = lru_cache(maxsize=4096)(_drawn)


def _transform(r_b: int, r_c: int, m: int, size: int) -> NDArray[complex128]:
    import numpy as np

    found = _hypergeometric(r_b, r_c, m)
    folded = np.zeros(size)
    folded[: len(found.weights)] = found.weights
    return np.fft.rfft(folded)


_transform_before = lru_cache(maxsize=1024)(_transform)


def _sum_of(r_b: int, r_c: int, counts: dict[int, int]) -> _Sum:
    """The candidate's passes over all cases of these repeats; ``counts`` has how many cases have so many passes.

    A product of transforms, in a window that holds all but less than `ERROR` of the mass.
    """
    import numpy as np

    each = {m: _hypergeometric(r_b, r_c, m) for m in sorted(counts)}
    low = sum(found.low * counts[m] for m, found in each.items())
    reach = sum((len(found.weights) - 1) * counts[m] for m, found in each.items())
    spread = sum(found.spread * counts[m] for m, found in each.items())
    mean = sum(found.mean * counts[m] for m, found in each.items())
    half = math.ceil(math.sqrt(_TAIL * spread)) + 1
    begin = max(0, math.floor(mean) - half)
    # A power of two, for the transform. What lies beyond it wraps around, and is less than `ERROR` by Hoeffding.
    size = 1 << max(1, (min(reach, 2 * half) + 1).bit_length())
    product = np.ones(size // 2 + 1, dtype=complex)
    # Planning asks for the same few again and again.
    transform = _transform_before if size <= _KEPT else _transform
    for m in each:
        product *= transform(r_b, r_c, m, size) ** counts[m]
    wrapped = np.fft.irfft(product, size)
    # What a transform leaves below 0 is rounding.
    weights = np.maximum(np.roll(wrapped, -(begin % size)), 0.0)
    return _Sum(low + begin, weights[: min(size, reach - begin + 1)], spread)


def _tails(found: _Sum, at_most: int, at_least: int) -> tuple[float, float]:
    below = float(found.weights[: max(0, at_most - found.low + 1)].sum())
    above = float(found.weights[max(0, at_least - found.low) :].sum())
    return _bounded(below), _bounded(above)


class _Grid(NamedTuple):
    """``weights`` of values ``step`` apart; the observed value is at ``at_seen`` steps, give or take ``slack``."""

    weights: NDArray[float64]
    step: float
    at_seen: float
    slack: float


def _on_grid(sums: dict[_Repeats, _Sum], seen: dict[_Repeats, int]) -> _Grid:
    """Groups of different repeats together: a pass moves the statistic by 1/R_b + 1/R_c there."""
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
    return _Grid(weights, step, at_seen, _DEVIATIONS * math.sqrt(len(sums)) / 2)


def _together(sums: dict[_Repeats, _Sum], seen: dict[_Repeats, int]) -> tuple[float, float]:
    weights, _, at_seen, slack = _on_grid(sums, seen)
    below_seen = float(weights[: max(0, math.floor(at_seen + slack) + 1)].sum())
    return _bounded(below_seen), _bounded(float(weights[max(0, math.ceil(at_seen - slack)) :].sum()))


def _bounds(sums: dict[_Repeats, _Sum], seen: dict[_Repeats, int]) -> tuple[float, float]:
    """Chernoff's bounds of both tails, over more groups than a grid has room for."""
    import numpy as np

    values, weights, starts, at = [], [], [0], 0.0
    for repeats, found in sums.items():
        by, places = 1 / repeats[0] + 1 / repeats[1], np.arange(len(found.weights))
        mean = float(places @ found.weights) / float(found.weights.sum())
        values.append(by * (places - mean))
        weights.append(found.weights)
        starts.append(starts[-1] + len(places))
        at += by * (seen[repeats] - found.low - mean)
    every = np.concatenate(values)
    with np.errstate(divide="ignore"):
        logs = np.log(np.concatenate(weights))

    def tail(sign: int) -> float:
        def exponent(t: float) -> float:
            moments = np.logaddexp.reduceat(t * sign * every + logs, starts[:-1])
            return float(moments.sum()) - t * sign * at

        # On the observed side of the mean nothing is surprising, and the bound says 1.
        return math.exp(min(0.0, lowest(exponent, 1 / float(np.abs(every).max())))) if sign * at > 0 else 1.0

    return _bounded(tail(-1)), _bounded(tail(1))


def _bounded(p: float) -> float:
    """Within its error, in as many digits as mean something."""
    return min(1.0, max(ERROR, round(p, 12)))


# Chances of a draw without replacement: exact where numbers are small, and between two bounds where they are not.

EXACT_DRAWS = 10_000
"""Draws from no more than this are exact. Whole numbers take the square of it in time: a few hundredths of a second."""
DRAW_TOLERANCE = 1e-4
"""What share of itself a chance over more may be off by, for the logarithms of the gamma function; 2e-6 was seen."""
_SUMMED_DEVIATIONS, _FEWEST = 10, 100
"""So many standard deviations and so many steps are added one by one; a geometric sum bounds what is beyond."""
_TINY = 1e-300


def draw_ways(taken: int, marked: int, every: int, least: int) -> int:
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


def draw_bounds(taken: int, marked: int, every: int, least: int) -> tuple[float, float]:
    """Bounds of the chance that ``taken`` of ``every`` hold at least ``least`` of the ``marked`` ones.

    Both are the chance, rounded once, up to `EXACT`. Beyond they differ by at most 3 `ABOUT` of it where ``least`` is
    above the mean, of one minus it where it is below, and by 1e-300: whoever asks takes the side that errs to no
    decision.
    """
    if least <= max(0, taken - (every - marked)):
        return 1.0, 1.0
    if least > min(taken, marked):
        return 0.0, 0.0
    if every <= EXACT_DRAWS:
        exact = draw_ways(taken, marked, every, least) / math.comb(every, taken)
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
    steps = min(last - least, _FEWEST + math.ceil(_SUMMED_DEVIATIONS * deviation))
    x = np.arange(least, least + steps, dtype=float)
    falling = (marked - x) * (taken - x) / ((x + 1) * (every - marked - taken + x + 1))
    terms = np.cumprod(falling)
    first = math.exp(_log(marked, least) + _log(every - marked, taken - least) - _log(every, taken))
    # Ratios go on falling, so that what is beyond is less than if the last of them went on.
    rest = float(terms[-1] * falling[-1] / (1 - falling[-1])) if least + steps < last else 0.0
    total = 1.0 + float(terms.sum())
    return first * total * (1 - DRAW_TOLERANCE), min(1.0, max(_TINY, first * (total + rest) * (1 + DRAW_TOLERANCE)))


def _log(n: int, k: int) -> float:
    """The logarithm of n over k."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
