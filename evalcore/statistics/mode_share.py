"""The share of a question's commonest answer: its interval, the verdict on it, and whether any of many cases collapsed.

How the counts of one case are judged is a `ShareRule`: `FIXED_RUNS` where the number of runs was fixed beforehand,
`stopping_rule` where a case could end early. `collapse_nowhere` makes one statement of the verdicts of all cases.
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
"""The error allowed on either side of an interval of 95 %."""
_FEW_DIFFER, _FEW_AGREE = 3, 6


def mode_share_p_value(m: int, n: int, share: float) -> float:
    """How surprising it is that some answer came ``m`` times in ``n`` if none has a probability above ``share`` > 0.

    The data, not the analyst, chose which answer to look at. At most 1/share answers can be that probable, so up to one
    half the binomial tail counts that often (a union bound). Above, there is room for one only, and the worst that all
    others together do is done by a single one that has the rest, 1 - share.
    """
    tail = at_least(m, n, share)
    return min(1.0, tail / share if share <= 0.5 else tail + at_least(m, n, 1.0 - share))


@lru_cache(maxsize=65536)
def mode_share_interval(m: int, n: int, alpha: float = ALPHA) -> tuple[float, float]:
    """Bounds for the probability of the commonest answer, seen ``m`` of ``n`` times (1 <= m <= n).

    Lower: the smallest share whose p-value reaches ``alpha``. Upper: Clopper and Pearson (1934), the largest p
    with P(X <= m) >= alpha; it needs no correction, since the true mode came at most as often as the one seen most.
    """
    # 1/p times the tail tends to n as p falls: any small share explains an answer seen once.
    low = 0.0 if m == 1 else smallest(lambda p: p > 0.0 and mode_share_p_value(m, n, p) >= alpha, 0.0, 1.0)
    high = 1.0 if m == n else smallest(lambda p: at_most(m, n, p) < alpha, m / n, 1.0)
    return low, high


def collision_probability(counts: Iterable[int]) -> float | None:
    """The unbiased estimate U = sum c(c-1) / (n(n-1)) that two runs answer alike; None for fewer than two runs."""
    present = list(counts)
    n = sum(present)
    return sum(c * (c - 1) for c in present) / (n * (n - 1)) if n > 1 else None


@lru_cache(maxsize=65536)
def collision_interval(estimate: float, m: int, n: int, alpha: float = ALPHA) -> tuple[float, float]:
    """All t with |U - t| <= T * s(t), for U = ``estimate`` of ``n`` >= 2 runs and T Student's t with n - 1 degrees,
    widened where that set is too narrow; ``m`` is how often the commonest answer came.

    s(t)^2 = 4(n-2)/(n(n-1)) (t^1.5 - t^2) + 2t(1-t)/(n(n-1)) bounds the variance of U (Hoeffding 1948, with the sum of
    cubes at most t^1.5). In the root of t the condition is a quartic with two changes of sign, so the set is one
    interval, and it holds the estimate.

    Where nearly all runs agree, or none do, U says little of its own spread; what the mode's share can be says more.
    With the share in [L, H], two runs agree with probability H^2 + (1-H)^2 or L^2 + (1-L)^2 at most, as long as the
    mode has one half or more, and with L^2 at least. The first is allowed for where n - m is at most 3 or a tenth of n,
    the second where m is at most 6: so all that was enumerated is covered in 93 % (tests/bench/exact_coverage.py).
    """
    pairs = n * (n - 1)
    t_squared = student_t(n - 1, alpha) ** 2

    def inside(t: float) -> bool:
        variance = 4 * (n - 2) / pairs * (t * math.sqrt(t) - t * t) + 2 / pairs * t * (1 - t)
        return (estimate - t) ** 2 <= t_squared * variance

    low = 0.0 if estimate <= 0.0 else smallest(inside, 0.0, estimate)
    high = 1.0 if estimate >= 1.0 else smallest(lambda t: not inside(t), estimate, 1.0)
    few_differ, few_agree = n - m <= max(_FEW_DIFFER, n / 10), m <= _FEW_AGREE
    if few_differ or few_agree:  # else the mode's interval is not needed, and to look for it takes long
        least, most = mode_share_interval(m, n, alpha)
        high = max(high, _agreement(most), _agreement(least) if least >= 0.5 else 0.0) if few_differ else high
        low = min(low, least * least) if few_agree else low
    return low, high


def mean_interval(found: Sequence[tuple[float, float, float]], weights: Sequence[float]) -> tuple[float, float] | None:
    """Bounds for the mean of several independent numbers, each (value, low, high); None where none has a weight.

    How far each number may be off, the larger of its distances to its bounds, is added as independent errors are. (Side
    by side, as Zou and Donner (2008) have it, it covers 87 % where most of many numbers stand at their own bound.) The
    numbers are these and no sample of others: of cases that were not asked it says nothing. Of one, they are its own.
    """
    whole = math.fsum(weights)
    counted = [(each, weight) for each, weight in zip(found, weights, strict=True) if weight]
    if len(counted) < 2:
        return counted[0][0][1:] if counted else None
    mean = math.fsum(weight * value for (value, _, _), weight in counted) / whole
    off = math.sqrt(math.fsum((w * max(value - low, high - value)) ** 2 for (value, low, high), w in counted)) / whole
    return max(0.0, mean - off), min(1.0, mean + off)


def _agreement(share: float) -> float:
    """The chance that two runs answer alike where one answer has ``share`` and another the rest."""
    return share * share + (1.0 - share) * (1.0 - share)


# Verdicts, the runs still needed, and tests over many cases.

ShareVerdict = Literal["collapsed", "diverse", "inconclusive", "no_data"]

MOST_RUNS = 1_000_000
"""Beyond this many runs in all, `runs_to_decide` does not look."""


def verdict(low: float, high: float, share: float) -> ShareVerdict:
    """Where the interval of the mode's share lies: above ``share``, below it, or across it."""
    if low > share:
        return "collapsed"
    return "diverse" if high < share else "inconclusive"


