"""The p-value of a run that came out low, given the answers before it.

It is right only if it compares exchangeable answers:

- Cases that recur: the answers of one case, between runs (`of_cases`). The case's pass rate drops out.
- Cases that do not recur: whole cases, by the mean of each one's answers (`of_draws`). Answers of one case are alike,
  so that a hundred answers to ten cases tell little more than ten.
- The answers of one day share its mood. That is a further error of the run's change, normal with a standard deviation
  that the caller gives (`RunFall.p`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from evalq.evalcore.compare.pairs import ERROR, Pairs, Side, permutation_null
from evalq.evalcore.contract.measures import Measure
from evalq.evalcore.statistics.distributions import lowest

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray


BINS = 50
"""The steps of the scale on which to count the means of cases. A mean between two steps counts in part for each, so
that the overall mean stays, and the spread grows by at most a quarter of a step squared."""
_SMALL = 1e-12
_TIE = 1e-9
"""The rounding difference of values that count as equal, as a share of the scale."""
_TAIL = 18.0
"""exp of minus twice this is below `ERROR`: the window of a sum of draws, by Hoeffding's bound."""
_FAR, _STEPS = 9.0, 128
"""The table of the normal distribution: how far out it goes, beyond `ERROR`, and its steps a deviation."""


class RunFall(NamedTuple):
    """The change of a run from those before it.

    ``change`` is the difference of the means over cases as a share of the scale; below 0 is worse. ``variance`` is that
    of ``change`` by the draw of answers, or cases, alone. ``of_new`` and ``of_old`` are the parts of the run and of
    those before it, up to a factor, by counts alone. ``tail(deviation, expected)`` is the chance of a change as low as
    this one, if ``expected`` counts as no change, and the error beside the draw has that deviation.
    """

    change: float
    variance: float
    of_new: float
    of_old: float
    cases: int
    tail: Callable[[float, float], float]

    def p(self, deviations: Sequence[float] = (0.0,), odds: Sequence[float] = (1.0,), expected: float = 0.0) -> float:
        """At most u with probability at most u if nothing changed (of draws: about u); each deviation has its odds."""
        p = sum(share * self.tail(each, expected) for each, share in zip(deviations, odds, strict=True) if share)
        return min(1.0, max(ERROR, p))


def of_cases(pairs: Pairs, measure: Measure) -> RunFall:
    """The fall in the cases of both; the answers of a case are exchangeable between the run and those before it.

    Pass/fail: the exact permutation test. Scores: a bound for sums of draws without replacement from all answers of a
    case, which is several times a small exact value (`_Bound`).
    """
    cases = len(pairs.ids)
    sizes = float((1.0 / pairs.cand.answers).mean()), float((1.0 / pairs.base.answers).mean()), cases
    if measure.kind == "pass":
        turned = measure.better == "lower"
        null = permutation_null(*(_turned(side) if turned else side for side in (pairs.base, pairs.cand)))
        if null is not None:
            return _exact(null.offsets / cases, null.weights, sizes)
    bound = _bound_of(pairs, measure)
    return RunFall(-bound.fall / cases, bound.spread / cases**2, *sizes, bound.tail)


def of_draws(old: Sequence[float], new: Sequence[float]) -> RunFall:
    """The fall if each run has new cases; their means, `binned`, are exchangeable with those of the runs before it.

    Given all means, the run's means are a draw without replacement. The test takes a draw with replacement instead. Its
    spread is larger (Hoeffding 1963, theorem 4), by less if more cases came before. A tail need not be larger: with six
    cases in all, a p-value is up to 1.6 times too small.
    """
    import numpy as np

    before, drawn = np.asarray(old), np.asarray(new)
    cases, n = float(before.sum()), float(drawn.sum())
    steps = np.arange(BINS + 1)
    share = (before + drawn) / (cases + n)
    mean = float(share @ steps)
    seen = float(drawn @ steps)
    low, weights = _sum_of_draws(share, round(n))
    # Turn the run's deviation from all cases into one from the cases before it.
    by = (1 + n / cases) / (BINS * n)
    offsets = by * (low + np.arange(len(weights), dtype=float) - seen)
    change = by * (seen - n * mean)
    total = cases + n
    spread = float(share @ (steps - mean) ** 2) / BINS**2 * total / (total - 1)
    variance = spread * (1 / n + 1 / cases)
    return RunFall(change, variance, 1 / n, 1 / cases, 1, _tail_of(offsets, weights))


def binned(side: Side, measure: Measure) -> list[float]:
    """How many cases have which mean, by steps of the scale from the worst to the best."""
    import numpy as np

    means = (side.mean - measure.low) / measure.width
    steps = BINS * np.clip(means if measure.better == "higher" else 1 - means, 0.0, 1.0)
    below = np.minimum(np.floor(steps + _TIE), BINS).astype(np.int64)
    above = np.maximum(steps - below, 0.0)
    counts = np.bincount(below, 1 - above, BINS + 2) + np.bincount(below + 1, above, BINS + 2)
    return [float(each) for each in counts[: BINS + 1]]


def _exact(offsets: NDArray[float64], weights: NDArray[float64], sizes: tuple[float, float, int]) -> RunFall:
    change = -float(offsets @ weights) / float(weights.sum())
    variance = float(((offsets + change) ** 2) @ weights)
    return RunFall(change, variance, *sizes, _tail_of(offsets, weights))


