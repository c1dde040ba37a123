"""Demands on numbers of the results that are no measures: counts, quantiles and means of what answers took."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from evalq.evalcore.compare.counting import USAGE_NUMBERS, told_in
from evalq.evalcore.compare.decision import Check, Decided, undecided
from evalq.evalcore.compare.intervals import (
    ALPHA,
    MeanChange,
    QuantileChange,
    Spread,
    SpreadLevel,
    design_effect,
    mean_level,
    quantile_level,
)
from evalq.evalcore.compare.policy import CHANGES, Gate
from evalq.evalcore.compare.spending import Errors
from evalq.evalcore.compare.summary import RunCases, Took, with_unrecorded
from evalq.evalcore.contract.measures import Direction, Number, number_at
from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.statistics.quantiles import answers_needed

_UNTOLD = "no answer has this number: what nobody told is not 0"
_RISES = ("max_rise", "max_relative_rise")


def why_no_change(gate: Gate, better: Direction) -> str:
    """Why the change bounds of a gate are none for a number of which so much is ``better``; empty where they are."""
    given = [name for name in CHANGES if getattr(gate, name) is not None]
    if better == "neither" and given:
        return (
            f"{gate.metric}: {given[0]} needs a number of which more or less is better, and this is none; bound it by "
            "min, max or equals"
        )
    if better == "higher" and (rises := [name for name in given if name in _RISES]):
        return (
            f"{gate.metric}: more of it is better, so that no rise is a fault; use {rises[0].replace('rise', 'drop')}"
        )
    return ""


def number_checks(gate: Gate, run: RunCases, partner: RunCases | None, errors: Errors) -> Iterator[Check]:
    """What a gate demands of a number of the results, by what its evaluator declares it to be.

    Raises UsageError for a path that leads to no number, for a change that nobody can judge, and where only a measure
    will do.
    """
    value = _found(gate.path, run)
    if gate.per_case is not None:
        measures = ", ".join(f"{run.called}.{each.name}" for each in run.cases.measures)
        raise UsageError(f"{gate.metric}: per_case needs passes of single cases; those are in {measures}")
    number = number_at(gate.path, USAGE_NUMBERS if _of_usage(gate) else run.numbers)
    if why := why_no_change(gate, number.better):
        raise UsageError(why)
    if gate.compares and number.kind in ("fact", "estimate"):
        what = "a count of one run" if number.kind == "fact" else "an estimate without an interval"
        raise UsageError(
            f"{gate.metric} is {what}: nothing says how far chance moves its change; bound a rate, a mean or a quantile"
        )
    if gate.equals is not None:
        yield _equal(gate, number, run, value)
    for name, bound in (("min", gate.min), ("max", gate.max)):
        if bound is not None:
            yield _bounded(gate, number, run, value, bound, errors, least=name == "min")
    if partner is not None:
        yield from _changed(gate, number, run, partner, errors)


def _of_usage(gate: Gate) -> bool:
    return gate.path.partition(".")[0] == "usage"


def _equal(gate: Gate, number: Number, run: RunCases, value: Json) -> Check:
    # Equality asks for the very value: chance has no part in a number that is demanded exactly.
    kept = same(value, gate.equals)
    check = Check(
        gate.metric,
        f"equals {written(gate.equals)}",
        gate.tier,
        "GO" if kept else "NO-GO",
        f"it is {written(value)}",
        value,
        evidence=_answers(gate, run),
    )
    # Where nothing was answered nobody knows what the number would have been.
    if value is None:
        reason = _UNTOLD if number.of else check.reason
        return msgspec.structs.replace(check, decided="INCONCLUSIVE", reason=reason)
    if number.of and (untold := _untold(gate, number, run)):
        return undecided(check, f"{untold} answer(s) do not say it, and nobody knows what it would be with them")
    missing = 0 if _of_usage(gate) else _missing(run)
    if kept and missing:
        return undecided(check, f"{missing} answer(s) are missing, and nobody knows what it would be with them")
    return check


def _bounded(
    gate: Gate, number: Number, run: RunCases, value: Json, bound: float, errors: Errors, *, least: bool
) -> Check:
    demand = f"at {'least' if least else 'most'} {bound:.4g}"
    check = Check(gate.metric, demand, gate.tier, "INCONCLUSIVE", "", value)
    if number.kind in ("mean", "quantile"):
        took = _with_unrecorded(run.took.get(number.of), run, of_usage=_of_usage(gate))
        return _level(check, number, took, bound, errors, least=least)
    if value is None and number.of:
        return msgspec.structs.replace(check, reason=_UNTOLD)
    # A bool is an int to Python, and no number to the author of a bound.
    if not isinstance(value, int | float) or isinstance(value, bool):
        return msgspec.structs.replace(check, reason=f"it is {written(value)}, and no number")
    if number.kind == "estimate":
        return _estimated(check, _interval(gate.path, run), bound, errors, _answers(gate, run), least=least)
    kept = same(value, bound) or (value >= bound if least else value <= bound)
    decided: Decided = "GO" if kept else "NO-GO"
    found = msgspec.structs.replace(
        check, decided=decided, reason=f"{value:.4g}, counted in this run", evidence=_answers(gate, run)
    )
    if number.of:
        return _summed(found, _untold(gate, number, run), least=least)
    missing = 0 if number.holds_missing or _of_usage(gate) else _missing(run)
    # Each answer that is missing may have been one more, or one less: of what is counted, by one at most.
    if kept and missing and not (least or value + missing <= bound):
        return undecided(found, f"{missing} answer(s) are missing, and with them it may be more")
    return found


def _untold(gate: Gate, number: Number, run: RunCases) -> int:
    """How many answers do not say a number, and may have taken anything."""
    if _of_usage(gate):
        # Of calls that failed nobody knows more than they said; what was answered took something.
        return run.usage.untold.get(number.of.partition(".")[2], 0) if run.usage is not None else 0
    took = _with_unrecorded(run.took.get(number.of), run, of_usage=False)
    return took.lacking if took is not None else 0


def _summed(check: Check, untold: int, *, least: bool) -> Check:
    """A total, or the largest value: with the answers that do not say theirs it may only be more."""
    if not untold or check.decided == ("GO" if least else "NO-GO"):
        return check
    return undecided(check, f"{untold} answer(s) do not say it, and with them it may be more")


def _level(check: Check, number: Number, took: Took | None, bound: float, errors: Errors, *, least: bool) -> Check:
    """A mean or a quantile within a bound: by its interval, as observed and with what is missing held against it."""
    if took is None or not took.sketch.count:
        return msgspec.structs.replace(check, reason=_UNTOLD)
    if number.kind == "quantile":
        observed = quantile_level(_without_missing(took), number.share, bound, least=least, missing_above=not least)
        worst = quantile_level(took, number.share, bound, least=least, missing_above=not least)
    else:
        observed = mean_level(took, bound, least=least)
        worst = mean_level(took, bound, least=least, missing_above=not least)
    answers = took.sketch.count
    reason = (
        f"{observed.value:.4g}, with 95 % between {observed.low:.4g} and {observed.high:.4g} "
        f"({answers} answers to these cases)"
    )
    found = msgspec.structs.replace(
        check,
        decided=_sided(observed, errors),
        reason=reason,
        value=observed.value,
        low=observed.low,
        high=observed.high if math.isfinite(observed.high) else None,
        p_margin=observed.p_broken,
        evidence=answers,
    )
    return _enough(agreed(found, _sided(worst, errors)), number, answers, errors.go)


def _with_unrecorded(took: Took | None, run: RunCases, *, of_usage: bool) -> Took | None:
    """With the answers of cases that should have been asked, and that no record is about."""
    absent = _missing(run) - sum(run.cases.missing)
    if took is None or of_usage or absent <= 0:
        return took
    none = {"count": 0, "missing": absent, "total": 0.0, "squares": 0.0, "logs": 0.0, "log_squares": 0.0}
    more = {name: [*getattr(took, name), value] for name, value in none.items()}
    return msgspec.structs.replace(took, ids=[*took.ids, ""], **more)


def _sided(level: SpreadLevel, errors: Errors) -> Decided:
    if level.p_kept <= errors.go:
        return "GO"
    return "NO-GO" if level.p_broken <= errors.no_go else "INCONCLUSIVE"


def _enough(check: Check, number: Number, answers: int, error: float) -> Check:
    """The check, with how many answers it takes where there are too few for a bound of a quantile."""
    if number.kind != "quantile" or check.decided != "INCONCLUSIVE":
        return check
    needed = answers_needed(number.share, error)
    if answers >= needed:
        return check
    return undecided(check, f"a bound of this quantile takes {needed} answers at least, and there are {answers}")


def _estimated(
    check: Check, interval: tuple[float, float] | None, bound: float, errors: Errors, answers: int, *, least: bool
) -> Check:
    """An estimate: by the interval of 95 % that the results have beside it, which a later look cannot use."""
    if interval is None or min(errors.go, errors.no_go) < ALPHA:
        why = "nothing says how far chance moves it" if interval is None else "its interval is too narrow for this look"
        return msgspec.structs.replace(check, reason=f"it is {check.value:.4g}, and {why}: it decides nothing")
    low, high = interval
    kept, broken = (low >= bound, high < bound) if least else (high <= bound, low > bound)
    decided: Decided = "GO" if kept else "NO-GO" if broken else "INCONCLUSIVE"
    return msgspec.structs.replace(
        check,
        decided=decided,
        reason=f"{check.value:.4g}, with 95 % between {low:.4g} and {high:.4g}",
        low=low,
        high=high,
        p_margin=ALPHA if broken else 1.0,
        evidence=answers,
    )


def _interval(path: str, run: RunCases) -> tuple[float, float] | None:
    holder, _, last = path.rpartition(".")
    place = _found(holder, run) if holder and last == "value" else None
    if not isinstance(place, Mapping):
        return None
    low, high = place.get("low"), place.get("high")
    return (float(low), float(high)) if isinstance(low, int | float) and isinstance(high, int | float) else None


def _changed(gate: Gate, number: Number, run: RunCases, partner: RunCases, errors: Errors) -> Iterator[Check]:
    """How far a mean or a quantile may get worse than the baseline's."""
    rises = number.better == "lower"
    for name in CHANGES:
        given = getattr(gate, name)
        if given is None:
            continue
        relative = "relative" in name
        words = "rises" if rises else "falls"
        demand = f"{words} by at most {given:.4g}" + (" of the baseline" if relative else "")
        check = Check(gate.metric, demand, gate.tier, "INCONCLUSIVE", "", _found(gate.path, run), change=True)
        base, cand = partner.took.get(number.of), run.took.get(number.of)
        if base is None or cand is None or not base.sketch.count or not cand.sketch.count:
            who = "baseline" if base is None or not base.sketch.count else "candidate"
            yield msgspec.structs.replace(check, reason=f"no answer of the {who} has this number")
            continue
        # A total is as many means as there are answers: runs of other sizes are compared by the mean.
        margin = given / cand.sketch.count if number.kind == "total" and not relative else given
        factor = (1.0 + margin if rises else 1.0 - margin) if relative else 1.0
        more = 0.0 if relative else margin if rises else -margin
        yield _moved(check, number, base, cand, factor, more, errors, rises=rises)