@lru_cache(maxsize=4096)  # cases of one report have the same number of runs, and so often the same counts
def runs_to_decide(m: int, n: int, share: float, settled: Callable[[int, int, float], bool]) -> int | None:
    """Further runs after which about every second case like this has a verdict: those whose mode then has its share of
    ``m`` in ``n``, or one farther from the threshold.

    ``settled`` says of (m, n, share) whether there is one.

    0 when decided. None when MOST_RUNS would not do, as where the share seen is the threshold itself. Found by doubling
    and halving over whole runs; as counts are whole, a slightly smaller number may do too.
    """

    def enough(total: int) -> bool:
        # Rounded towards the threshold, so that rounding alone never decides.
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
    """Holm's (1979) adjusted p-values, in the given order: those at most alpha hold together with error alpha."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        # Never below an earlier one: a hypothesis is rejected only where all with smaller p-values are.
        highest = max(highest, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def rejected(p_values: Sequence[float], alpha: float) -> int:
    """How many of these p-values, the smallest first, Holm's procedure (1979) rejects with error ``alpha`` in all."""
    # The first that is not surprising enough ends it, whatever those after it are.
    return next((rank for rank, p in enumerate(p_values) if p > alpha / (len(p_values) - rank)), len(p_values))


def _fisher_combined(p_values: Sequence[float]) -> float:
    """Fisher's (1932) p-value of independent p-values taken together: that all their hypotheses hold; 1 for none.

    The chance that a chi-squared variable of 2k degrees exceeds -2 sum log p. For a whole k that is the chance of fewer
    than k events of a Poisson variable with mean -sum log p. A p-value that is too large, as those of counts are, makes
    this one too large as well.
    """
    if not p_values or min(p_values) <= 0.0:
        return 0.0 if p_values else 1.0
    mean = -math.fsum(map(math.log, p_values))
    if mean <= 0.0:
        return 1.0
    # Each term by its logarithm, from the largest: for thousands of cases the terms themselves are no doubles.
    logs = [j * math.log(mean) - mean - math.lgamma(j + 1) for j in range(len(p_values))]
    most = max(logs)
    return min(1.0, math.exp(most) * math.fsum(math.exp(each - most) for each in logs))


# However often one has looked.


@lru_cache(maxsize=65536)
def sequence_verdict(m: int, n: int, share: float, alpha: float = ALPHA) -> ShareVerdict:
    """Where the bounds lie, without looking for them: above ``share``, below it, or across it."""
    if m > share * n:  # the other e-value is below 1
        return "collapsed" if surely_above(m, n, share, alpha) else "inconclusive"
    return "diverse" if surely_below(m, n, share, alpha) else "inconclusive"


