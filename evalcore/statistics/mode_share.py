"""The mode share, which is the probability of a case's most frequent answer: intervals, verdicts and p-values.

A `ShareRule` judges the counts of one case: `FIXED_RUNS` if the number of runs was fixed in advance, `stopping_rule` if
the case could stop early. `collapse_nowhere` combines the verdicts of all cases into one statement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal, NamedTuple

from evalq.evalcore.model.canonical import Json
from evalq.evalcore.statistics.distributions import at_least, at_most, smallest, student_t
from evalq.evalcore.statistics.sequences import (
    MOST_LOOKS,
    Walk,
    mode_share_sequence,
    sequence_p_value,
    spent,
    surely_above,
    surely_below,
)

ALPHA = 0.025
"""The error probability on each side of a 95 % interval."""
_FEW_DIFFER, _FEW_AGREE = 3, 6


def mode_share_p_value(m: int, n: int, share: float) -> float:
    """The p-value of some answer occurring ``m`` times in ``n`` runs, if no answer is more probable than ``share`` > 0.

    The data chose the answer, not the analyst, so the p-value corrects for that choice. At most 1/share answers can
    have the probability ``share``. Up to one half, a union bound multiplies the binomial tail by that number. Above one
    half, only one answer can be that probable. The worst case of all others is then a single one with the probability
    1 - share.
    """
    tail = at_least(m, n, share)
    return min(1.0, tail / share if share <= 0.5 else tail + at_least(m, n, 1.0 - share))


@lru_cache(maxsize=65536)
def mode_share_interval(m: int, n: int, alpha: float = ALPHA) -> tuple[float, float]:
    """Bounds for the probability of the most frequent answer, which occurred ``m`` of ``n`` times (1 <= m <= n).

    The lower bound is the smallest share whose p-value reaches ``alpha``. The upper bound is Clopper and Pearson's
    (1934), the largest p with P(X <= m) >= alpha. It needs no correction: the truly most probable answer occurred at
    most ``m`` times.
    """
    # As p falls, 1/p times the tail tends to n, so any small share explains an answer that occurred once.
    low = 0.0 if m == 1 else smallest(lambda p: p > 0.0 and mode_share_p_value(m, n, p) >= alpha, 0.0, 1.0)
    high = 1.0 if m == n else smallest(lambda p: at_most(m, n, p) < alpha, m / n, 1.0)
    return low, high


def collision_probability(counts: Iterable[int]) -> float | None:
    """The unbiased estimate U = sum c(c-1) / (n(n-1)) of the probability that two runs give equal answers.

    None for fewer than two runs.
    """
    present = list(counts)
    n = sum(present)
    return sum(c * (c - 1) for c in present) / (n * (n - 1)) if n > 1 else None


@lru_cache(maxsize=65536)
def collision_interval(estimate: float, m: int, n: int, alpha: float = ALPHA) -> tuple[float, float]:
    """A 95 % interval of the collision probability, from its ``estimate`` U in ``n`` >= 2 runs.

    It holds all t with |U - t| <= T * s(t), where T is Student's t with n - 1 degrees of freedom, and is widened where
    that set is too narrow. ``m`` is the count of the most frequent answer.

    s(t)^2 = 4(n-2)/(n(n-1)) (t^1.5 - t^2) + 2t(1-t)/(n(n-1)) bounds the variance of U (Hoeffding 1948, with the sum of
    cubes at most t^1.5). In the square root of t the condition is a quartic with two sign changes, so the set is one
    interval, and it contains the estimate.

    If nearly all runs agree, or none do, U says little about its own variance; the interval [L, H] of the mode share
    says more. Two runs agree with a probability of at least L^2. While the mode has one half or more, it is at most
    H^2 + (1-H)^2 or L^2 + (1-L)^2. The upper bound is widened to this if n - m is at most 3 or a tenth of n; the lower
    bound is widened if m is at most 6. The coverage is then at least 93 % in all enumerated distributions
    (tests/bench/exact_coverage.py).
    """
    pairs = n * (n - 1)
    t_squared = student_t(n - 1, alpha) ** 2

    def inside(t: float) -> bool:
        variance = 4 * (n - 2) / pairs * (t * math.sqrt(t) - t * t) + 2 / pairs * t * (1 - t)
        return (estimate - t) ** 2 <= t_squared * variance

    low = 0.0 if estimate <= 0.0 else smallest(inside, 0.0, estimate)
    high = 1.0 if estimate >= 1.0 else smallest(lambda t: not inside(t), estimate, 1.0)
    few_differ, few_agree = n - m <= max(_FEW_DIFFER, n / 10), m <= _FEW_AGREE
    if few_differ or few_agree:  # computed only if needed, since the mode's interval takes long
        least, most = mode_share_interval(m, n, alpha)
        high = max(high, _agreement(most), _agreement(least) if least >= 0.5 else 0.0) if few_differ else high
        low = min(low, least * least) if few_agree else low
    return low, high


def mean_interval(found: Sequence[tuple[float, float, float]], weights: Sequence[float]) -> tuple[float, float] | None:
    """Bounds for the weighted mean of independent estimates, each (value, low, high); None if no weight is positive.

    The error of an estimate is the larger distance to its bounds; the errors add as independent ones do, in squares.
    (Zou and Donner's (2008) separate sums for each side cover only 87 % if most estimates equal one of their bounds.)
    The interval is about the mean of these cases, not of cases like these. For one estimate it is that one's own.
    """
    whole = math.fsum(weights)
    counted = [(each, weight) for each, weight in zip(found, weights, strict=True) if weight]
    if len(counted) < 2:
        return counted[0][0][1:] if counted else None
    mean = math.fsum(weight * value for (value, _, _), weight in counted) / whole
    off = math.sqrt(math.fsum((w * max(value - low, high - value)) ** 2 for (value, low, high), w in counted)) / whole
    return max(0.0, mean - off), min(1.0, mean + off)


def _agreement(share: float) -> float:
    """The probability that two runs agree if one answer has the probability ``share`` and another one the rest."""
    return share * share + (1.0 - share) * (1.0 - share)


# Verdicts, the number of runs still needed, and tests over many cases.

ShareVerdict = Literal["collapsed", "diverse", "inconclusive", "no_data"]

MOST_RUNS = 1_000_000
"""`runs_to_decide` gives up beyond this total number of runs."""


def verdict(low: float, high: float, share: float) -> ShareVerdict:
    """The verdict by the mode share's interval: collapsed above ``share``, diverse below it, else inconclusive."""
    if low > share:
        return "collapsed"
    return "diverse" if high < share else "inconclusive"


@lru_cache(maxsize=4096)  # the cases of one report have equal numbers of runs, so equal counts are frequent
def runs_to_decide(m: int, n: int, share: float, settled: Callable[[int, int, float], bool]) -> int | None:
    """The number of further runs after which about half of the cases like this one have a verdict.

    These are the cases whose mode share stays at ``m`` / ``n`` or moves away from the threshold ``share``.
    ``settled(m, n, share)`` says whether counts have a verdict. The result is 0 if these have one, and None if
    MOST_RUNS runs are not enough, for example if the observed share equals the threshold. Found by doubling and
    bisection; because counts are whole numbers, a slightly smaller number may do as well.
    """

    def enough(total: int) -> bool:
        # Round towards the threshold, so that rounding alone never decides.
        toward = m * total // n if m > share * n else -(-m * total // n)
        return settled(toward, total, share)

    if settled(m, n, share):
        return 0
    short, long = n, n + 1
    while not enough(long):
        if long >= MOST_RUNS:
            return None
        short, long = long, min(2 * long, MOST_RUNS)
    while long - short > 1:
        middle = (short + long) // 2
        short, long = (short, middle) if enough(middle) else (middle, long)
    return long - n


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) adjusted p-values, in the given order; those <= alpha hold with a family-wise error of alpha."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        # Never below an earlier one: Holm rejects a hypothesis only if it rejects all with smaller p-values.
        highest = max(highest, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def rejected(p_values: Sequence[float], alpha: float) -> int:
    """How many of the ascending ``p_values`` Holm's procedure (1979) rejects at the family-wise error ``alpha``."""
    # The procedure ends at the first p-value that is too large, whatever follows.
    return next((rank for rank, p in enumerate(p_values) if p > alpha / (len(p_values) - rank)), len(p_values))


def _fisher_combined(p_values: Sequence[float]) -> float:
    """Fisher's (1932) combined p-value of independent p-values, for the hypothesis that all nulls hold; 1.0 for none.

    It is the probability that a chi-squared variable of 2k degrees exceeds -2 sum log p. For whole k that equals the
    probability that a Poisson variable with the mean -sum log p is below k. P-values of counts are too large, which
    makes the result too large, never too small.
    """
    if not p_values or min(p_values) <= 0.0:
        return 0.0 if p_values else 1.0
    mean = -math.fsum(map(math.log, p_values))
    if mean <= 0.0:
        return 1.0
    # Sum relative to the largest term, by logarithms: for thousands of cases the terms would leave a double's range.
    logs = [j * math.log(mean) - mean - math.lgamma(j + 1) for j in range(len(p_values))]
    most = max(logs)
    return min(1.0, math.exp(most) * math.fsum(math.exp(each - most) for each in logs))


# Verdicts that stay valid after any number of interim looks.


@lru_cache(maxsize=65536)
def sequence_verdict(m: int, n: int, share: float, alpha: float = ALPHA) -> ShareVerdict:
    """The verdict by the confidence sequence, without computing its bounds."""
    if m > share * n:  # the other e-value is below 1
        return "collapsed" if surely_above(m, n, share, alpha) else "inconclusive"
    return "diverse" if surely_below(m, n, share, alpha) else "inconclusive"


# Interim looks after every run, up to a known maximum number of runs: exact error spending.
#
# A confidence sequence allows infinitely many looks. If there are at most ``of`` runs, that is more protection than
# needed, and exact spending decides more cases with the same error. The count of an answer with probability p is a
# binomial walk, so the probability that it ever crosses given limits is a finite sum. For each run, the limits are the
# tightest ones whose probability of being crossed so far, at the threshold, stays within the error that may be spent by
# then (Lan and DeMets 1983). The verdict depends on (m, n, of) alone. docs/reference/vs-stopping.md has the proofs and
# the savings.

_SMALLEST = 2.0**-14
"""P-values are computed down to this fraction of the error."""


@dataclass(frozen=True)
class CountLimits:
    """For n = 0, 1, ... runs: the least mode count that is collapsed, and the greatest one that is diverse.

    A limit that no count reaches is n + 1 (collapsed) or -1 (diverse). ``above`` and ``below`` are the probabilities
    that a case exactly at the threshold is ever called collapsed or diverse.
    """

    collapsed: tuple[int, ...]
    diverse: tuple[int, ...]
    above: float
    below: float


@lru_cache(maxsize=256)
def limits(share: float, of: int, alpha: float = ALPHA) -> CountLimits:
    """The limits for a case of at most ``of`` runs, by which each verdict is ever wrong with P <= ``alpha``."""
    collapsed, above = _collapsed(share, of, alpha)
    diverse, below = _diverse(share, of, alpha)
    return CountLimits(collapsed, diverse, above, below)


def _collapsed(share: float, of: int, alpha: float) -> tuple[tuple[int, ...], float]:
    # The data choose the answer. Up to one half, 1/share answers can be as probable as `share`. Above, only one can,
    # and the worst case of the others is a single one with all of the remaining probability.
    walks = [Walk(share)] if share <= 0.5 else [Walk(share), Walk(1.0 - share)]
    answers = 1.0 / share if share <= 0.5 else 1.0
    found = [1]
    for n in range(1, of + 1):
        for walk in walks:
            walk.step()
        room = alpha * spent(n, of) / answers - sum(walk.gone for walk in walks)
        least = math.floor(share * (n - 1)) + 2  # the proof needs count - 1 > share * (n - 1)
        count = max(walk.end for walk in walks)  # no walk can be at or beyond its end
        while count > least and (more := sum(walk.at(count - 1) for walk in walks)) <= room:
            room -= more
            count -= 1
        for walk in walks:
            walk.stop_from(count)
        found.append(count)
    return tuple(found), answers * sum(walk.gone for walk in walks)


def _diverse(share: float, of: int, alpha: float) -> tuple[tuple[int, ...], float]:
    # Needs no correction: the truly most probable answer occurred at most as often as the most frequent one.
    walk, found = Walk(share), [-1]
    for n in range(1, of + 1):
        walk.step()
        room, count = alpha * spent(n, of) - walk.gone, walk.low - 1  # the walk cannot be below its low end
        while count + 1 < share * n and (more := walk.at(count + 1)) <= room:
            room -= more
            count += 1
        count = count if count > 0 else -1  # the most frequent answer occurred at least once
        walk.stop_to(count)
        found.append(count)
    return tuple(found), walk.gone


def spending_verdict(m: int, n: int, share: float, of: int) -> ShareVerdict:
    """The verdict on a mode that occurred ``m`` of ``n`` times, if at most ``of`` runs were planned.

    The confidence sequence judges if there are more runs than planned, or ``of`` exceeds MOST_LOOKS.
    """
    if not n <= of <= MOST_LOOKS:
        return sequence_verdict(m, n, share)
    found = limits(share, of)
    if m >= found.collapsed[n]:
        return "collapsed"
    return "diverse" if m <= found.diverse[n] else "inconclusive"


def spending_p_value(m: int, n: int, share: float, of: int, alpha: float = ALPHA) -> float:
    """The p-value of ``m`` of ``n`` if no answer is more probable than ``share``, valid after any number of looks.

    The tested levels are alpha times powers of two, below 1. The result is the least level such that its limits, and
    those of all larger levels, call the counts collapsed; 1.0 if the limits of the largest level do not. Each level has
    its own limits, which are ever crossed with at most that probability, so P(p-value <= level) <= level. (A case stops
    at ``alpha``; at larger levels that makes crossings no more frequent.)
    """
    if not n <= of <= MOST_LOOKS:
        return sequence_p_value(m, n, share)
    largest = 1.0
    while 2 * alpha * largest < 1.0:
        largest *= 2
    level = largest
    while level > _SMALLEST and m >= limits(share, of, alpha * level).collapsed[n]:
        level /= 2
    return 1.0 if level == largest else alpha * 2 * level


# The two rules: a fixed number of runs, and early stopping.


@dataclass(frozen=True)
class ShareRule:
    """How to judge counts: interval(m, n), verdict(m, n, share) and p_value(m, n, share).

    ``m`` is the count of the mode, ``n`` the number of runs and ``share`` the threshold.
    """

    interval: Callable[[int, int], tuple[float, float]]
    verdict: Callable[[int, int, float], ShareVerdict]
    p_value: Callable[[int, int, float], float]

    def decided(self, m: int, n: int, share: float) -> bool:
        """Whether a mode that occurred ``m`` of ``n`` times is collapsed or diverse."""
        return self.verdict(m, n, share) != "inconclusive"


def _fixed_verdict(m: int, n: int, share: float) -> ShareVerdict:
    """The verdict by `mode_share_interval`, without computing its bounds."""
    # "<", not "<=": the interval starts at the least share whose p-value reaches ALPHA (SPEC, section 1).
    if mode_share_p_value(m, n, share) < ALPHA:
        return "collapsed"
    return "diverse" if at_most(m, n, share) < ALPHA else "inconclusive"


FIXED_RUNS = ShareRule(mode_share_interval, _fixed_verdict, mode_share_p_value)


@lru_cache(maxsize=256)  # equal rules are one object, so caches keyed by a rule are shared
def stopping_rule(of: int) -> ShareRule:
    """The rule for a case that stops once it has a verdict, after at most ``of`` runs."""
    return ShareRule(mode_share_sequence, partial(spending_verdict, of=of), partial(spending_p_value, of=of))


# One statement over all cases.


@dataclass(frozen=True)
class CaseDiversity:
    """A case's verdict, and the p-value ``p`` of its most frequent answer if the case is not collapsed.

    ``p`` is by the rule that the case was run under (see `modes_block`); None for a case without answers. ``fuzzy`` is
    the verdict with near-duplicates merged, None if they were not merged.
    """

    case: str
    p: float | None
    verdict: str
    fuzzy: str | None = None

    @property
    def surely_diverse(self) -> bool:
        """Whether the case is diverse by both counts: one answer in two wordings only looks diverse."""
        return self.verdict == "diverse" and self.fuzzy in (None, "diverse")


class Somewhere(NamedTuple):
    """The test that some case is collapsed: ``p`` is its p-value.

    ``together`` is Fisher's combined p-value, 1.0 if it is not used. ``adjusted`` are Holm's adjusted p-values, in the
    order of the cases. ``tests`` is how many of these two tests share the error, 1 or 2.
    """

    p: float
    together: float
    adjusted: list[float]
    tests: int

    def named(self, alpha: float) -> list[int]:
        """The indexes of the cases that Holm's test rejects, with a total error of at most ``alpha`` for both tests."""
        return [at for at, p in enumerate(self.adjusted) if p <= alpha / self.tests]


def collapsed_somewhere(p_values: Sequence[float], *, independent: bool = True) -> Somewhere:
    """Test whether some case is collapsed: Fisher's and Holm's test each get half of the error.

    Fisher's test detects a common tendency: twenty cases of ten equal answers each are significant only together.
    Holm's test names single cases, such as one of fifty equal answers among nineteen diverse ones. Cases that are not
    ``independent``, for example answered from one cache, have no combined p-value; then, and for a single case, Holm's
    test gets the whole error.
    """
    adjusted = holm(p_values)
    single = min(adjusted, default=1.0)
    if not independent or len(p_values) < 2:
        return Somewhere(single, 1.0, adjusted, 1)
    together = _fisher_combined(p_values)
    return Somewhere(min(1.0, 2 * min(single, together)), together, adjusted, 2)


def collapse_nowhere(cases: Iterable[CaseDiversity]) -> dict[str, Json]:
    """Whether the statement "no case is collapsed" ``holds``, ``fails`` or is ``inconclusive``, as JSON.

    It fails if the p-value over all cases, ``p``, is at most ALPHA (`collapsed_somewhere`). ``collapsed`` names the
    cases that are significant by themselves; it is empty if only ``together``, the combined p-value, is small. The
    statement holds if every case is diverse. That needs no correction: if it holds wrongly, the test of the one case
    that is collapsed has erred (an intersection-union test).
    """
    known = list(cases)
    tested = [(case.case, case.p) for case in known if case.p is not None]
    found = collapsed_somewhere([p for _, p in tested])
    named = found.named(ALPHA)
    collapsed: list[Json] = [{"case": tested[at][0], "p": found.adjusted[at]} for at in named]
    if found.p <= ALPHA:
        answer = "fails"
    else:
        # Without any case the statement is inconclusive, not vacuously true.
        answer = "holds" if known and all(case.surely_diverse for case in known) else "inconclusive"
    return {
        "verdict": answer,
        "cases": len(known),
        "collapsed": collapsed,
        "p": found.p,
        "together": found.together,
        "alpha": ALPHA,
        "correction": "Fisher and Holm",
    }
