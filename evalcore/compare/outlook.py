"""Demands on a measure's mean over cases, and what a gate could decide with how many cases and repeats."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import msgspec

from evalq.evalcore.compare.comparison import Measured, change_in, p_values
from evalq.evalcore.compare.decision import Check, Decided, Levels
from evalq.evalcore.compare.eligibility import CorrectedChange
from evalq.evalcore.compare.intervals import MeanLevel, level_of
from evalq.evalcore.compare.numbers import agreed, same, why_no_change, written
from evalq.evalcore.compare.pairs import Pairs, Side, pairs_of
from evalq.evalcore.compare.policy import CHANGES, CaseDemand, Gate, Tier
from evalq.evalcore.compare.single_cases import CasePasses, by_case
from evalq.evalcore.compare.spending import SINGLE, Errors
from evalq.evalcore.compare.summary import CaseSummary
from evalq.evalcore.contract.measures import Measure, changed, signed, size
from evalq.evalcore.contract.measures import level as shown
from evalq.evalcore.errors import UsageError

if TYPE_CHECKING:
    from numpy import float64
    from numpy.random import Generator
    from numpy.typing import NDArray

__all__ = [
    "DECISIONS",
    "Plan",
    "Power",
    "bound_checks",
    "change_checks",
    "dropped",
    "level_in",
    "margin_of",
    "off_scale",
    "powers",
    "signed",
]


def off_scale(gate: Gate, measure: Measure) -> tuple[str, str] | None:
    """The key of a gate that lies off the scale of its ``measure``, and why that is wrong; None if all lie on it.

    Often it is a percentage where a share is meant: then every run would pass, or none.
    """
    scale = f"off the scale from {measure.low:g} to {measure.high:g}, so that"
    for key, bound, ends in (
        ("min", gate.min, ("every run would pass", "no run could pass")),
        ("max", gate.max, ("no run could pass", "every run would pass")),
    ):
        if bound is not None and not measure.low <= bound <= measure.high:
            return key, f"{key} {bound:g} is {scale} {ends[bound > measure.high]}{_share_meant(bound, measure, '%')}"
    exact = gate.equals
    if isinstance(exact, int | float) and not isinstance(exact, bool) and not measure.low <= exact <= measure.high:
        return "equals", f"equals {exact:g} is {scale} no run could pass{_share_meant(exact, measure, '%')}"
    for key, margin in (("max_drop", gate.max_drop), ("max_rise", gate.max_rise)):
        if margin is not None and margin > measure.width:
            return key, f"{key} {margin:g} is {scale} every run would pass{_share_meant(margin, measure, 'points')}"
    return None


def _share_meant(value: float, measure: Measure, unit: str) -> str:
    return f"; {value:g} {unit} are {value / 100:g}" if measure.is_share and 0 < value <= 100 else ""


def bound_checks(gate: Gate, run: CaseSummary, measure: Measure, errors: Errors = SINGLE) -> Iterator[Check]:
    """Check the mean over cases against absolute bounds: by its interval, as observed and at the worst."""
    for bound, least in ((gate.min, True), (gate.max, False)):
        if bound is None:
            continue
        demand = f"at {'least' if least else 'most'} {_number(bound)}"
        levels = [level_in(run, measure), level_in(run, measure, "lowest" if least else "highest")]
        if levels[0] is None or levels[1] is None:
            yield Check(gate.metric, demand, gate.tier, "INCONCLUSIVE", "no case has an answer")
            continue
        # Filled values are no sample, so they must not leave fewer degrees of freedom than were observed.
        freedom = max(each.spread.freedom for each in levels if each)
        levels[1] = levels[1]._replace(spread=levels[1].spread._replace(freedom=freedom))
        decisions = [_within(level, bound, errors, least=least) for level in levels if level]
        observed, level = decisions[0], levels[0]
        low, high = level.interval(errors.go)
        p = level.p_below(bound) if least else level.p_above(bound)
        reason = f"{shown(level.mean, measure)}, {_between(errors)} {shown(low, measure)} and {shown(high, measure)}"
        check = Check(
            gate.metric,
            demand,
            gate.tier,
            observed,
            reason,
            level.mean,
            low,
            high,
            p_margin=p,
            evidence=_answers(run, measure),
            levels=Levels(
                cand=shown(level.mean, measure),
                allowed=f"at {'least' if least else 'most'} {shown(bound, measure)}",
                low=shown(low, measure),
                high=shown(high, measure),
            ),
        )
        yield agreed(check, decisions[1])
    if gate.equals is not None:
        # Missing answers may lie at either end, and either end may move the mean off the number.
        ends: tuple[_Fill, ...] = ("lowest", "highest")
        check = _equal(gate, _mean_in(run, measure), _answers(run, measure))
        if check.value is None:
            yield msgspec.structs.replace(check, decided="INCONCLUSIVE", reason="no case has an answer")
            return
        broken = any(not same(_mean_in(run, measure, end), gate.equals) for end in ends)
        yield agreed(check, "NO-GO" if broken else "GO")


_Fill = Literal["lowest", "highest"]


def _answers(run: CaseSummary, measure: Measure) -> int:
    return sum(run.columns[measure.name].count)


def level_in(run: CaseSummary, measure: Measure, missing: _Fill | None = None) -> MeanLevel | None:
    """The mean of a run over its cases, with missing answers at the given end of the scale; None without any answer."""
    pairs = pairs_of(run, run, measure)
    if not pairs.ids:
        return None
    side = pairs.cand
    if missing is not None:
        # Fill with the end that breaks the bound, whichever end the measure calls better.
        turned = msgspec.structs.replace(measure, better="higher" if missing == "lowest" else "lower")
        side = pairs_of(run, run, turned, worst=True).cand
    return level_of(side, measure.low, measure.width)


def _mean_in(run: CaseSummary, measure: Measure, missing: _Fill | None = None) -> float | None:
    level = level_in(run, measure, missing)
    return None if level is None else level.mean


def _within(level: MeanLevel, bound: float, errors: Errors, *, least: bool) -> Decided:
    # A value at the bound keeps it: surely .8 meets a demand of at least .8.
    if level.keeps(bound, errors.go, least=least):
        return "GO"
    return "NO-GO" if (level.p_below(bound) if least else level.p_above(bound)) <= errors.no_go else "INCONCLUSIVE"


_AnyChange = Measured | CorrectedChange
"""A change as measured, or as people would see it."""


def change_checks(
    gate: Gate, measure: Measure, observed: _AnyChange | None, worst: _AnyChange | None, errors: Errors
) -> Iterator[Check]:
    """Check how far the mean got worse than the baseline's.

    GO if a larger fall is excluded, NO-GO if one is shown, SUSPECT if it fell beyond chance and neither is.
    Raises UsageError for a bound of a rise if more is better.
    """
    if why := why_no_change(gate, measure.better):
        raise UsageError(why)
    for name in CHANGES:
        allowed = getattr(gate, name)
        if allowed is None:
            continue
        words = "falls" if measure.better == "higher" else "gets worse"
        demand = f"{words} by at most {_number(allowed)}" + (" of the baseline" if "relative" in name else "")
        if observed is None or worst is None:
            reason = "no case has an answer in both runs"
            yield Check(gate.metric, demand, gate.tier, "INCONCLUSIVE", reason, change=True)
            continue
        # Each has its own base: at the worst, the baseline's missing answers are its best ones.
        margins = [margin_of(gate, name, each.estimate.base) for each in (observed, worst)]
        change = observed.estimate
        check = Check(
            gate.metric,
            demand,
            gate.tier,
            _dropped(observed, margins[0], errors.no_go),
            f"changed by {changed(change.delta, measure)}, {_between(errors)} {changed(change.low, measure)} and "
            f"{changed(change.high, measure)} for these cases ({shown(change.base, measure)} to "
            f"{shown(change.cand, measure)}, {change.cases} cases"
            + (f"; {measure.reading})" if measure.reading else ")")
            + _as_judged(observed),
            change.delta,
            change.low,
            change.high,
            change.p_worse,
            p_margin=observed.p_margin(margins[0]),
            evidence=change.answers,
            change=True,
            levels=Levels(
                cand=shown(change.cand, measure),
                allowed=size(margins[0], measure),
                low=changed(change.low, measure),
                high=changed(change.high, measure),
                base=shown(change.base, measure),
                change=changed(change.delta, measure),
            ),
        )
        yield agreed(check, _dropped(worst, margins[1], errors.no_go))


def _as_judged(change: _AnyChange) -> str:
    if not isinstance(change, CorrectedChange):
        return ""
    raw = change.raw.estimate
    return (
        f"; that is as people would see it, by their labels; as judged between {signed(raw.low)} and {signed(raw.high)}"
    )


def margin_of(gate: Gate, name: str, base: float) -> float:
    """How far a number may fall behind ``base`` by the bound called ``name``, in the measure's unit."""
    bound = float(getattr(gate, name))
    # Take the base's absolute value: a number below 0 can fall, too.
    return bound * abs(base) if "relative" in name else bound


