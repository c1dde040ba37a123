"""Cases of two runs in pairs, and exact tests of a change: permutations, and draws without replacement."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from evalq.evalcore.compare.summary import CaseColumn, CaseSummary, Repeats
from evalq.evalcore.contract.measures import Measure
from evalq.evalcore.statistics.distributions import lowest

if TYPE_CHECKING:
    from numpy import complex128, float64, int64
    from numpy.typing import NDArray


ROUNDED = 1e-12
"""A variance up to this share of the mean square counts as 0, since doubles cannot tell it from rounding."""
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
        """The unbiased variance of each case's answers; 0 for one answer, and for equal answers."""
        import numpy as np

        spread = self.squares - self.total * self.total / self.answers
        # Equal decimals leave a few units of the last place for each answer. If that counted as spread, a change of
        # such answers would be nearly certain, unlike that of binary fractions.
        left = np.maximum(ROUNDED, self.answers * _PLACES) * self.squares
        return np.where(spread > left, spread, 0.0) / np.maximum(self.answers - 1, 1)


class Pairs(NamedTuple):
    """The cases with answers on both sides, sorted by id, and the others.

    Only the base answered ``alone``, only the candidate ``new``. ``missing`` is how many answers to the base's cases
    the candidate lacks, but the base has.
    """

    ids: list[str]
    base: Side
    cand: Side
    alone: list[str]
    new: list[str]
    missing: int


def pairs_of(base: CaseSummary, cand: CaseSummary, measure: Measure, *, worst: bool = False) -> Pairs:
    """The two runs by ``measure``, paired by case.

    With ``worst`` every missing answer counts against the candidate: its own as the worst on the scale, the base's as
    the best. A case that the candidate lacks altogether has as many missing answers as the base has answers.
    """
    import numpy as np

    low, high = (measure.low, measure.high) if measure.better == "higher" else (measure.high, measure.low)
    ours = _side(base, measure.name, fill=high if worst else None)
    every = _side(cand, measure.name, fill=low if worst else None)
    at = _places(base.ids, cand.ids)
    theirs = _taken(every, at)
    if worst:
        gone = (ours.answers > 0) & (theirs.answers == 0)
        count = ours.answers[gone]
        theirs.answers[gone], theirs.total[gone], theirs.squares[gone] = count, count * low, count * low * low
    both = np.flatnonzero((ours.answers > 0) & (theirs.answers > 0))
    ids = [base.ids[place] for place in both]
    if ids != (ordered := sorted(ids)):
        both = both[sorted(range(len(ids)), key=ids.__getitem__)]
    paired = np.zeros(len(cand.ids), dtype=bool)
    paired[at[(ours.answers > 0) & (at >= 0)]] = True
    alone = [base.ids[place] for place in np.flatnonzero((ours.answers > 0) & (theirs.answers == 0))]
    new = [cand.ids[place] for place in np.flatnonzero((every.answers > 0) & ~paired)]
    lost = _lost(base, cand, measure.name, at)
    return Pairs(ordered, _taken(ours, both), _taken(theirs, both), sorted(alone), sorted(new), lost)


def _side(run: CaseSummary, name: str, fill: float | None) -> Side:
    """The run's cases in their order, with ``fill`` in place of each missing answer."""
    import numpy as np

    column = _column(run, name)
    count = np.array(column.count, dtype=np.int64)
    total, squares = np.array(column.total, dtype=float), np.array(column.squares, dtype=float)
    if fill is not None and any(run.missing):
        missing = np.array(run.missing, dtype=np.int64)
        lacks = missing > 0
        count = count + missing
        total[lacks] += missing[lacks] * fill
        squares[lacks] += missing[lacks] * fill * fill
    return Side(count, total, squares)


def _places(ids: list[str], other: list[str]) -> NDArray[int64]:
    """The place of each of ``ids`` in the ``other`` list, -1 if it is not there."""
    import numpy as np

    if ids == other:
        return np.arange(len(ids))
    places = {case: place for place, case in enumerate(other)}
    return np.array([places.get(case, -1) for case in ids], dtype=np.int64)