# Looked at after every run up to a known cap: the error is spent over the cap, exactly.
#
# A confidence sequence guards against looking for ever. Where at most ``of`` runs will be made, that guard is more
# than is needed, and the error it saves decides more cases. The count of an answer of probability p is a binomial
# walk, so the chance that it ever crosses given limits is a finite sum: the limits here are, run by run, the widest
# whose chance of ever being crossed at the threshold stays within what may be spent by then (Lan and DeMets 1983).
# So the verdict depends on (m, n, of) alone. docs/reference/vs-stopping.md has the proofs, and what it saves.

_SMALLEST = 2.0**-14
"""P-values are resolved down to this part of the error."""


@dataclass(frozen=True)
class CountLimits:
    """By number of runs, from 0: the least count of the mode that is collapsed, and the largest that is diverse.

    A limit out of reach is n + 1, or -1. ``above`` and ``below`` are the chances, at the threshold, that a case is ever
    called collapsed or diverse.
    """

    collapsed: tuple[int, ...]
    diverse: tuple[int, ...]
    above: float
    below: float


@lru_cache(maxsize=256)
def limits(share: float, of: int, alpha: float = ALPHA) -> CountLimits:
    """The limits of a case of ``of`` runs at most, by which either verdict is ever wrong in ``alpha`` at most."""
    collapsed, above = _collapsed(share, of, alpha)
    diverse, below = _diverse(share, of, alpha)
    return CountLimits(collapsed, diverse, above, below)


def _collapsed(share: float, of: int, alpha: float) -> tuple[tuple[int, ...], float]:
    # The data choose the answer that is looked at. Up to one half, 1/share answers can be as probable as `share`;
    # above, one can, and the worst that the others do is done by a single one that has all of the rest.
    walks = [Walk(share)] if share <= 0.5 else [Walk(share), Walk(1.0 - share)]
    answers = 1.0 / share if share <= 0.5 else 1.0
    found = [1]
    for n in range(1, of + 1):
        for walk in walks:
            walk.step()
        room = alpha * spent(n, of) / answers - sum(walk.gone for walk in walks)
        least = math.floor(share * (n - 1)) + 2  # so that count - 1 > share * (n - 1), as the proof wants
        count = max(walk.end for walk in walks)  # beyond it nothing is left to cross
        while count > least and (more := sum(walk.at(count - 1) for walk in walks)) <= room:
            room -= more
            count -= 1
        for walk in walks:
            walk.stop_from(count)
        found.append(count)
    return tuple(found), answers * sum(walk.gone for walk in walks)


def _diverse(share: float, of: int, alpha: float) -> tuple[tuple[int, ...], float]:
    # Needs no correction: the true mode came at most as often as the one seen most.
    walk, found = Walk(share), [-1]
    for n in range(1, of + 1):
        walk.step()
        room, count = alpha * spent(n, of) - walk.gone, walk.low - 1  # below it nothing is left
        while count + 1 < share * n and (more := walk.at(count + 1)) <= room:
            room -= more
            count += 1
        count = count if count > 0 else -1  # an answer seen most was seen at least once
        walk.stop_to(count)
        found.append(count)
    return tuple(found), walk.gone


def spending_verdict(m: int, n: int, share: float, of: int) -> ShareVerdict:
    """The verdict on a mode seen ``m`` of ``n`` times, where ``of`` runs were to be made at most.

    More runs than were planned, and a cap beyond MOST_LOOKS, are read by the confidence sequence.
    """
    if not n <= of <= MOST_LOOKS:
        return sequence_verdict(m, n, share)
    found = limits(share, of)
    if m >= found.collapsed[n]:
        return "collapsed"
    return "diverse" if m <= found.diverse[n] else "inconclusive"