def _dropped(change: _AnyChange, margin: float, alpha: float) -> Decided:
    # GATE 6: test GO first, so that a sure fall that is smaller than allowed stops nothing.
    if change.estimate.low > -margin:
        return "GO"
    if change.p_margin(margin) <= alpha:
        return "NO-GO"
    return "SUSPECT" if change.estimate.p_worse <= alpha else "INCONCLUSIVE"


def _equal(gate: Gate, value: float | None, evidence: int) -> Check:
    # Chance has no part in a number that the policy demands exactly.
    kept = same(value, gate.equals)
    return Check(
        gate.metric,
        f"equals {written(gate.equals)}",
        gate.tier,
        "GO" if kept else "NO-GO",
        f"it is {written(value)}",
        value,
        evidence=evidence,
    )


def _between(errors: Errors) -> str:
    return f"with {100 * (1 - 2 * errors.go):.4g} % between"


def _number(value: float) -> str:
    return f"{value:.4g}"


# What a gate will be able to tell, before any call is paid: simulated from a baseline, or from a plan alone.

DECISIONS: tuple[Decided, ...] = ("GO", "SUSPECT", "INCONCLUSIVE", "NO-GO")
_DROPS = (0.0, 0.05, 0.1, 0.2)
"""Shares of the scale by which the mean over cases may have fallen, a little in every case."""
_MARGINS = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0)
"""The same for a demand that allows a fall, as multiples of the allowed one."""
_VARIETY = 2.0
"""The pseudo-counts of the Beta distribution of pass rates over cases, to which a baseline's answers are added."""
_WANTED = 0.8
_MOST_REPEATS = 10_000
_TRIES = 8
_ANSWERS = 100_000
_LEAST, _MOST = 100, 500
_TYPICAL = 20

