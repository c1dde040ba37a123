"""Demands on a measure's mean over cases: a bound, and a drop behind the baseline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from evalq.evalcore.compare.comparison import Measured
from evalq.evalcore.compare.decision import Check, Decided
from evalq.evalcore.compare.intervals import Level, level_of
from evalq.evalcore.compare.looks import SINGLE, Errors
from evalq.evalcore.compare.numbers import agreed, same, why_no_change, written
from evalq.evalcore.compare.pairs import pairs_of
from evalq.evalcore.compare.policy import CHANGES, Gate
from evalq.evalcore.compare.summary import CaseSummary
from evalq.evalcore.compare.trust_in_judges import Corrected
from evalq.evalcore.contract.measures import Measure, changed, signed
from evalq.evalcore.contract.measures import level as shown
from evalq.evalcore.errors import UsageError

__all__ = ["compared", "held", "level_in", "margin_of", "off_scale", "signed"]


def off_scale(gate: Gate, measure: Measure) -> tuple[str, str] | None:
    """The key of a gate that lies off the scale of its ``measure``, and why that is wrong; None where none does.

    Most often percent or points where a share is meant: as a bound or a margin every run would pass it, or none.
    """
    scale = f"off the scale from {measure.low:g} to {measure.high:g}, so that"
    for key, bound, ends in (
        ("min", gate.min, ("every run would pass", "no run could pass")),
        ("max", gate.max, ("no run could pass", "every run would pass")),
    ):
        if bound is not None and not measure.low <= bound <= measure.high:
            return key, f"{key} {bound:g} is {scale} {ends[bound > measure.high]}{_share_meant(bound, measure, '%')}"
    for key, margin in (("max_drop", gate.max_drop), ("max_rise", gate.max_rise)):
        if margin is not None and margin > measure.width:
            return key, f"{key} {margin:g} is {scale} every run would pass{_share_meant(margin, measure, 'points')}"
    return None


def _share_meant(value: float, measure: Measure, unit: str) -> str:
    return f"; {value:g} {unit} are {value / 100:g}" if measure.is_share and 0 < value <= 100 else ""


def held(gate: Gate, run: CaseSummary, measure: Measure, errors: Errors = SINGLE) -> Iterator[Check]:
    """The mean over cases within absolute bounds: by its interval, as observed and at the worst."""
    for bound, least in ((gate.min, True), (gate.max, False)):
        if bound is None:
            continue
        demand = f"at {'least' if least else 'most'} {_number(bound)}"
        levels = [level_in(run, measure), level_in(run, measure, "lowest" if least else "highest")]
        if levels[0] is None or levels[1] is None:
            yield Check(gate.metric, demand, gate.tier, "INCONCLUSIVE", "no case has an answer")
            continue
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
        )
        yield agreed(check, decisions[1])
    if gate.equals is not None:
        # What is missing may lie at both ends: either may be what moves the mean off the number.
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


def level_in(run: CaseSummary, measure: Measure, missing: _Fill | None = None) -> Level | None:
    """The mean of a run over its cases, with all that is ``missing`` at that end of the scale; None without any."""
    pairs = pairs_of(run, run, measure)
    if not pairs.ids:
        return None
    side = pairs.cand
    if missing is not None:
        # By the end that breaks a bound, whichever of them the measure has as its better one.
        turned = msgspec.structs.replace(measure, better="higher" if missing == "lowest" else "lower")
        side = pairs_of(run, run, turned, worst=True).cand
    return level_of(side, measure.low, measure.width)


def _mean_in(run: CaseSummary, measure: Measure, missing: _Fill | None = None) -> float | None:
    level = level_in(run, measure, missing)
    return None if level is None else level.mean


def _within(level: Level, bound: float, errors: Errors, *, least: bool) -> Decided:
    # At the bound is within it: a demand of at least .8 is kept by what is surely .8.
    if level.keeps(bound, errors.go, least=least):
        return "GO"
    return "NO-GO" if (level.p_below(bound) if least else level.p_above(bound)) <= errors.no_go else "INCONCLUSIVE"


Change = Measured | Corrected
"""A change as it was measured, or as people would see it."""


def compared(
    gate: Gate, measure: Measure, observed: Change | None, worst: Change | None, errors: Errors
) -> Iterator[Check]:
    """How far it may fall behind the baseline, or rise above it where less of it is better.

    GO where a larger fall is excluded, NO-GO where one is shown, SUSPECT where it fell beyond chance and neither is.
    Raises UsageError for a rise of what should rise.
    """
    if why := why_no_change(gate, measure.better):
        raise UsageError(why)
    for name in CHANGES:
        given = getattr(gate, name)
        if given is None:
            continue
        words = "falls" if measure.better == "higher" else "gets worse"
        demand = f"{words} by at most {_number(given)}" + (" of the baseline" if "relative" in name else "")
        if observed is None or worst is None:
            reason = "no case has an answer in both runs"
            yield Check(gate.metric, demand, gate.tier, "INCONCLUSIVE", reason, change=True)
            continue
        # Each by its own base: at the worst the baseline has its missing answers as its best ones.
        margins = [margin_of(gate, name, each.estimate.base) for each in (observed, worst)]
        seen = observed.estimate
        check = Check(
            gate.metric,
            demand,
            gate.tier,
            _dropped(observed, margins[0], errors.no_go),
            f"changed by {changed(seen.delta, measure)}, {_between(errors)} {changed(seen.low, measure)} and "
            f"{changed(seen.high, measure)} for these cases ({shown(seen.base, measure)} to "
            f"{shown(seen.cand, measure)}, {seen.cases} cases"
            + (f"; {measure.reading})" if measure.reading else ")")
            + _as_judged(observed),
            seen.delta,
            seen.low,
            seen.high,
            seen.p_worse,
            p_margin=observed.p_margin(margins[0]),
            evidence=seen.answers,
            change=True,
        )
        yield agreed(check, _dropped(worst, margins[1], errors.no_go))


def _as_judged(found: Change) -> str:
    if not isinstance(found, Corrected):
        return ""
    raw = found.raw.estimate
    return (
        f"; that is as people would see it, by their labels; as judged between {signed(raw.low)} and {signed(raw.high)}"
    )


def margin_of(gate: Gate, name: str, base: float) -> float:
    """How far a number may fall behind ``base`` by the bound called ``name``, in the measure's unit."""
    given = float(getattr(gate, name))
    # A share of its size: a number below 0 can fall, too.
    return given * abs(base) if "relative" in name else given


def _dropped(found: Change, margin: float, alpha: float) -> Decided:
    # GATE 6: GO first, so that a fall that is sure, and smaller than allowed, stops nothing.
    if found.estimate.low > -margin:
        return "GO"
    if found.p_margin(margin) <= alpha:
        return "NO-GO"
    return "SUSPECT" if found.estimate.p_worse <= alpha else "INCONCLUSIVE"


def _equal(gate: Gate, value: float | None, evidence: int) -> Check:
    # Equality asks for the very value: chance has no part in a number that is demanded exactly.
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
