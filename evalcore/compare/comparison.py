"""The comparison of two runs by one measure: what changed, how sure that is, and which cases did it."""

from __future__ import annotations

import bisect
import hashlib
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from evalq.evalcore.compare.decision import Check
from evalq.evalcore.compare.intervals import ALPHA, Change, change_of, pooled_of, t_tail, uniform_change
from evalq.evalcore.compare.pairs import (
    ERROR,
    EXACT_DRAWS,
    Pairs,
    Side,
    draw_bounds,
    draw_ways,
    pairs_of,
    permutation_p,
)
from evalq.evalcore.compare.policy import Gate, Policy
from evalq.evalcore.compare.summary import CaseSummary, RunCases, asked_alike
from evalq.evalcore.contract.measures import Measure
from evalq.evalcore.statistics.exact import is_below
from evalq.evalcore.statistics.mode_share import holm

# Cases that collapsed since the baseline: that are collapsed now, and whose answers agree more than they did.

_DRAWS = 20_000
_MOST_DRAWS = 400_000


class NewCollapse(NamedTuple):
    """A case that both runs answered twice or more: how surprising its answers are unless it collapsed since, and the
    same adjusted by Holm's procedure for all such cases.
    """

    case: str
    p: float
    adjusted: float


def newly_collapsed(base: CaseSummary, cand: CaseSummary, alpha: float = ALPHA) -> list[str]:
    """Cases that surely collapsed since the baseline; any of them is wrong with probability ``alpha`` at most."""
    return sorted(each.case for each in new_collapses(base, cand, alpha) if each.adjusted <= alpha)


def new_collapses(base: CaseSummary, cand: CaseSummary, alpha: float = ALPHA) -> list[NewCollapse]:
    """Every case that both runs answered twice or more, the most surprising first.

    Verdicts alone differ in four of ten unchanged cases. So p is the larger one of two: that the case is collapsed in
    the candidate, and a permutation test of whether two of its answers agree more often than in the baseline. The
    draws, more for a smaller ``alpha``, are seeded by the case's own counts, so that the same runs are always judged
    alike. What is rarer than draws can show has an exact bound in their place: over many cases, or at a late look, no
    number of draws suffices.
    """
    before = dict(zip(base.ids, base.labels, strict=True)) if base.labels else {}
    now = dict(zip(cand.ids, cand.labels, strict=True)) if cand.labels else {}
    collapse_p = cand.collapse_p or {}
    # A single answer agrees with nothing: such a case has no test, and takes no share of the error.
    both = [case for case in now if case in before and sum(before[case].values()) > 1 and sum(now[case].values()) > 1]
    # So that the smallest p that can be drawn still counts after Holm's factor, as far as the most draws reach.
    draws = min(_MOST_DRAWS, max(_DRAWS, 4 * len(both) * round(1 / alpha)))
    found: list[tuple[float, str]] = []
    for case in both:
        p = collapse_p.get(case, 1.0)
        # Above it the larger of the two is not at most it, either: no need to draw.
        found.append((p if p > alpha else max(p, _surprise(case, before[case], now[case], draws)), case))
    found.sort()
    adjusted = holm([p for p, _ in found])
    return [NewCollapse(case, p, each) for (p, case), each in zip(found, adjusted, strict=True)]


def undecided_collapses(base: CaseSummary | None, cand: CaseSummary) -> list[str]:
    """Cases of the candidate that are not decided diverse, nor were decided collapsed in the baseline, if there is one.

    With one answer, or none, a case is never decided.
    """
    fine = set(cand.diverse).union(base.collapsed if base is not None else ())
    return [case for case in (*cand.ids, *(cand.unrecorded or ())) if case not in fine]