Decide = Callable[[Pairs], Decided]


class Plan(msgspec.Struct, frozen=True):
    """A candidate before its run: ``repeats`` answers to each of ``cases`` cases.

    ``base`` has the baseline's answers by case. Without one, the simulation draws a baseline with as many repeats, from
    cases with pass rates around ``rate``.
    """

    cases: int
    repeats: int
    base: Side | None = None
    rate: float = 0.8


class Chance(msgspec.Struct, frozen=True):
    """How often a demand gets which decision, if the mean over cases fell by ``drop``, a share of the scale.

    ``repeats`` give 80 % for the decision ``wanted``: GO without a change, NO-GO beyond the allowed fall. None if no
    number of repeats does, or no decision is wanted.
    """

    drop: float
    shares: dict[Decided, float]
    wanted: Decided | None = None
    repeats: int | None = None


class Power(msgspec.Struct, frozen=True):
    """What one demand of a gate can tell.

    A fall is SUSPECT in four of five gates from ``suspect_from`` on, and NO-GO from ``no_go_from`` on: shares of the
    scale, None for a demand that compares nothing.
    """

    metric: str
    demand: str
    tier: Tier
    suspect_from: float | None
    no_go_from: float | None
    chances: list[Chance]


def powers(gate: Gate, measure: Measure, plan: Plan, errors: Errors = SINGLE, seed: int = 1) -> Iterator[Power]:
    """The power of each demand of ``gate`` that chance can change; the same for the same ``seed``.

    Raises ValueError for scores without a baseline of two repeats: their spread within a case is unknown.
    """
    if measure.kind == "score" and (plan.base is None or plan.base.answers.min() < 2):
        raise ValueError("scores need a baseline with at least two repeats of each case, to show how they vary")
    for demand, margin, decide in _demands(gate, measure, plan, errors):
        simulated = _Simulation(plan, measure, decide, seed)
        drops = _DROPS if margin is None else [times * margin / measure.width for times in _MARGINS]
        allowed = 0.0 if margin is None else margin / measure.width
        chances = [_chance(simulated, plan.repeats, drop, allowed) for drop in drops if drop < 1.0]
        least = None if margin is None else simulated.detectable(errors.no_go)
        beyond = None if least is None else min(1.0, allowed + least)
        yield Power(gate.metric, demand, gate.tier, least, beyond, chances)