def _tail_of(offsets: NDArray[float64], weights: NDArray[float64]) -> Callable[[float, float], float]:
    """The tail function; ``offsets`` are the possible values less the observed one."""
    import numpy as np

    some = weights > ERROR * 1e-6
    offsets, weights = offsets[some], weights[some]

    def tail(deviation: float, expected: float) -> float:
        below = offsets + expected
        if deviation <= 0.0:
            return float(weights[below <= _TIE].sum())
        grid, logs = _normal()
        return float(np.exp(np.interp(-below / deviation, grid, logs)) @ weights)

    return tail


@lru_cache(maxsize=1)
def _normal() -> tuple[NDArray[float64], NDArray[float64]]:
    """Deviates, and the logarithms of the normal distribution there, which are nearly linear in between."""
    import numpy as np

    grid = np.arange(-_FAR * _STEPS, _FAR * _STEPS + 1) / _STEPS
    return grid, np.log([math.erfc(-each / math.sqrt(2)) / 2 for each in grid.tolist()])


def _sum_of_draws(share: NDArray[float64], draws: int) -> tuple[int, NDArray[float64]]:
    """The distribution of a sum of ``draws`` numbers of steps: its lowest value, and the probabilities from there on.

    By a power of a transform, in a window with all but less than `ERROR` of the mass.
    """
    import numpy as np

    half = math.ceil(BINS * math.sqrt(_TAIL * draws)) + 1
    middle = draws * float(share @ np.arange(BINS + 1))
    low = max(0, math.floor(middle) - half)
    size = 1 << (min(BINS * draws - low, 2 * half) + 1).bit_length()
    weights = np.maximum(np.fft.irfft(np.fft.rfft(share, size) ** draws, size), 0.0)
    # The mass beyond the window wraps around.
    return low, np.roll(weights, -(low % size))[: min(size, BINS * draws - low + 1)]


def _turned(side: Side) -> Side:
    """The side with failures in place of passes."""
    failed = side.answers - side.total
    return Side(side.answers, failed, failed)


class _Bound(NamedTuple):
    """Chernoff's bound, with Bennett's (1962) for the moments of each answer.

    The deviation of a case's new mean from its old one is (1/n + 1/N) times that of the sum of the n new answers from
    n times the mean of all n + N. By Hoeffding (1963, theorem 4) a convex function of a sum drawn without replacement
    has no larger mean than with it, and by Bennett no variable below its mean by at most b, with variance v, has a
    larger mean of exp(t x) than the one with two values, b and -v/b. If a case has fewer old answers than new ones, the
    old ones are the draw.

    ``fall`` and ``spread`` are the sum of the falls of cases and its variance, as shares of the scale; ``weight``,
    ``drawn``, ``variance`` and ``reach`` are of the cases whose answers vary.
    """

    fall: float
    spread: float
    cases: int
    weight: NDArray[float64]
    drawn: NDArray[float64]
    variance: NDArray[float64]
    reach: NDArray[float64]

    def tail(self, deviation: float, expected: float) -> float:
        """The least, over t >= 0, of the bound of E exp(t fall), a normal error included, at exp(-t fall)."""
        import numpy as np

        fall, further = self.fall + expected * self.cases, (deviation * self.cases) ** 2
        if fall <= 0.0 or (not len(self.weight) and not further):
            return 1.0
        share = self.variance / (self.variance + self.reach**2)

        def exponent(t: float) -> float:
            high, low = t * self.weight * self.reach, -t * self.weight * self.variance / self.reach
            moments = np.logaddexp(np.log(share) + high, np.log1p(-share) + low)
            # It is convex in t.
            return float((self.drawn * moments).sum()) + t * t * further / 2 - t * fall

        steepest = float((self.weight * self.reach).max(initial=0.0))
        return math.exp(min(0.0, lowest(exponent, 1.0 / max(steepest, math.sqrt(further)))))


def _bound_of(pairs: Pairs, measure: Measure) -> _Bound:
    import numpy as np

    old, new = pairs.base, pairs.cand
    sign = 1.0 if measure.better == "higher" else -1.0
    answers = old.answers + new.answers
    mean = (old.total + new.total) / answers
    variance = np.maximum((old.squares + new.squares) / answers - mean * mean, 0.0)
    drawn = np.minimum(old.answers, new.answers).astype(float)
    down, up = mean - measure.low, measure.high - mean
    # A fall is new answers below the mean, or old ones above it, depending on which are the draw.
    reach = np.where((new.answers <= old.answers) == (sign > 0), down, up)
    weight = 1.0 / old.answers + 1.0 / new.answers
    fall = sign * float((old.mean - new.mean).sum()) / measure.width
    # Leave out cases that do not vary: dividing by the rounding error of their spread would be wrong.
    varied = (variance > _SMALL * measure.width**2) & (reach > _SMALL * measure.width)
    spread = float((variance * weight * answers / (answers - 1))[varied].sum()) / measure.width**2
    return _Bound(
        fall,
        spread,
        len(pairs.ids),
        weight[varied],
        drawn[varied],
        variance[varied] / measure.width**2,
        reach[varied] / measure.width,
    )