def _moved(
    check: Check,
    number: Number,
    base: Took,
    cand: Took,
    factor: float,
    more: float,
    errors: Errors,
    *,
    rises: bool,
) -> Check:
    observed = _spread(number, _without_missing(base), _without_missing(cand), worst=False, rises=rises)
    worst = _spread(number, base, cand, worst=True, rises=rises)
    decided = _change(observed, factor, more, errors, rises=rises)
    broken = observed.above if rises else observed.below
    values = (_value(number, base), _value(number, cand))
    ratio = f" ({values[1] / values[0] - 1:+.1%})" if values[0] else ""
    answers = min(base.sketch.count, cand.sketch.count)
    reason = f"{values[0]:.4g} to {values[1]:.4g}{ratio}, {base.sketch.count} and {cand.sketch.count} answers"
    effect = design_effect(base, cand)
    if effect > 1.0:
        reason += f"; answers of one case are alike beyond the run before, so that {effect:.3g} of them count as one"
    found = msgspec.structs.replace(
        check,
        decided=decided,
        reason=reason,
        value=values[1] - values[0],
        p_worse=broken(1.0, 0.0),
        p_margin=broken(factor, more),
        evidence=answers,
    )
    # Each side's bound has half the error.
    return _enough(agreed(found, _change(worst, factor, more, errors, rises=rises)), number, answers, errors.go / 2)