def _chance(simulated: _Simulation, repeats: int, drop: float, allowed: float) -> Chance:
    shares = simulated.shares(repeats, drop)
    wanted: Decided | None = "GO" if not drop else "NO-GO" if drop > allowed else None
    enough = simulated.repeats(wanted, drop, shares[wanted]) if wanted else None
    return Chance(drop, shares, wanted, enough)


def _demands(gate: Gate, measure: Measure, plan: Plan, errors: Errors) -> Iterator[tuple[str, float | None, Decide]]:
    """Each demand in words, the fall that it allows in the measure's unit, and the function that decides it."""
    for bound, least in ((gate.min, True), (gate.max, False)):
        if bound is not None:
            yield f"at {'least' if least else 'most'} {bound:.4g}", None, partial(_bound, measure, bound, errors, least)
    mean = plan.rate if plan.base is None else float(plan.base.mean.mean())
    for name in CHANGES:
        if getattr(gate, name) is not None:
            of = " of the baseline" if "relative" in name else ""
            words = "falls" if measure.better == "higher" else "gets worse"
            demand = f"{words} by at most {getattr(gate, name):.4g}{of}"
            yield demand, margin_of(gate, name, mean), partial(_drop, gate, name, measure, errors)
    if gate.per_case is not None and measure.kind == "pass":
        for each in gate.per_case.demands:
            yield each.demand, None, partial(_each, each, measure, errors.no_go)


def _bound(measure: Measure, bound: float, errors: Errors, least: bool, pairs: Pairs) -> Decided:
    # As a gate decides: the p-value is the error at which an interval begins to hold the bound.
    level = level_of(pairs.cand, measure.low, measure.width)
    if level.keeps(bound, errors.go, least=least):
        return "GO"
    low, high = level.interval(errors.no_go)
    return "NO-GO" if (high < bound if least else low > bound) else "INCONCLUSIVE"


def _drop(gate: Gate, name: str, measure: Measure, errors: Errors, pairs: Pairs) -> Decided:
    return dropped(pairs, measure, margin_of(gate, name, float(pairs.base.mean.mean())), errors)


def dropped(
    pairs: Pairs, measure: Measure, margin: float, errors: Errors = SINGLE, p_worse: float | None = None
) -> Decided:
    """The gate's decision on a fall of at most ``margin``, without a full estimate: fast enough for many draws.

    ``p_worse`` is the p-value of these pairs, if the caller knows it already.
    """
    change, _ = change_in(pairs, measure)
    if change.interval(errors.go)[0] > -margin:
        return "GO"
    # The p-value of the margin is at most alpha if this interval lies below it.
    if change.interval(errors.no_go)[1] < -margin:
        return "NO-GO"
    surprise = p_values(pairs, measure, change)[0] if p_worse is None else p_worse
    return "SUSPECT" if surprise <= errors.no_go else "INCONCLUSIVE"


def _each(demand: CaseDemand, measure: Measure, alpha: float, pairs: Pairs) -> Decided:
    side = pairs.cand
    passed = side.total if measure.better == "higher" else side.answers - side.total
    counts = enumerate(zip(passed.tolist(), side.answers.tolist(), strict=True))
    verdicts, _ = by_case(demand, [CasePasses(str(at), round(m), n) for at, (m, n) in counts], errors=Errors(alpha))
    decided = set(verdicts.values())
    return "NO-GO" if "NO-GO" in decided else "INCONCLUSIVE" if "INCONCLUSIVE" in decided else "GO"


