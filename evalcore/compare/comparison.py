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

# Cases that collapsed since the baseline: they are collapsed now, and their answers agree more than before.

_DRAWS = 20_000
_MOST_DRAWS = 400_000


class NewCollapse(NamedTuple):
    """A case that both runs answered twice or more, with its p-value if it has not collapsed since the baseline.

    ``adjusted`` is the p-value by Holm's procedure over all such cases.
    """

    case: str
    p: float
    adjusted: float


def newly_collapsed(base: CaseSummary, cand: CaseSummary, alpha: float = ALPHA) -> list[str]:
    """Cases that surely collapsed since the baseline; the chance that any is wrong is at most ``alpha``."""
    return sorted(each.case for each in new_collapses(base, cand, alpha) if each.adjusted <= alpha)


def new_collapses(base: CaseSummary, cand: CaseSummary, alpha: float = ALPHA) -> list[NewCollapse]:
    """Every case that both runs answered twice or more, the most surprising first.

    Verdicts alone differ in four of ten unchanged cases. So p is the larger of two p-values: that the case is collapsed
    in the candidate, and that two of its answers agree more often than in the baseline, by permutation. A smaller
    ``alpha`` takes more draws. The case's counts seed them, so that the same runs always get the same verdict. If a
    p-value is too small for draws, as over many cases or at a late look, an exact bound takes its place.
    """
    before = dict(zip(base.ids, base.labels, strict=True)) if base.labels else {}
    now = dict(zip(cand.ids, cand.labels, strict=True)) if cand.labels else {}
    collapse_p = cand.collapse_p or {}
    # Leave out cases with a single answer, which agrees with nothing: they take no share of the error.
    both = [case for case in now if case in before and sum(before[case].values()) > 1 and sum(now[case].values()) > 1]
    # Draw so often that the smallest possible p still counts after Holm's factor, up to the limit.
    draws = min(_MOST_DRAWS, max(_DRAWS, 4 * len(both) * round(1 / alpha)))
    p_values: list[tuple[float, str]] = []
    for case in both:
        p = collapse_p.get(case, 1.0)
        # Above alpha, the larger of the two is above it, too: no need to draw.
        p_values.append((p if p > alpha else max(p, _surprise(case, before[case], now[case], draws)), case))
    p_values.sort()
    adjusted = holm([p for p, _ in p_values])
    return [NewCollapse(case, p, each) for (p, case), each in zip(p_values, adjusted, strict=True)]


def undecided_collapses(base: CaseSummary | None, cand: CaseSummary) -> list[str]:
    """Cases that are neither decided diverse in the candidate nor decided collapsed in the baseline, if there is one.

    A case with fewer than two answers is never decided.
    """
    fine = set(cand.diverse).union(base.collapsed if base is not None else ())
    return [case for case in (*cand.ids, *(cand.unrecorded or ())) if case not in fine]