def _taken(side: Side, at: NDArray[int64]) -> Side:
    """The cases at these places; a case without a place has no answer."""
    import numpy as np

    if not len(side.answers):
        return Side(np.zeros(len(at), dtype=np.int64), np.zeros(len(at)), np.zeros(len(at)))
    taken = Side(side.answers[at], side.total[at], side.squares[at])
    for column in taken:
        column[at < 0] = 0
    return taken


def _column(run: CaseSummary, name: str) -> CaseColumn:
    """The run's column; empty if it lacks the measure, for example with another version of its evaluator."""
    return run.columns.get(name) or CaseColumn([0] * len(run.ids), [0.0] * len(run.ids), [0.0] * len(run.ids))


def _lost(base: CaseSummary, cand: CaseSummary, name: str, at: NDArray[int64]) -> int:
    import numpy as np

    count, missing = np.array(_column(base, name).count, dtype=np.int64), np.array(base.missing, dtype=np.int64)
    # The last place stands for cases that the candidate lacks.
    answered = np.array([*_column(cand, name).count, 0], dtype=np.int64)[at]
    lacking = np.array([*cand.missing, 0], dtype=np.int64)[at]
    # Answers that the baseline lacks, too, do not count against the candidate.
    lost = np.where((answered > 0) | (lacking > 0), np.maximum(0, lacking - missing), count)
    return int(lost[count > 0].sum())


# The exact permutation test of passes within cases, from counts alone.

ERROR = 1e-12
"""The absolute error of a p-value, and its smallest value: sums of many cases come from a Fourier transform."""
_GRID = 1 << 16
"""The points of the grid on which to add sums with unequal weights, over a window with all but `ERROR` of the mass."""
_DEVIATIONS = 4
"""How many standard deviations of the rounding to that grid count as equal to the observed value."""
_TIE = 1e-6
"""How far equal values of the statistic may differ by rounding, in steps."""
_TAIL = 18.0
"""exp of minus twice this is below `ERROR`: the width of a window with the rest of the mass, by Hoeffding's bound."""


_MOST_GROUPS = 1 << 13
"""With more groups than this the grid would be mostly room for their rounding: a bound of the tails takes its place."""
_WIDE = 1 << 16
"""Of a case with more possible numbers of passes than this, those are kept that hold all but 1e-21 of the mass."""
_FAR = 25.0
"""exp of minus twice this is 2e-22."""
_KEPT = 1 << 12
"""No transform of more points than this is kept for the next call."""


class _Draw(NamedTuple):
    """The candidate's passes in one case, as a `_Sum` of one; ``mean`` is the mean excess over ``low``."""

    low: int
    weights: NDArray[float64]
    spread: float
    mean: float


class _Sum(NamedTuple):
    """The distribution of a sum of whole numbers: ``weights[k]`` is the probability of ``low + k``.

    ``spread`` is the sum of the squared ranges of the summands, for Hoeffding's bound.
    """

    low: int
    weights: NDArray[float64]
    spread: float


def permutation_p(base: Side, cand: Side) -> tuple[float, float]:
    """(p_worse, p_better): the p-values of the candidate's few, or many, passes if nothing changed.

    If nothing changed, a case's m passes in R_b + R_c answers fall to the candidate by a draw without replacement. So
    its passes are hypergeometric, independently over cases. The statistic is the sum of the differences of pass rates.
    With one answer a side this is McNemar's exact test.

    If cases differ in their repeats, the sums over equal repeats are exact, and a grid adds them, rounded without bias.
    Values that rounding could separate count as equal, so that p-values can only grow. With more than `_MOST_GROUPS`
    different repeats they are Chernoff's bounds, several times the exact values.
    """
    groups, seen = _groups(base, cand)
    sums = {repeats: _sum_of(*repeats, counts) for repeats, counts in groups.items()}
    if len(sums) == 1:
        ((repeats, only),) = sums.items()
        return _tails(only, seen[repeats], seen[repeats])
    return _together(sums, seen) if len(sums) <= _MOST_GROUPS else _bounds(sums, seen)


