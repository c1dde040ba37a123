"""The comparison of two runs by one measure: what changed, how sure that is, and which cases did it."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import msgspec

from evalq.evalcore.compare.collapse import newly_collapsed
from evalq.evalcore.compare.intervals import ALPHA, Change, alike, change_of, pooled_of, t_tail
from evalq.evalcore.compare.pairs import Pairs, Side, pairs_of
from evalq.evalcore.compare.permutation import ERROR, permutation_p
from evalq.evalcore.compare.stopped_cases import asked_alike
from evalq.evalcore.compare.summary import CaseSummary
from evalq.evalcore.compare.worse_cases import worse_cases
from evalq.evalcore.contract.measures import Measure
from evalq.evalcore.statistics.exact import is_below

__all__ = [
    "Comparison",
    "Estimate",
    "Measured",
    "Verdict",
    "change_in",
    "compare",
    "estimate",
    "measured",
    "p_values",
    "verdict_of",
]

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


class Comparison(msgspec.Struct, frozen=True):
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
) -> Comparison:
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
    return Comparison(
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
        named=worse_cases(pairs, turned=measure.better == "lower", stopped={*base.stopped, *cand.stopped})
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
        return alike(float(d.mean()), width, len(d)).interval()
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