def _surprise(case: str, before: Mapping[str, int], now: Mapping[str, int], draws: int) -> float:
    """The p-value of the candidate's agreement with itself, if its answers are a draw from those of both runs."""
    import numpy as np

    labels = sorted({*before, *now})
    counts = [now.get(label, 0) for label in labels]
    together = [count + before.get(label, 0) for count, label in zip(counts, labels, strict=True)]
    bound = _bound(together, counts)
    # Draws cannot show less than this, but a late look may need less: there the cautious bound decides.
    if bound <= 1 / (draws + 1):
        return bound
    ours, pooled = np.array(counts), np.array(together)
    name = f"{case}\0{pooled.tolist()}\0{ours.tolist()}".encode(errors="surrogatepass")
    seed = int.from_bytes(hashlib.sha256(name).digest()[:16])
    observed = int((ours * (ours - 1)).sum())
    as_much, done, rng = 0, 0, np.random.default_rng(seed)
    while done < draws:
        # Draw two million numbers at once, so that many labels take no more memory than few.
        some = min(draws - done, max(1, 2_000_000 // len(labels)))
        drawn = rng.multivariate_hypergeometric(pooled, int(ours.sum()), some, method="marginals")
        as_much += int(((drawn * (drawn - 1)).sum(axis=1) >= observed).sum())
        done += some
    # Count the observed answers as a draw, too: otherwise p could be 0, which no number of draws shows.
    return (as_much + 1) / (draws + 1)


def _bound(pooled: Sequence[int], ours: Sequence[int]) -> float:
    """An upper bound of the chance to draw answers from ``pooled`` that agree as much as ``ours``.

    Of n answers with counts c, sum c(c-1) is at most n (max c - 1), so one label must come at least so often. Each
    label's count is hypergeometric, and the bound adds their chances (Boole's inequality). It is exact up to
    `EXACT_DRAWS` answers, and never too small beyond.
    """
    drawn, total = sum(ours), sum(pooled)
    least = 1 + -(-sum(count * (count - 1) for count in ours) // drawn)
    # Labels with equal counts have equal chances: of thousands of labels, most came once or twice.
    labels = Counter(pooled).items()
    if total > EXACT_DRAWS:
        return min(1.0, sum(many * draw_bounds(drawn, count, total, least)[1] for count, many in labels))
    return min(
        1.0, sum(many * draw_ways(drawn, count, total, least) for count, many in labels) / math.comb(total, drawn)
    )


# Cases that got worse: evalq names one only if its fall is beyond chance among all cases, and then vetoes GO.

_NO_CASE_WORSE = "no case falls beyond chance"
_MOST = 1_000
_IN_REASON = 5


class CaseFall(NamedTuple):
    """A case with the p-value of its fall, adjusted for all cases, and (passes, answers) on either side."""

    p: float
    case: str
    base: tuple[int, int]
    cand: tuple[int, int]

    @property
    def sentence(self) -> str:
        """The case and both of its counts, for a reason."""
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
    """Cases whose passes fell, the most surprising first; the chance of any false name is at most ``alpha``."""
    return [fall.case for fall in falls(pairs, turned=turned, without=stopped) if fall.p <= alpha]


def falls(pairs: Pairs, *, turned: bool = False, without: Collection[str] = ()) -> list[CaseFall]:
    """Every case with the adjusted p-value of its fall, the most surprising first.

    Fisher's exact test of each, one-sided. The correction is Holm's (1979): the i-th smallest p counts the cases behind
    it whose counts allow a p as small. Other cases cost nothing (Tarone 1990, in the form of Hommel and Krummenauer
    1998, which is monotone in the level). ``turned``: a pass is not wanted. ``without`` has cases to leave out, such as
    stopped ones: the test does not hold if the number of answers depends on the answers.
    """
    rows = sorted(_rows(pairs, turned, without), key=lambda row: (row.p, row.fall.case))
    least = sorted(row.least for row in rows)
    p_values = [row.p for row in rows]
    adjusted: list[CaseFall] = []
    before = 0.0
    for row in rows:
        # Leave out the cases before it: each of them has a smaller p, and so a smaller least p.
        rivals = bisect.bisect_right(least, row.p) - bisect.bisect_left(p_values, row.p)
        before = max(before, min(1.0, row.p * max(1, rivals)))
        adjusted.append(row.fall._replace(p=before))
    return adjusted


def _rows(pairs: Pairs, turned: bool, without: Collection[str]) -> Iterator[_Row]:
    # If a pass is not wanted, a rise is worse: swap the sides, and it is a fall.
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
    """Whether evalq could name no case, whatever its answers: even all passes before and none now are too few."""
    counts = zip(pairs.base.answers.tolist(), pairs.cand.answers.tolist(), strict=True)
    return all(fisher(before, before, now, 0)[0] > alpha for before, now in counts)


def _too_few_passes(pairs: Pairs, alpha: float) -> bool:
    """Whether no case can have a p-value of ``alpha``, given its passes in both runs."""
    return all(row.least > alpha for row in _rows(pairs, False, ()))


def named_measures(policy: Policy, run: RunCases) -> list[Measure]:
    """The measures by which evalq names cases: those of passes in critical gates, or else the run's first one."""
    passing = [measure for measure in run.cases.measures if measure.kind == "pass"]
    critical = {gate.path for gate in policy.gates if gate.tier == "critical" and _is_about(gate, run)}
    return [measure for measure in passing if measure.name in critical] or passing[:1]


def _is_about(gate: Gate, run: RunCases) -> bool:
    return gate.run in (run.called, run.evaluator)


def case_veto(
    run: RunCases, partner: RunCases, measure: Measure, alpha: float, quarantined: Collection[str] = ()
) -> Check | None:
    """The check that names cases, a member of the SUSPECT family: never GO, and without effect if it names none.

    None if evalq could name no case. ``quarantined`` are cases in quarantine.
    """
    pairs = pairs_of(partner.cases, run.cases, measure)
    if _too_few_passes(pairs, alpha):
        return None
    without = {*run.cases.stopped, *partner.cases.stopped, *quarantined}
    tested = falls(pairs, turned=measure.better == "lower", without=without)
    if not tested:
        return None
    named = [fall for fall in tested if fall.p <= alpha][:_MOST]
    count = sum(fall.p <= alpha for fall in tested)
    listed = "; ".join(fall.sentence for fall in named[:_IN_REASON]) + ("; ..." if count > _IN_REASON else "")
    return Check(
        f"{run.called}.{measure.name}",
        _NO_CASE_WORSE,
        "critical",
        "SUSPECT" if named else "INCONCLUSIVE",
        f"{count} of {len(tested)} cases fell beyond chance: {listed}" if named else "no case is named",
        count,
        p_worse=tested[0].p,
        cases=tuple(fall.case for fall in named),
        case_p=tuple(fall.p for fall in named),
        evidence=int(pairs.cand.answers.sum()),
        veto=True,
        change=True,
    )


@lru_cache(maxsize=65536)
def fisher(n_b: int, m_b: int, n_c: int, m_c: int) -> tuple[float, float]:
    """The p-value of so few passes of the candidate, and the smallest that these counts allow.

    Up to `EXACT_DRAWS` answers it divides whole numbers once, since sums of doubles lose small p-values. Beyond, the
    first is never too small and the second never too large, so that rounding never names a case.
    """
    # Few passes of the candidate are many of the base.
    m, every = m_b + m_c, n_b + n_c
    return draw_bounds(n_b, m, every, m_b)[1], draw_bounds(n_b, m, every, min(m, n_b))[0]


Verdict = Literal["same", "worse", "better", "inconclusive"]

_LISTED = 50
_MOST_TIMES = 1 << 14


class Estimate(msgspec.Struct, frozen=True):
    """The change of the mean over the cases of both runs, in the measure's unit; higher is better here.

    ``low`` and ``high`` bound it at 95 %, ``p_worse`` and ``p_better`` are one-sided. Four of five such comparisons
    would see a change of ``detectable``. ``case_low`` and ``case_high`` bound it for cases like these, instead of for
    these. ``answers`` counts the candidate's answers to these cases.
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
    """A change with its `Estimate`."""

    estimate: Estimate
    change: Change

    def p_margin(self, margin: float) -> float:
        """The p-value of a fall of ``margin`` at most, in the measure's unit."""
        # The same smallest p-value as for p_worse, so that Holm orders both alike.
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

    ``alone`` are cases that only the base answered, ``new`` those that only the candidate answered. ``missing`` is how
    many answers the candidate lacks that the base has. ``repeats`` is the factor of repeats that would decide if the
    change stays as it is; None if no such factor is known. ``losses`` and ``wins`` are the cases that changed most, at
    most 50 of each; ``lost`` and ``won`` count all of them. ``named`` are the cases that got worse beyond chance, among
    all that did not stop, and ``collapsed`` those that newly collapsed. ``stopped`` is how many cases of either run
    stopped once decided. ``changed`` are cases with another input or other checks now, at most 20 of ``changed_count``:
    they decide nothing. ``copies`` says in sentences which answers count twice, and whether they are the other run's;
    the verdict is inconclusive then.
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
    """Compare two runs by ``measure``; a change smaller than ``margin``, in its unit, counts as the same.

    With ``by_cases`` the verdict uses the interval for cases like these. Only that one holds if repeats are not
    independent: if runs of an unchanged target differ from day to day.
    """
    pairs = pairs_of(base, cand, measure)
    observed = estimate(pairs, measure) if pairs.ids else None
    worst = _worst(base, cand, measure, pairs)
    verdict = verdict_of(observed, margin, by_cases=by_cases)
    stopped = len(base.stopped) + len(cand.stopped)
    # If cases stop once decided, the number of answers depends on the answers: no interval excludes a change.
    if stopped and (verdict == "same" or not asked_alike(base, cand)):
        verdict = "inconclusive"
    # No number of repeats decides by cases, or if cases stop.
    repeated = verdict == "inconclusive" and bool(pairs.ids) and not by_cases and not stopped
    losses, wins = _flips(pairs, measure)
    return MeasureComparison(
        measure=measure,
        margin=margin,
        verdict=verdict,
        observed=observed,
        # If no answer is missing, both are the same, so that a gate can always read both.
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
        # Fisher's test counts passes; there is no exact test for a single case's scores.
        named=_worse_cases(pairs, turned=measure.better == "lower", stopped={*base.stopped, *cand.stopped})
        if measure.kind == "pass"
        else [],
        collapsed=newly_collapsed(base, cand),
        by_cases=by_cases,
        stopped=stopped,
    )


def estimate(pairs: Pairs, measure: Measure, alpha: float = ALPHA) -> Estimate:
    """The change over the cases of ``pairs``, at least one; ``alpha`` is the error of either end."""
    change, turned = change_in(pairs, measure)
    low, high = change.interval(alpha)
    p_worse, p_better = p_values(pairs, measure, change)
    # Always at 95 %: this interval is only shown, and takes no part of the look's error.
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
    """`estimate`, with its change."""
    return Measured(estimate(pairs, measure, alpha), change_in(pairs, measure)[0])


def at_worst(worst: Measured, observed: Measured, alpha: float = ALPHA) -> Measured:
    """``worst``, the change with lost answers at their worst, with at least the degrees of freedom that were observed.

    Filled values are no sample. A single one among answers that all agree would leave one degree of freedom, and
    intervals wider than with three of them.
    """
    freedom = max(worst.change.spread.freedom, observed.change.spread.freedom)
    change = worst.change._replace(spread=worst.change.spread._replace(freedom=freedom))
    low, high = change.interval(alpha)
    return Measured(msgspec.structs.replace(worst.estimate, low=low, high=high), change)


def verdict_of(change: Estimate | None, margin: float, *, by_cases: bool = False) -> Verdict:
    """The verdict of an estimate: the same within the margin, else worse or better if it is beyond chance."""
    if change is None:
        return "inconclusive"
    low, high = (change.case_low, change.case_high) if by_cases else (change.low, change.high)
    # A single case does not show how others would differ.
    if low is None or high is None:
        return "inconclusive"
    # Test this first: a sure change that is smaller than the margin does not matter.
    if -margin < low and high < margin:
        return "same"
    # The p-values are for these cases; for cases like these there is only the interval.
    worse, better = (high < 0, low > 0) if by_cases else (change.p_worse <= ALPHA, change.p_better <= ALPHA)
    return "worse" if worse else "better" if better else "inconclusive"


def _worst(base: CaseSummary, cand: CaseSummary, measure: Measure, observed: Pairs) -> Estimate | None:
    """The estimate with all missing answers counted against the candidate; None if no answer is missing."""
    if not (any(base.missing) or any(cand.missing) or observed.alone):
        return None
    pairs = pairs_of(base, cand, measure, worst=True)
    return estimate(pairs, measure) if pairs.ids else None


def change_in(pairs: Pairs, measure: Measure) -> tuple[Change, int]:
    """The change with an improvement as positive, and the sign that makes it so."""
    sign = 1 if measure.better == "higher" else -1
    change = change_of(pairs.base, pairs.cand, measure.width)
    return Change(sign * change.delta, change.width, change.spread), sign


def p_values(pairs: Pairs, measure: Measure, change: Change) -> tuple[float, float]:
    """(p_worse, p_better) of the change by `change_in`: exact for passes, Student's for scores.

    For scores with different repeats on the two sides, it is the larger of two p-values: by the spread of each side
    (Welch 1947), and by that of both together, as if nothing had changed.
    """
    if measure.kind == "pass":
        base, cand = (pairs.base, pairs.cand) if measure.better == "higher" else _failures(pairs)
        return permutation_p(base, cand)
    variance, freedom, answers = change.spread
    # With one case and one answer a side, a change and chance look the same.
    if freedom <= 0:
        return 1.0, 1.0
    # Without any spread, add one loss and one win.
    scale = math.sqrt(variance) or math.sqrt(2) * change.width / answers
    t = change.delta / scale
    p_worse, p_better = t_tail(-t, freedom), t_tail(t, freedom)
    # Few answers, mostly at one end of the scale, may show no spread by luck. If the baseline has several times the
    # candidate's repeats, Welch's test takes such luck for a change, in up to a fifth of unchanged pairs.
    if (pooled := pooled_of(pairs.base, pairs.cand)) is not None:
        t = change.delta / math.sqrt(pooled[0])
        p_worse, p_better = max(p_worse, t_tail(-t, pooled[1])), max(p_better, t_tail(t, pooled[1]))
    # The same smallest p-value as for passes, so that Holm orders gates of either kind alike.
    return max(ERROR, p_worse), max(ERROR, p_better)


def _failures(pairs: Pairs) -> tuple[Side, Side]:
    # The exact test is for few passes, and here failures are wanted; the squares of 0 and 1 are 0 and 1.
    return tuple(Side(s.answers, s.answers - s.total, s.answers - s.total) for s in (pairs.base, pairs.cand))  # type: ignore[return-value]  # two of them


def _by_cases(pairs: Pairs, sign: int, width: float) -> tuple[float | None, float | None]:
    """Student's interval of the differences, with cases as a draw from many; no change is larger than the scale.

    If all differences are equal (but for their last digits), their spread is unknown, and each counts as one answer.
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
    """The factor of repeats, in powers of two, from which on the interval would decide; None beyond 16,384."""
    change, _ = change_in(pairs, measure)
    factor = 1
    while factor < _MOST_TIMES:
        factor *= 2
        # The same change, with the spread that so many answers would have.
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
        # Compare as decimals: the means of three answers of .7 and of five are not the same double.
        if is_below(b, c) or is_below(c, b):
            changed.append((sign * (c - b), Flip(case, b, c, n_b, n_c)))
    # Sort equal changes by name, so that equal runs give equal lists.
    losses = sorted(((d, flip) for d, flip in changed if d < 0), key=lambda each: (each[0], each[1].case))
    wins = sorted(((d, flip) for d, flip in changed if d > 0), key=lambda each: (-each[0], each[1].case))
    return [flip for _, flip in losses], [flip for _, flip in wins]