def _surprise(case: str, before: Mapping[str, int], now: Mapping[str, int], draws: int) -> float:
    """How often a candidate drawn from all answers of both runs agrees with itself as much as this one."""
    import numpy as np

    labels = sorted({*before, *now})
    counts = [now.get(label, 0) for label in labels]
    together = [count + before.get(label, 0) for count, label in zip(counts, labels, strict=True)]
    bound = _bound(together, counts)
    # Draws cannot show less than this, and a late look may ask for less: there the bound, though cautious, decides.
    if bound <= 1 / (draws + 1):
        return bound
    ours, pooled = np.array(counts), np.array(together)
    name = f"{case}\0{pooled.tolist()}\0{ours.tolist()}".encode(errors="surrogatepass")
    seed = int.from_bytes(hashlib.sha256(name).digest()[:16])
    observed = int((ours * (ours - 1)).sum())
    as_much, done, rng = 0, 0, np.random.default_rng(seed)
    while done < draws:
        # Two million numbers at once, so that many labels take no more memory than few.
        some = min(draws - done, max(1, 2_000_000 // len(labels)))
        drawn = rng.multivariate_hypergeometric(pooled, int(ours.sum()), some, method="marginals")
        as_much += int(((drawn * (drawn - 1)).sum(axis=1) >= observed).sum())
        done += some
    # The observed one is a draw, too: without it p could be 0, which no number of draws shows.
    return (as_much + 1) / (draws + 1)


def _bound(pooled: Sequence[int], ours: Sequence[int]) -> float:
    """At most so likely is it to draw answers of ``pooled`` that agree as much as ``ours``.

    Of n answers with counts c, sum c(c-1) is at most n (max c - 1): so one label has to come at least so often. Each
    label's count is hypergeometric, and the chances of all of them are added (Boole's inequality): exactly up to
    `EXACT` answers, and never too small beyond.
    """
    taken, total = sum(ours), sum(pooled)
    least = 1 + -(-sum(count * (count - 1) for count in ours) // taken)
    # Labels with as many answers have one chance: where there are thousands of them most came once or twice.
    labels = Counter(pooled).items()
    if total > EXACT_DRAWS:
        return min(1.0, sum(many * draw_bounds(taken, count, total, least)[1] for count, many in labels))
    return min(
        1.0, sum(many * draw_ways(taken, count, total, least) for count, many in labels) / math.comb(total, taken)
    )


# Which cases got worse: named only where that is no accident among all of them, and then a veto.

_NO_CASE_WORSE = "no case falls beyond chance"
_MOST = 1_000
_TOLD = 5


class CaseFall(NamedTuple):
    """A case with the p-value of its fall, adjusted for all cases, and (passes, answers) on either side."""

    p: float
    case: str
    base: tuple[int, int]
    cand: tuple[int, int]

    @property
    def sentence(self) -> str:
        """What fell, for a reason."""
        return f"{self.case} ({self.base[0]} of {self.base[1]} to {self.cand[0]} of {self.cand[1]})"


class _Row(NamedTuple):
    p: float
    """Fisher's p-value of the case."""
    least: float
    """The smallest p-value that its counts allow."""
    fall: CaseFall


def _worse_cases(
    pairs: Pairs, *, turned: bool = False, alpha: float = ALPHA, stopped: Collection[str] = ()
) -> list[str]:
    """Cases whose passes fell, the most surprising first; any false name with probability ``alpha`` at most."""
    return [fall.case for fall in falls(pairs, turned=turned, without=stopped) if fall.p <= alpha]


def falls(pairs: Pairs, *, turned: bool = False, without: Collection[str] = ()) -> list[CaseFall]:
    """Every case with the adjusted p-value of its fall, the most surprising first.

    Fisher's exact test of each, one-sided. Cases that could not be as surprising whatever their answers cost the others
    nothing (Tarone 1990, in the form of Hommel and Krummenauer 1998, which is monotone in the level), and the
    correction is Holm's (1979): the i-th smallest p counts the cases behind it whose counts allow one as small.
    ``turned``: where a pass is not wanted. ``without`` are cases that are left out: of those that stopped the numbers
    of answers depend on what they answered, and the test is for numbers that do not.
    """
    rows = sorted(_rows(pairs, turned, without), key=lambda row: (row.p, row.fall.case))
    least = sorted(row.least for row in rows)
    p_values = [row.p for row in rows]
    found: list[CaseFall] = []
    before = 0.0
    for row in rows:
        # Those before it are named already: each of them has a smaller p, and so a smaller least one.
        rivals = bisect.bisect_right(least, row.p) - bisect.bisect_left(p_values, row.p)
        before = max(before, min(1.0, row.p * max(1, rivals)))
        found.append(row.fall._replace(p=before))
    return found


def _rows(pairs: Pairs, turned: bool, without: Collection[str]) -> Iterator[_Row]:
    # Where a pass is not wanted getting worse is a rise: from candidate to base that is a fall.
    sides = (pairs.base, pairs.cand) if not turned else (pairs.cand, pairs.base)
    counts = zip(
        pairs.ids,
        *(column.tolist() for side in sides for column in (side.answers, side.total)),
        strict=True,
    )
    for case, n_b, m_b, n_c, m_c in counts:
        if case in without:
            continue
        p, least = fisher(n_b, round(m_b), n_c, round(m_c))
        ends = (round(m_b), n_b), (round(m_c), n_c)
        yield _Row(p, least, CaseFall(p, case, *(ends if not turned else ends[::-1])))


def too_few_to_name(pairs: Pairs, alpha: float) -> bool:
    """Whether no case could be named, whatever its answers were: even all passes before and none now are too few."""
    counts = zip(pairs.base.answers.tolist(), pairs.cand.answers.tolist(), strict=True)
    return all(fisher(before, before, now, 0)[0] > alpha for before, now in counts)


def _unnameable(pairs: Pairs, alpha: float) -> bool:
    """Whether none can be named by as many passes as there are: none has a p-value as small as ``alpha`` to give."""
    return all(row.least > alpha for row in _rows(pairs, False, ()))


def named_measures(policy: Policy, run: RunCases) -> list[Measure]:
    """By which measures cases are named: those of passes that a critical gate is about, else the run's first one."""
    passing = [measure for measure in run.cases.measures if measure.kind == "pass"]
    critical = {gate.path for gate in policy.gates if gate.tier == "critical" and _is_about(gate, run)}
    return [measure for measure in passing if measure.name in critical] or passing[:1]


def _is_about(gate: Gate, run: RunCases) -> bool:
    return gate.run in (run.called, run.evaluator)


def case_veto(
    run: RunCases, partner: RunCases, measure: Measure, alpha: float, quarantined: Collection[str] = ()
) -> Check | None:
    """The named cases as a member of the SUSPECT family: never GO, and no more than a note where nobody is named.

    None where no case could be named. ``quarantined`` are cases in quarantine.
    """
    pairs = pairs_of(partner.cases, run.cases, measure)
    if _unnameable(pairs, alpha):
        return None
    without = {*run.cases.stopped, *partner.cases.stopped, *quarantined}
    found = falls(pairs, turned=measure.better == "lower", without=without)
    if not found:
        return None
    named = [fall for fall in found if fall.p <= alpha][:_MOST]
    count = sum(fall.p <= alpha for fall in found)
    told = "; ".join(fall.sentence for fall in named[:_TOLD]) + ("; ..." if count > _TOLD else "")
    return Check(
        f"{run.called}.{measure.name}",
        _NO_CASE_WORSE,
        "critical",
        "SUSPECT" if named else "INCONCLUSIVE",
        f"{count} of {len(found)} cases fell beyond chance: {told}" if named else "no case is named",
        count,
        p_worse=found[0].p,
        cases=tuple(fall.case for fall in named),
        case_p=tuple(fall.p for fall in named),
        evidence=int(pairs.cand.answers.sum()),
        veto=True,
        change=True,
    )


@lru_cache(maxsize=65536)
def fisher(n_b: int, m_b: int, n_c: int, m_c: int) -> tuple[float, float]:
    """P(so few passes fall to the candidate), and the smallest value that this could have had.

    In whole numbers, divided once, up to `EXACT` answers: what is tested may be smaller than what sums of doubles lose.
    Beyond, the first is never too small and the second never too large, so that nobody is named by an error of either.
    """
    # Where few passes fall to the candidate many fall to the base.
    m, every = m_b + m_c, n_b + n_c
    return draw_bounds(n_b, m, every, m_b)[1], draw_bounds(n_b, m, every, min(m, n_b))[0]


Verdict = Literal["same", "worse", "better", "inconclusive"]

_LISTED = 50
_MOST_TIMES = 1 << 14


class Estimate(msgspec.Struct, frozen=True):
    """The change of the mean over the cases of both runs, in the measure's own unit; higher is better here.

    ``low`` and ``high`` bound it at 95 %, ``p_worse`` and ``p_better`` are one-sided. ``detectable`` is the smallest
    change that would have been seen in four of five such comparisons; ``case_low`` and ``case_high`` bound it for cases
    like these, instead of for these. ``answers`` are the candidate's to these cases.
    """

    cases: int
    base: float
    cand: float
    delta: float
    low: float
    high: float
    p_worse: float
    p_better: float
    detectable: float
    case_low: float | None
    case_high: float | None
    answers: int = 0


class Measured(NamedTuple):
    """A change with its `Estimate`, and what tells how surprising any fall is."""

    estimate: Estimate
    change: Change

    def p_margin(self, margin: float) -> float:
        """The p-value of a fall of ``margin`` at most, in the measure's unit."""
        # As for p_worse: Holm orders demands of either kind alike.
        return max(ERROR, self.change.p_margin(margin))


class Flip(msgspec.Struct, frozen=True):
    """A case whose mean changed: ``base`` of ``base_count`` answers, ``cand`` of ``cand_count``."""

    case: str
    base: float
    cand: float
    base_count: int
    cand_count: int


class MeasureComparison(msgspec.Struct, frozen=True):
    """Two runs by one measure.

    ``alone`` are cases that only the base answered, ``new`` those that only the candidate did, ``missing`` how many
    answers the candidate lacks that the base has. ``repeats`` is by how much the repeats would have to be multiplied to
    decide, were the change as it looks: None where no such number is known. ``losses`` and ``wins`` are the cases that
    changed most, at most 50 of each; ``lost`` and ``won`` count all of them. ``named`` are the
    cases that got worse by more than chance, among all that did not stop, and ``collapsed`` those that newly collapsed.
    ``stopped`` is how many cases of either run were asked no more once they were decided. ``changed`` are cases with
    another input or other checks now, at most 20 of ``changed_count``: they decide nothing. ``copies`` says, in
    sentences, which answers count twice (the verdict is inconclusive then), and whether they are the other run's.
    """

    measure: Measure
    margin: float
    verdict: Verdict
    observed: Estimate | None
    worst: Estimate | None
    missing: int
    alone: list[str]
    alone_count: int
    new: list[str]
    new_count: int
    repeats: float | None
    losses: list[Flip]
    wins: list[Flip]
    lost: int
    won: int
    named: list[str]
    collapsed: list[str]
    by_cases: bool = False
    stopped: int = 0
    changed: list[str] = []
    changed_count: int = 0
    copies: tuple[str, ...] = ()


def compare(
    base: CaseSummary, cand: CaseSummary, measure: Measure, margin: float, *, by_cases: bool = False
) -> MeasureComparison:
    """Compare two runs by ``measure``; changes smaller than ``margin``, in its unit, are the same.

    With ``by_cases`` the verdict is by the interval for cases like these: where two runs of one unchanged target differ
    (a mood of the day), repeats are not independent, and only that one holds.
    """
    pairs = pairs_of(base, cand, measure)
    observed = estimate(pairs, measure) if pairs.ids else None
    worst = _worst(base, cand, measure, pairs)
    verdict = verdict_of(observed, margin, by_cases=by_cases)
    stopped = len(base.stopped) + len(cand.stopped)
    # Cases that were asked until decided have answers that depend on what they were: no interval excludes a change.
    if stopped and (verdict == "same" or not asked_alike(base, cand)):
        verdict = "inconclusive"
    # By cases, and of those that stop, no number of repeats decides.
    repeated = verdict == "inconclusive" and bool(pairs.ids) and not by_cases and not stopped
    losses, wins = _flips(pairs, measure)
    return MeasureComparison(
        measure=measure,
        margin=margin,
        verdict=verdict,
        observed=observed,
        # Where nothing is missing the two are one, so that a gate reads both in any case.
        worst=worst if worst is not None else observed,
        missing=pairs.missing,
        alone=pairs.alone[:_LISTED],
        alone_count=len(pairs.alone),
        new=pairs.new[:_LISTED],
        new_count=len(pairs.new),
        repeats=_repeats(pairs, measure, margin) if repeated else None,
        losses=losses[:_LISTED],
        wins=wins[:_LISTED],
        lost=len(losses),
        won=len(wins),
        # Fisher's test counts passes: of a single case's scores there is no exact one.
        named=_worse_cases(pairs, turned=measure.better == "lower", stopped={*base.stopped, *cand.stopped})
        if measure.kind == "pass"
        else [],
        collapsed=newly_collapsed(base, cand),
        by_cases=by_cases,
        stopped=stopped,
    )


def estimate(pairs: Pairs, measure: Measure, alpha: float = ALPHA) -> Estimate:
    """The change over the cases of ``pairs``, of which there is at least one; ``alpha`` is the error of either end."""
    change, turned = change_in(pairs, measure)
    low, high = change.interval(alpha)
    p_worse, p_better = p_values(pairs, measure, change)
    # Not at ``alpha``: it is shown beside, and what a look may spend is spent on these cases.
    case_low, case_high = _by_cases(pairs, turned, measure.width)
    return Estimate(
        cases=len(pairs.ids),
        base=float(pairs.base.mean.mean()),
        cand=float(pairs.cand.mean.mean()),
        delta=change.delta,
        low=low,
        high=high,
        p_worse=p_worse,
        p_better=p_better,
        detectable=change.detectable(),
        case_low=case_low,
        case_high=case_high,
        answers=int(pairs.cand.answers.sum()),
    )


def measured(pairs: Pairs, measure: Measure, alpha: float = ALPHA) -> Measured:
    """`estimate`, with the change that it was made of."""
    return Measured(estimate(pairs, measure, alpha), change_in(pairs, measure)[0])


def verdict_of(found: Estimate | None, margin: float, *, by_cases: bool = False) -> Verdict:
    """What an estimate says: the same within the margin, else what is too surprising without a change."""
    if found is None:
        return "inconclusive"
    low, high = (found.case_low, found.case_high) if by_cases else (found.low, found.high)
    # Of a single case nobody knows how others would differ.
    if low is None or high is None:
        return "inconclusive"
    # Before any surprise: a change that is sure and smaller than the margin is no change that matters.
    if -margin < low and high < margin:
        return "same"
    # The p-values are for these cases; for cases like these there is the interval alone.
    worse, better = (high < 0, low > 0) if by_cases else (found.p_worse <= ALPHA, found.p_better <= ALPHA)
    return "worse" if worse else "better" if better else "inconclusive"


def _worst(base: CaseSummary, cand: CaseSummary, measure: Measure, observed: Pairs) -> Estimate | None:
    """With everything that is missing held against the candidate; None where nothing is."""
    if not (any(base.missing) or any(cand.missing) or observed.alone):
        return None
    pairs = pairs_of(base, cand, measure, worst=True)
    return estimate(pairs, measure) if pairs.ids else None


def change_in(pairs: Pairs, measure: Measure) -> tuple[Change, int]:
    """The change, so that an improvement is positive, and the sign by which it was turned."""
    sign = 1 if measure.better == "higher" else -1
    change = change_of(pairs.base, pairs.cand, measure.width)
    return Change(sign * change.delta, change.width, change.spread), sign


def p_values(pairs: Pairs, measure: Measure, change: Change) -> tuple[float, float]:
    """(p_worse, p_better) of what `change_in` found: exact for passes, Student's for scores.

    Of scores with other repeats on either side the larger ones of two: by the spread of each side (Welch 1947), and by
    that of both together, as if nothing had changed.
    """
    if measure.kind == "pass":
        base, cand = (pairs.base, pairs.cand) if measure.better == "higher" else _failures(pairs)
        return permutation_p(base, cand)
    variance, freedom, answers = change.spread
    # One case with one answer a side: nothing tells a change from chance.
    if freedom <= 0:
        return 1.0, 1.0
    # Without any spread the change is judged as if one loss and one win had been seen, too.
    scale = math.sqrt(variance) or math.sqrt(2) * change.width / answers
    t = change.delta / scale
    p_worse, p_better = t_tail(-t, freedom), t_tail(t, freedom)
    # A baseline has several times a candidate's repeats, and answers mostly at one end of the scale: few of them show
    # no spread, and their own variance takes such luck for a change, in up to a fifth of unchanged pairs.
    if (pooled := pooled_of(pairs.base, pairs.cand)) is not None:
        t = change.delta / math.sqrt(pooled[0])
        p_worse, p_better = max(p_worse, t_tail(-t, pooled[1])), max(p_better, t_tail(t, pooled[1]))
    # The same smallest p-value as for passes, so that Holm orders gates of either kind alike.
    return max(ERROR, p_worse), max(ERROR, p_better)


def _failures(pairs: Pairs) -> tuple[Side, Side]:
    # The exact test asks for few passes, and few failures are what is wanted here; of 0 and 1 sum and squares are one.
    return tuple(Side(s.answers, s.answers - s.total, s.answers - s.total) for s in (pairs.base, pairs.cand))  # type: ignore[return-value]  # two of them


def _by_cases(pairs: Pairs, sign: int, width: float) -> tuple[float | None, float | None]:
    """Student's interval of the differences, as those of cases drawn from many; no change is larger than the scale.

    Where all are alike (but for their last digits) nothing is known of their spread, and each counts as one answer.
    """
    d = sign * (pairs.cand.mean - pairs.base.mean)
    if len(d) < 2:
        return None, None
    from evalq.evalcore.statistics.distributions import student_t

    if float(d.max() - d.min()) <= 1e-9 * width:
        return uniform_change(float(d.mean()), width, len(d)).interval()
    half = student_t(len(d) - 1, ALPHA) * math.sqrt(float(d.var(ddof=1)) / len(d))
    return max(-width, float(d.mean()) - half), min(width, float(d.mean()) + half)


def _repeats(pairs: Pairs, measure: Measure, margin: float) -> float | None:
    """By how much to multiply the repeats, in steps of two, until the interval would decide; None beyond 16,384."""
    change, _ = change_in(pairs, measure)
    factor = 1
    while factor < _MOST_TIMES:
        factor *= 2
        # The same change with its spread as so many answers would leave it.
        low, high = change.times(factor).interval()
        if high < 0 or low > 0 or (-margin < low and high < margin):
            return float(factor)
    return None


def _flips(pairs: Pairs, measure: Measure) -> tuple[list[Flip], list[Flip]]:
    """Cases that lost and cases that won, the largest changes first."""
    sign = 1 if measure.better == "higher" else -1
    changed: list[tuple[float, Flip]] = []
    rows = zip(
        pairs.ids,
        pairs.base.mean.tolist(),
        pairs.cand.mean.tolist(),
        pairs.base.answers.tolist(),
        pairs.cand.answers.tolist(),
        strict=True,
    )
    for case, b, c, n_b, n_c in rows:
        # As decimals: the means of three answers of .7 and of five are not one double.
        if is_below(b, c) or is_below(c, b):
            changed.append((sign * (c - b), Flip(case, b, c, n_b, n_c)))
    # By name where two changed alike, so that equal runs are listed alike.
    losses = sorted(((d, flip) for d, flip in changed if d < 0), key=lambda each: (each[0], each[1].case))
    wins = sorted(((d, flip) for d, flip in changed if d > 0), key=lambda each: (-each[0], each[1].case))
    return [flip for _, flip in losses], [flip for _, flip in wins]