def _spread(number: Number, base: Took, cand: Took, *, worst: bool, rises: bool) -> Spread:
    if number.kind == "quantile":
        return QuantileChange.of(base, cand, number.share, worst=worst, rises=rises)
    return MeanChange.of(base, cand, worst=worst, rises=rises)


def _value(number: Number, took: Took) -> float:
    found = took.sketch.quantile(number.share) if number.kind == "quantile" else took.sketch.mean()
    return found or 0.0


def _change(spread: Spread, factor: float, more: float, errors: Errors, *, rises: bool) -> Decided:
    broken, kept = (spread.above, spread.below) if rises else (spread.below, spread.above)
    if kept(factor, more) <= errors.go:
        return "GO"
    if broken(factor, more) <= errors.no_go:
        return "NO-GO"
    return "SUSPECT" if broken(1.0, 0.0) <= errors.no_go else "INCONCLUSIVE"


def _without_missing(took: Took) -> Took:
    return msgspec.structs.replace(took, missing=[0] * len(took.ids))


def agreed(check: Check, at_worst: Decided) -> Check:
    """The check, where what is missing cannot change it; of SUSPECT and NO-GO, which differ in degree, the lesser."""
    # GATE, The question: a gate decides at the observed and at the worst; where they differ nobody knows.
    if check.decided == at_worst or (check.decided, at_worst) == ("SUSPECT", "NO-GO"):
        return check
    if (check.decided, at_worst) == ("NO-GO", "SUSPECT"):
        return msgspec.structs.replace(check, decided="SUSPECT")
    return undecided(check, f"it would be {at_worst} if what is missing counted against it")