def spending_p_value(m: int, n: int, share: float, of: int, alpha: float = ALPHA) -> float:
    """How surprising ``m`` of ``n`` is if no answer has a probability above ``share``, however often one has looked.

    The least of the levels alpha times a power of two whose limits call it collapsed, and those of all larger levels
    below 1 as well; 1.0 where the largest does not. The chance that it is ever at most a level is that level at most:
    each has limits of its own, which are crossed that rarely (above ``alpha``, at which a case stops, no more often).
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


# The two rules.


@dataclass(frozen=True)
class ShareRule:
    """How counts are read; all but the interval take (count of the mode, runs, share in question)."""

    interval: Callable[[int, int], tuple[float, float]]
    verdict: Callable[[int, int, float], ShareVerdict]
    p_value: Callable[[int, int, float], float]

    def decided(self, m: int, n: int, share: float) -> bool:
        """Whether a mode seen ``m`` of ``n`` times has a verdict."""
        return self.verdict(m, n, share) != "inconclusive"


def _fixed_verdict(m: int, n: int, share: float) -> ShareVerdict:
    """Which side of ``share`` the interval lies on, without looking for its ends."""
    # Below, not at most: the interval begins with the least share whose p-value reaches ALPHA (SPEC, section 1).
    if mode_share_p_value(m, n, share) < ALPHA:
        return "collapsed"
    return "diverse" if at_most(m, n, share) < ALPHA else "inconclusive"


FIXED_RUNS = ShareRule(mode_share_interval, _fixed_verdict, mode_share_p_value)


@lru_cache(maxsize=256)  # of equal rules, what is known of the one is known of the other
def stopping_rule(of: int) -> ShareRule:
    """For a case that ended when it had a verdict, ``of`` runs being the most: the error is spent over these."""
    return ShareRule(mode_share_sequence, partial(spending_verdict, of=of), partial(spending_p_value, of=of))


# Over all cases.


@dataclass(frozen=True)
class CaseDiversity:
    """A case's verdict, and how surprising its commonest kind of answer is if the case is not collapsed.

    ``p`` is that of the rule that ended the case (`modes_block` has it); None for a case without any answer. ``fuzzy``
    is the verdict with near-duplicates as one, None where there is none.
    """

    case: str
    p: float | None
    verdict: str
    fuzzy: str | None = None

    @property
    def surely_diverse(self) -> bool:
        """Whether it is diverse by either count: one answer in two wordings looks diverse, and is not."""
        return self.verdict == "diverse" and self.fuzzy in (None, "diverse")


class Somewhere(NamedTuple):
    """Whether some case is collapsed: ``p`` is the p-value of that.

    ``together`` is Fisher's, 1.0 where it does not count, and ``adjusted`` Holm's of each case, in the given order;
    ``tests`` is how many of these two share the error.
    """

    p: float
    together: float
    adjusted: list[float]
    tests: int

    def named(self, alpha: float) -> list[int]:
        """Which cases are surely collapsed, where all that is said errs with ``alpha`` at most."""
        return [at for at, p in enumerate(self.adjusted) if p <= alpha / self.tests]


def collapsed_somewhere(p_values: Sequence[float], *, independent: bool = True) -> Somewhere:
    """Two tests share the error in halves: Fisher's finds many cases that lean the same way, Holm's names single ones.

    Twenty cases of ten equal answers each are no news one by one, and all together they are; one case of fifty equal
    answers among nineteen diverse ones is seen by Holm's alone. Cases that are not ``independent``, such as those
    answered from one cache, have no joint p-value: Holm's alone counts then, as for a single case.
    """
    adjusted = holm(p_values)
    single = min(adjusted, default=1.0)
    if not independent or len(p_values) < 2:
        return Somewhere(single, 1.0, adjusted, 1)
    together = _fisher_combined(p_values)
    return Somewhere(min(1.0, 2 * min(single, together)), together, adjusted, 2)


def collapse_nowhere(cases: Iterable[CaseDiversity]) -> dict[str, Json]:
    """The one statement over all cases, that none is collapsed: whether it ``holds``, ``fails`` or is ``inconclusive``.

    It fails where the p-value over all cases, ``p``, is at most ALPHA (`collapsed_somewhere`). ``collapsed`` names the
    cases that are surely so, none where they are seen only ``together``. It holds when every case is diverse by
    itself, which needs no adjustment: to hold wrongly, the test of the very case that is collapsed must err
    (intersection-union).
    """
    known = list(cases)
    tested = [(case.case, case.p) for case in known if case.p is not None]
    found = collapsed_somewhere([p for _, p in tested])
    named = found.named(ALPHA)
    collapsed: list[Json] = [{"case": tested[at][0], "p": found.adjusted[at]} for at in named]
    if found.p <= ALPHA:
        answer = "fails"
    else:
        # Of no case at all nothing holds.
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