class Null(NamedTuple):
    """The statistic without change: the sum over cases of the differences of pass rates, given each case's answers.

    ``offsets`` are its values less the observed one, ``weights`` their probabilities. Values that may equal the
    observed one but for rounding are at or below 0, so that the weights up to 0 sum to the p-value of a fall.
    """

    offsets: NDArray[float64]
    weights: NDArray[float64]


def permutation_null(base: Side, cand: Side) -> Null | None:
    """The distribution behind `permutation_p`; None if that uses bounds.

    For a test that adds further uncertainty to it, such as that of days.
    """
    import numpy as np

    groups, seen = _groups(base, cand)
    sums = {repeats: _sum_of(*repeats, counts) for repeats, counts in groups.items()}
    if len(sums) == 1:
        ((repeats, only),) = sums.items()
        by = 1 / repeats[0] + 1 / repeats[1]
        passes = np.arange(len(only.weights), dtype=float)
        return Null(by * (passes + only.low - seen[repeats]), only.weights)
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
    # Keep the order of the cases, on which sums of doubles depend.
    for _, r_b, r_c, m, cases, passed in sorted(rows):
        groups.setdefault((r_b, r_c), {})[m] = cases
        seen[r_b, r_c] += passed
    return groups, seen


def _hypergeometric(r_b: int, r_c: int, m: int) -> _Draw:
    """The candidate's passes among its ``r_c`` answers, if ``m`` of all answers passed."""
    # Do not cache wide distributions: many of them would take gigabytes.
    wide = min(m, r_c) - max(0, m - r_b) >= _KEPT
    return _drawn(r_b, r_c, m) if wide else _drawn_before(r_b, r_c, m)


def _drawn(r_b: int, r_c: int, m: int) -> _Draw:
    import numpy as np

    low, high = max(0, m - r_b), min(m, r_c)
    spread = float(high - low) ** 2
    if high - low >= _WIDE:
        # Exchanging the roles of draws and passes keeps the distribution, so Hoeffding's bound may use the smallest.
        draws = min(r_b, r_c, m, r_b + r_c - m)
        half, middle = math.ceil(math.sqrt(_FAR * draws)), r_c * m // (r_b + r_c)
        low, high, spread = max(low, middle - half), min(high, middle + half), min(spread, float(draws))
    # Multiply by the ratio of neighbours, outwards from the largest probability, so that nothing overflows.
    x = np.arange(low, high, dtype=float)
    rising = (m - x) * (r_c - x) / ((x + 1) * (r_b - m + x + 1))
    mode = int(np.searchsorted(-rising, -1.0))
    weights = np.concatenate([np.cumprod(1 / rising[:mode][::-1])[::-1], [1.0], np.cumprod(rising[mode:])])
    weights /= weights.sum()
    return _Draw(low, weights, spread, float(np.arange(len(weights)) @ weights))


_drawn_before = lru_cache(maxsize=4096)(_drawn)


def _transform(r_b: int, r_c: int, m: int, size: int) -> NDArray[complex128]:
    import numpy as np

    draw = _hypergeometric(r_b, r_c, m)
    padded = np.zeros(size)
    padded[: len(draw.weights)] = draw.weights
    return np.fft.rfft(padded)


_transform_before = lru_cache(maxsize=1024)(_transform)


