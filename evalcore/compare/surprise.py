"""How surprising a run is that came out so low, given the answers to its cases before it: a p-value that holds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from evalq.evalcore.compare.pairs import Pairs
from evalq.evalcore.compare.permutation import ERROR, permutation_p
from evalq.evalcore.contract.measures import Measure
from evalq.evalcore.statistics.distributions import lowest

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

__all__ = ["surprise"]

_SMALL = 1e-12


def surprise(pairs: Pairs, measure: Measure) -> float:
    """At most u with probability at most u, for every u, if old and new answers of each case are exchangeable.

    That holds given all answers of each case, old and new together, and so whatever came before. Pass/fail: the exact
    permutation test. Scores: a bound for sums of draws without replacement from what all of them add up to, which is
    several times the exact value where that is small (`_bounded`).
    """
    if measure.kind == "pass":
        worse, better = permutation_p(pairs.base, pairs.cand)
        return worse if measure.better == "higher" else better
    return _bounded(pairs, measure)


def _bounded(pairs: Pairs, measure: Measure) -> float:
    """Chernoff's bound, by that of Bennett (1962) for the moments of each answer.

    The deviation of a case's new mean from its old one is (1/n + 1/N) times that of the sum of the n new answers from
    n times the mean of all n + N. By Hoeffding (1963, theorem 4) a convex function of a sum drawn without replacement
    has no larger mean than with it, and by Bennett no variable below its mean by at most b, with variance v, has a
    larger mean of exp(t x) than the one with two values, b and -v/b. Where a case has fewer old answers than new ones
    the old ones are the draw.
    """
    import numpy as np

    old, new = pairs.base, pairs.cand
    sign = 1.0 if measure.better == "higher" else -1.0
    answers = old.answers + new.answers
    mean = (old.total + new.total) / answers
    variance = np.maximum((old.squares + new.squares) / answers - mean * mean, 0.0)
    drawn = np.minimum(old.answers, new.answers).astype(float)
    down, up = mean - measure.low, measure.high - mean
    # A fall is new answers below the mean, or old ones above it: by whichever is the draw.
    reach = np.where((new.answers <= old.answers) == (sign > 0), down, up)
    weight = 1.0 / old.answers + 1.0 / new.answers
    fall = sign * float((old.mean - new.mean).sum())
    # What cannot vary adds nothing, and dividing by what rounding left of it would.
    varied = (variance > _SMALL * measure.width**2) & (reach > _SMALL * measure.width)
    if fall <= 0.0 or not varied.any():
        return 1.0
    least = _least_exponent(fall, weight[varied], drawn[varied], variance[varied], reach[varied])
    return min(1.0, max(ERROR, math.exp(least)))


def _least_exponent(
    fall: float,
    weight: NDArray[float64],
    drawn: NDArray[float64],
    variance: NDArray[float64],
    reach: NDArray[float64],
) -> float:
    """The least, over t >= 0, of the logarithm of the bound at exp(-t fall); it is convex in t."""
    import numpy as np

    share = variance / (variance + reach * reach)

    def exponent(t: float) -> float:
        high, low = t * weight * reach, -t * weight * variance / reach
        moments = np.logaddexp(np.log(share) + high, np.log1p(-share) + low)
        return float((drawn * moments).sum()) - t * fall

    return lowest(exponent, 1.0 / float((weight * reach).max()))