class _Simulation:
    """Draws candidates of a plan and decides on them."""

    def __init__(self, plan: Plan, measure: Measure, decide: Decide, seed: int) -> None:
        self._plan = plan
        self._measure = measure
        self._decide = decide
        self._seed = seed

    def shares(self, repeats: int, drop: float, part: float = 1.0) -> dict[Decided, float]:
        """How often it gets which decision if the mean fell by ``drop``; ``part`` is the share of draws to make."""
        import numpy as np

        # Seed each question by itself, so that a result does not depend on earlier questions.
        rng = np.random.default_rng([self._seed, repeats, round(drop * 1e6)])
        # Make fewer draws of a plan with many cases, so that it does not take many times as long.
        draws = round(part * max(_LEAST, min(_MOST, _ANSWERS // self._plan.cases)))
        decisions = [self._decide(self._pairs(rng, repeats, drop)) for _ in range(draws)]
        return {each: decisions.count(each) / draws for each in DECISIONS}

    def repeats(self, wanted: Decided, drop: float, share: float) -> int | None:
        """About how many repeats give ``wanted`` in 80 %, from the ``share`` that the plan's own give."""
        known = {self._plan.repeats: share}
        enough, too_few = None, 0
        at = self._plan.repeats
        for _ in range(_TRIES):
            if known[at] >= _WANTED:
                enough = at if enough is None else min(enough, at)
            else:
                too_few = max(too_few, at)
            if enough is not None and enough - too_few <= max(1, enough // 20):
                return enough
            following = self._following(at, known[at], too_few, enough)
            if following > _MOST_REPEATS or following in known:
                break
            at = following
            # Fewer draws are enough for "about so many".
            known[at] = self.shares(at, drop, 0.4)[wanted]
        return enough

    def _following(self, at: int, share: float, too_few: int, enough: int | None) -> int:
        # A power of 80 % takes a change of t + .84 standard errors, which fall with the root of the repeats.
        # Shares of 0 and 1 have no quantile, and a few hundred draws do not tell them from half a percent.
        z = NormalDist().inv_cdf(min(0.995, max(0.005, share)))
        factor = ((1.96 + 0.8416) / max(0.3, 1.96 + z)) ** 2
        guess = max(1, math.ceil(at * min(16.0, factor)))
        if enough is None:
            return max(guess, too_few + max(1, too_few // 10))
        return guess if too_few < guess < enough else (too_few + enough) // 2

    def detectable(self, alpha: float) -> float:
        """The smallest change seen with a power of 80 % by a typical candidate, as a share of the scale."""
        import numpy as np

        rng = np.random.default_rng([self._seed, 0])
        drawn = (self._pairs(rng, self._plan.repeats, 0.0) for _ in range(_TYPICAL))
        smallest = [change_in(pairs, self._measure)[0].detectable(alpha) for pairs in drawn]
        return float(np.median(smallest)) / self._measure.width

    def _pairs(self, rng: Generator, repeats: int, drop: float) -> Pairs:
        """The baseline (the plan's, or a drawn one) and a candidate whose mean fell by ``drop``."""
        base = self._plan.base
        if self._measure.kind == "score":
            assert base is not None
            cand = _scores(rng, base, repeats, drop, self._measure)
        else:
            turned = self._measure.better == "lower"
            if base is None:
                rate = 1 - self._plan.rate if turned else self._plan.rate
                good = rng.beta(_VARIETY * rate, _VARIETY * (1 - rate), self._plan.cases)
                base = _passes(rng, 1 - good if turned else good, repeats)
            else:
                good = _likely(rng, base, turned)
            lower = _lowered(good, drop)
            cand = _passes(rng, 1 - lower if turned else lower, repeats)
        # Leave out names: only numbers decide here.
        return Pairs([""] * len(cand.answers), base, cand, [], [], 0)


def _likely(rng: Generator, base: Side, turned: bool) -> NDArray[float64]:
    """A draw of the cases' pass rates from their posterior, around the mean over cases."""
    good = base.answers - base.total if turned else base.total
    # Add half a pass and half a failure (Jeffreys): a baseline without failures does not rule them out.
    mean = (float(good.sum()) + 0.5) / (float(base.answers.sum()) + 1)
    return rng.beta(good + _VARIETY * mean, base.answers - good + _VARIETY * (1 - mean))


def _lowered(rates: NDArray[float64], drop: float) -> NDArray[float64]:
    """The rates with a mean that is lower by ``drop``; each case loses in proportion to its rate."""
    mean = float(rates.mean())
    return rates * max(0.0, 1 - drop / mean) if mean > 0 else rates


def _passes(rng: Generator, rates: NDArray[float64], repeats: int) -> Side:
    import numpy as np

    passed = rng.binomial(repeats, np.clip(rates, 0.0, 1.0)).astype(float)
    return Side(np.full(len(rates), repeats), passed, passed)


def _scores(rng: Generator, base: Side, repeats: int, drop: float, measure: Measure) -> Side:
    """Scores of each case around its mean in the baseline, as far from it as the baseline's are, within the scale."""
    import numpy as np

    sign = -1 if measure.better == "higher" else 1
    drawn = rng.normal(
        (base.mean + sign * drop * measure.width)[:, None],
        np.sqrt(base.variance)[:, None],
        (len(base.answers), repeats),
    )
    drawn = np.clip(drawn, measure.low, measure.high)
    return Side(np.full(len(base.answers), repeats), drawn.sum(axis=1), (drawn * drawn).sum(axis=1))