def _missing(run: RunCases) -> int:
    return sum(with_unrecorded(run.cases).missing)


def _answers(gate: Gate, run: RunCases) -> int:
    """How many answers a number of the results rests on; of what calls took, how many calls."""
    if _of_usage(gate):
        return run.usage.outputs if run.usage is not None else 0
    return max((sum(column.count) for column in run.cases.columns.values()), default=0)


def same(value: Json, wanted: Json) -> bool:
    """Whether they are equal, a float up to its last digits: three rates of 0.1 have a mean of 0.10000000000000002.
    Counts are exact.
    """
    # A bool is an int to Python, and no number to the author of the one or the other.
    if isinstance(value, bool) != isinstance(wanted, bool):
        return False
    if isinstance(value, float) and isinstance(wanted, int | float):
        return math.isclose(value, wanted, rel_tol=1e-9, abs_tol=1e-12)
    return bool(value == wanted)


def _found(path: str, run: RunCases) -> Json:
    """What stands at ``path`` in the results, or under ``usage.`` in what the calls took."""
    # So that one path serves for results and for what calls took; an evaluator that has "usage" is overruled.
    usage = {} if run.usage is None else told_in(run.usage)
    place: Any = {**run.results, "usage": usage}
    for number, part in enumerate(path.split(".")):
        rest = ".".join(path.split(".")[number:])
        if isinstance(place, Mapping) and rest in place:
            return place[rest]  # a key with dots in it, as a file's name has
        if not isinstance(place, Mapping) or part not in place:
            known = ", ".join(sorted(place)[:20]) if isinstance(place, Mapping) else "nothing"
            raise UsageError(f"{run.called}.{path}: the results have no {part!r} there; there are: {known}")
        place = place[part]
    return place


def reported(path: str, run: RunCases) -> float | None:
    """The number at ``path`` in the results of ``run``; None where there is none."""
    try:
        value = _found(path, run)
    except UsageError:
        return None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def written(value: Json) -> str:
    """A value as JSON, shortened."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else text[:57] + "..."