def _sum_of(r_b: int, r_c: int, counts: dict[int, int]) -> _Sum:
    """The candidate's passes over all cases of these repeats; ``counts`` has how many cases have so many passes.

    By a product of transforms, in a window with all but less than `ERROR` of the mass.
    """
    import numpy as np

    draws = {m: _hypergeometric(r_b, r_c, m) for m in sorted(counts)}
    low = sum(draw.low * counts[m] for m, draw in draws.items())
    reach = sum((len(draw.weights) - 1) * counts[m] for m, draw in draws.items())
    spread = sum(draw.spread * counts[m] for m, draw in draws.items())
    mean = sum(draw.mean * counts[m] for m, draw in draws.items())
    half = math.ceil(math.sqrt(_TAIL * spread)) + 1
    begin = max(0, math.floor(mean) - half)
    # A power of two, for the transform. The mass beyond it wraps around, and is less than `ERROR` by Hoeffding.
    size = 1 << max(1, (min(reach, 2 * half) + 1).bit_length())
    product = np.ones(size // 2 + 1, dtype=complex)
    # Planning asks for the same few again and again.
    transform = _transform_before if size <= _KEPT else _transform
    for m in draws:
        product *= transform(r_b, r_c, m, size) ** counts[m]
    wrapped = np.fft.irfft(product, size)
    # Values below 0 are rounding errors of the transform.
    weights = np.maximum(np.roll(wrapped, -(begin % size)), 0.0)
    return _Sum(low + begin, weights[: min(size, reach - begin + 1)], spread)


def _tails(passes: _Sum, at_most: int, at_least: int) -> tuple[float, float]:
    below = float(passes.weights[: max(0, at_most - passes.low + 1)].sum())
    above = float(passes.weights[max(0, at_least - passes.low) :].sum())
    return _bounded(below), _bounded(above)


class _Grid(NamedTuple):
    """``weights`` of values ``step`` apart; the observed value is at ``at_seen`` steps, give or take ``slack``."""

    weights: NDArray[float64]
    step: float
    at_seen: float
    slack: float


def _on_grid(sums: dict[_Repeats, _Sum], seen: dict[_Repeats, int]) -> _Grid:
    """All groups together; in each, a pass moves the statistic by 1/R_b + 1/R_c."""
    import numpy as np

    by = {repeats: 1 / repeats[0] + 1 / repeats[1] for repeats in sums}
    spread = sum(by[repeats] ** 2 * group.spread for repeats, group in sums.items())
    reach = sum(by[repeats] * (len(group.weights) - 1) for repeats, group in sums.items())
    width = min(reach, 2 * math.sqrt(_TAIL * spread))
    # Leave room at the end, since rounding may move each group one point on.
    step = width / (_GRID - 4 * len(sums)) if width else 1.0
    mean = sum(by[r] * float(np.arange(len(f.weights)) @ f.weights) for r, f in sums.items()) / step
    # If all sums fit, nothing wraps around, and the window need not be centred.
    begin = 0 if width == reach else math.floor(mean) - _GRID // 2
    product = np.ones(_GRID // 2 + 1, dtype=complex)
    for repeats, group in sums.items():
        points = by[repeats] * np.arange(len(group.weights)) / step
        below = np.floor(points + _TIE)
        above = np.maximum(points - below, 0.0)  # this part of the weight goes to the next point, so the mean stays
        at = below.astype(np.int64) % _GRID
        folded = np.bincount(at, group.weights * (1 - above), _GRID)
        folded += np.bincount((at + 1) % _GRID, group.weights * above, _GRID)
        product *= np.fft.rfft(folded)
    weights = np.roll(np.maximum(np.fft.irfft(product, _GRID), 0.0), -(begin % _GRID))
    at_seen = sum(by[repeats] * (seen[repeats] - group.low) for repeats, group in sums.items()) / step - begin
    return _Grid(weights, step, at_seen, _DEVIATIONS * math.sqrt(len(sums)) / 2)


def _together(sums: dict[_Repeats, _Sum], seen: dict[_Repeats, int]) -> tuple[float, float]:
    weights, _, at_seen, slack = _on_grid(sums, seen)
    below_seen = float(weights[: max(0, math.floor(at_seen + slack) + 1)].sum())
    return _bounded(below_seen), _bounded(float(weights[max(0, math.ceil(at_seen - slack)) :].sum()))


def _bounds(sums: dict[_Repeats, _Sum], seen: dict[_Repeats, int]) -> tuple[float, float]:
    """Chernoff's bounds of both tails, for more groups than fit on a grid."""
    import numpy as np

    values, weights, starts, at = [], [], [0], 0.0
    for repeats, group in sums.items():
        by, passes = 1 / repeats[0] + 1 / repeats[1], np.arange(len(group.weights))
        mean = float(passes @ group.weights) / float(group.weights.sum())
        values.append(by * (passes - mean))
        weights.append(group.weights)
        starts.append(starts[-1] + len(passes))
        at += by * (seen[repeats] - group.low - mean)
    every = np.concatenate(values)
    with np.errstate(divide="ignore"):
        logs = np.log(np.concatenate(weights))

    def tail(sign: int) -> float:
        def exponent(t: float) -> float:
            moments = np.logaddexp.reduceat(t * sign * every + logs, starts[:-1])
            return float(moments.sum()) - t * sign * at

        # On the other side of the mean nothing is surprising, so the bound is 1.
        return math.exp(min(0.0, lowest(exponent, 1 / float(np.abs(every).max())))) if sign * at > 0 else 1.0

    return _bounded(tail(-1)), _bounded(tail(1))


def _bounded(p: float) -> float:
    """The p-value between its error and 1, rounded to the digits that mean something."""
    return min(1.0, max(ERROR, round(p, 12)))


# Chances of a draw without replacement: exact for small numbers, and between two bounds for large ones.

EXACT_DRAWS = 10_000
"""Draws from up to this many are exact. Their time grows with its square: up to a few hundredths of a second."""
DRAW_TOLERANCE = 1e-4
"""The relative error to allow for larger draws, because of the log-gamma function; 2e-6 was measured."""
_SUMMED_DEVIATIONS, _FEWEST = 10, 100
"""How many standard deviations, and steps, to add one by one; a geometric sum bounds the rest."""
_TINY = 1e-300


def draw_ways(drawn: int, marked: int, every: int, least: int) -> int:
    """How many of the ``comb(every, drawn)`` draws have at least ``least`` of the ``marked`` ones."""
    # A large draw must have some marked ones, because there are too few others.
    first, last = max(least, drawn - (every - marked), 0), min(drawn, marked)
    if first > last:
        return 0
    ways = total = math.comb(marked, first) * math.comb(every - marked, drawn - first)
    for x in range(first, last):
        # Multiply by the ratio to the next: each binomial anew would take cubic time.
        ways = ways * ((marked - x) * (drawn - x)) // ((x + 1) * (every - marked - drawn + x + 1))
        total += ways
    return total


def draw_bounds(drawn: int, marked: int, every: int, least: int) -> tuple[float, float]:
    """Bounds of the chance that ``drawn`` of ``every`` have at least ``least`` of the ``marked`` ones.

    Up to `EXACT_DRAWS` both are the chance, rounded once. Beyond, they differ by at most 3 `DRAW_TOLERANCE` of it
    (below the mean: of one minus it), and by 1e-300. Callers use the bound that errs towards no decision.
    """
    if least <= max(0, drawn - (every - marked)):
        return 1.0, 1.0
    if least > min(drawn, marked):
        return 0.0, 0.0
    if every <= EXACT_DRAWS:
        exact = draw_ways(drawn, marked, every, least) / math.comb(every, drawn)
        return exact, exact
    if least * every >= drawn * marked:
        return _tail(drawn, marked, every, least)
    # Below the mean the other tail is the small one: that of the unmarked ones.
    low, high = _tail(drawn, every - marked, every, drawn - least + 1)
    return 1.0 - high, 1.0 - low


def _tail(drawn: int, marked: int, every: int, least: int) -> tuple[float, float]:
    """The bounds for ``least`` at or above the mean, where chances fall."""
    import numpy as np

    last, share = min(drawn, marked), marked / every
    deviation = math.sqrt(drawn * share * (1 - share) * (1 - drawn / every))
    steps = min(last - least, _FEWEST + math.ceil(_SUMMED_DEVIATIONS * deviation))
    x = np.arange(least, least + steps, dtype=float)
    falling = (marked - x) * (drawn - x) / ((x + 1) * (every - marked - drawn + x + 1))
    terms = np.cumprod(falling)
    first = math.exp(_log(marked, least) + _log(every - marked, drawn - least) - _log(every, drawn))
    # Ratios go on falling, so the rest is less than a geometric sum with the last ratio.
    rest = float(terms[-1] * falling[-1] / (1 - falling[-1])) if least + steps < last else 0.0
    total = 1.0 + float(terms.sum())
    return first * total * (1 - DRAW_TOLERANCE), min(1.0, max(_TINY, first * (total + rest) * (1 + DRAW_TOLERANCE)))


def _log(n: int, k: int) -> float:
    """The logarithm of n over k."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


# Repeats that a file of recorded outputs leaves out.

_T = TypeVar("_T")

_SHARED = 2
"""Cases share their repeats if an input has at most so many times as many different ones as one of its cases."""


def left_out(repeats: Mapping[Repeats, Sequence[str]]) -> dict[str, int]:
    """{case: how many repeats an input left out}: the case has later ones there, and other cases have just these.

    A program that writes only what succeeded leaves such gaps. The last repeats of a case may be missing because it was
    decided early. Repeats that are seeds or times, which cases do not share, have no gaps.
    """
    asked = _asked_repeats(repeats)
    counts = ((_gaps(dict(have), asked), cases) for have, cases in repeats.items())
    return {case: count for count, cases in counts if count for case in cases}


def _asked_repeats(repeats: Iterable[Repeats]) -> dict[str, dict[int, int]]:
    """{input: {block: bits}} of the repeats that any case has, for inputs whose cases share their repeats."""
    every: dict[str, dict[int, int]] = {}
    most: Counter[str] = Counter()
    for have in repeats:
        counts: Counter[str] = Counter()
        for (source, block), bits in have:
            blocks = every.setdefault(source, {})
            blocks[block] = blocks.get(block, 0) | bits
            counts[source] += bits.bit_count()
        most |= counts
    return {
        source: blocks
        for source, blocks in every.items()
        if sum(bits.bit_count() for bits in blocks.values()) <= _SHARED * most[source]
    }


def _gaps(have: Mapping[tuple[str, int], int], asked: Mapping[str, Mapping[int, int]]) -> int:
    """How many of the repeats ``asked`` in its inputs a case lacks, below its own last one."""
    count = 0
    for source in {source for source, _ in have}:
        last = max(block for each, block in have if each == source)
        for block, bits in asked.get(source, {}).items():
            own = have.get((source, block), 0)
            below = bits if block < last else bits & ((1 << own.bit_length()) - 1) if block == last else 0
            count += (below & ~own).bit_count()
    return count


def short_repeats(run: CaseSummary, base: CaseSummary | None) -> dict[str, int]:
    """{case: how many repeats fewer it has than the others, measured by those of ``base``}.

    `left_out` sees no gap if the last repeats of a case are missing. Here the other cases tell how many there should
    be: most have the same number, or the same share of the baseline's. Where the baseline has one number for most
    cases, the largest number counts: so that a file may lack repeats of most cases, too. Where cases differ freely, as
    those of a log do, nothing is known.
    """
    have = _repeats_of(run)
    before = _repeats_of(base) if base is not None else {}
    both = [case for case in have if case in before]
    most = max(have.values(), default=0)
    even = _usual(Counter(before.values()))
    share = _usual_share(Counter((have[case], before[case]) for case in both))
    if even is not None and both and (share is None or most == even):
        wanted = dict.fromkeys(have, most)
    elif share is not None:
        wanted = {case: math.floor(share * before[case]) for case in both}
    else:
        usual = _usual(Counter(have.values()))
        wanted = dict.fromkeys(have, usual) if usual is not None else {}
    # A case that was decided is called no more, which the gate says by itself.
    stopped = {*run.stopped, *(base.stopped if base is not None else ())}
    return {case: lacks for case, n in wanted.items() if (lacks := n - have[case]) > 0 and case not in stopped}


def _repeats_of(run: CaseSummary) -> dict[str, int]:
    return {case: count for case, count in zip(run.ids, run.asked, strict=False) if count}


def _usual_share(counts: Mapping[tuple[int, int], int]) -> Fraction | None:
    shares: Counter[Fraction] = Counter()
    for (now, before), count in counts.items():
        shares[Fraction(now, before)] += count
    return _usual(shares)


def _usual(counts: Counter[_T]) -> _T | None:
    """The value that more than half of all have; None if there is none."""
    value, count = counts.most_common(1)[0] if counts else (None, 0)
    return value if 2 * count > counts.total() else None
