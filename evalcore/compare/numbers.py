"""Demands on numbers of the results that are not measures: counts, quantiles and means of time, cost and tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from evalq.evalcore.compare.counting import USAGE_NUMBERS, usage_results
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
from evalq.evalcore.views.markdown import plural

_UNKNOWN = "no answer has this number, which does not mean 0"
_RISES = ("max_rise", "max_relative_rise")


def why_no_change(gate: Gate, better: Direction) -> str:
    """Why a gate's bounds of a change do not fit a number whose ``better`` side is given; empty if they fit."""
    bounds = [name for name in CHANGES if getattr(gate, name) is not None]
    if better == "neither" and bounds:
        return (
            f"{gate.metric}: {bounds[0]} needs a number of which more or less is better, which this number is not; "
            "bound it by min, max or equals"
        )
    if better == "higher" and (rises := [name for name in bounds if name in _RISES]):
        return f"{gate.metric}: more of it is better, so a rise is no fault; use {rises[0].replace('rise', 'drop')}"
    return ""


def number_checks(gate: Gate, run: RunCases, partner: RunCases | None, errors: Errors) -> Iterator[Check]:
    """The checks of a gate on a number of the results, by the kind that the evaluator declares.

    Raises UsageError for a path without a number, for a change that nobody can judge, and for ``per_case``.
    """
    value = _value_at(gate.path, run)
    if gate.per_case is not None:
        measures = ", ".join(f"{run.called}.{each.name}" for each in run.cases.measures)
        raise UsageError(f"{gate.metric}: per_case needs passes of single cases; those are in {measures}")
    number = number_at(gate.path, USAGE_NUMBERS if _of_usage(gate) else run.numbers)
    if why := why_no_change(gate, number.better):
        raise UsageError(why)
    if gate.compares and number.kind in ("fact", "estimate"):
        what = "a count of one run" if number.kind == "fact" else "an estimate without an interval"
        raise UsageError(
            f"{gate.metric} is {what}: evalq cannot tell how far chance moves it; bound a rate, a mean or a quantile"
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
    # Chance has no part in a number that the policy demands exactly.
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
    # Without any answer nobody knows what the number would have been.
    if value is None:
        reason = _UNKNOWN if number.of else check.reason
        return msgspec.structs.replace(check, decided="INCONCLUSIVE", reason=reason)
    if number.of and (unknown := _unknown(gate, number, run)):
        return undecided(check, f"{plural(unknown, 'answer')} without this number, which could change it")
    missing = 0 if _of_usage(gate) else _missing(run)
    if kept and missing:
        return undecided(check, f"{plural(missing, 'missing answer')}, which could change it")
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
        return msgspec.structs.replace(check, reason=_UNKNOWN)
    # Python takes a bool for an int; the author of a bound does not.
    if not isinstance(value, int | float) or isinstance(value, bool):
        return msgspec.structs.replace(check, reason=f"it is {written(value)}, not a number")
    if number.kind == "estimate":
        return _estimated(check, _interval(gate.path, run), bound, errors, _answers(gate, run), least=least)
    kept = same(value, bound) or (value >= bound if least else value <= bound)
    decided: Decided = "GO" if kept else "NO-GO"
    counted = msgspec.structs.replace(
        check, decided=decided, reason=f"{value:.4g}, counted in this run", evidence=_answers(gate, run)
    )
    if number.of:
        return _summed(counted, _unknown(gate, number, run), least=least)
    missing = 0 if number.holds_missing or _of_usage(gate) else _missing(run)
    # Each missing answer adds at most one to a count.
    if kept and missing and not (least or value + missing <= bound):
        return undecided(counted, f"{plural(missing, 'missing answer')}, with which it may be more")
    return counted


def _unknown(gate: Gate, number: Number, run: RunCases) -> int:
    """How many answers lack a number, and so may have any value."""
    if _of_usage(gate):
        # Count answered calls only: a failed call may have taken nothing.
        return run.usage.untold.get(number.of.partition(".")[2], 0) if run.usage is not None else 0
    took = _with_unrecorded(run.took.get(number.of), run, of_usage=False)
    return took.lacking if took is not None else 0


def _summed(check: Check, unknown: int, *, least: bool) -> Check:
    """A total, or the largest value: the answers that lack the number could only make it larger."""
    if not unknown or check.decided == ("GO" if least else "NO-GO"):
        return check
    return undecided(check, f"{plural(unknown, 'answer')} without this number, with which it may be more")


def _level(check: Check, number: Number, took: Took | None, bound: float, errors: Errors, *, least: bool) -> Check:
    """A mean or a quantile within a bound: by its interval, as observed and with missing answers counted against it."""
    if took is None or not took.sketch.count:
        return msgspec.structs.replace(check, reason=_UNKNOWN)
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
    decided = msgspec.structs.replace(
        check,
        decided=_sided(observed, errors),
        reason=reason,
        value=observed.value,
        low=observed.low,
        high=observed.high if math.isfinite(observed.high) else None,
        p_margin=observed.p_broken,
        evidence=answers,
    )
    return _enough(agreed(decided, _sided(worst, errors)), number, answers, errors.go)


def _with_unrecorded(took: Took | None, run: RunCases, *, of_usage: bool) -> Took | None:
    """With the missing answers of cases that should have been asked, but have no record."""
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
    """The check; if there are too few answers for a bound of a quantile, it says how many it takes."""
    if number.kind != "quantile" or check.decided != "INCONCLUSIVE":
        return check
    needed = answers_needed(number.share, error)
    if answers >= needed:
        return check
    return undecided(check, f"a bound of this quantile takes at least {needed} answers, and there are {answers}")


def _estimated(
    check: Check, interval: tuple[float, float] | None, bound: float, errors: Errors, answers: int, *, least: bool
) -> Check:
    """An estimate: by the 95 % interval beside it in the results, which is too narrow for a later look."""
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
    estimate = _value_at(holder, run) if holder and last == "value" else None
    if not isinstance(estimate, Mapping):
        return None
    low, high = estimate.get("low"), estimate.get("high")
    return (float(low), float(high)) if isinstance(low, int | float) and isinstance(high, int | float) else None


def _changed(gate: Gate, number: Number, run: RunCases, partner: RunCases, errors: Errors) -> Iterator[Check]:
    """Check how far a mean or a quantile got worse than the baseline's."""
    rises = number.better == "lower"
    for name in CHANGES:
        allowed = getattr(gate, name)
        if allowed is None:
            continue
        relative = "relative" in name
        words = "rises" if rises else "falls"
        demand = f"{words} by at most {allowed:.4g}" + (" of the baseline" if relative else "")
        check = Check(gate.metric, demand, gate.tier, "INCONCLUSIVE", "", _value_at(gate.path, run), change=True)
        base, cand = partner.took.get(number.of), run.took.get(number.of)
        if base is None or cand is None or not base.sketch.count or not cand.sketch.count:
            who = "baseline" if base is None or not base.sketch.count else "candidate"
            yield msgspec.structs.replace(check, reason=f"no answer of the {who} has this number")
            continue
        # Compare totals by their mean, since runs may have different numbers of answers.
        margin = allowed / cand.sketch.count if number.kind == "total" and not relative else allowed
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
        reason += f"; answers of one case moved together since the baseline, so that {effect:.3g} of them count as one"
    moved = msgspec.structs.replace(
        check,
        decided=decided,
        reason=reason,
        value=values[1] - values[0],
        p_worse=broken(1.0, 0.0),
        p_margin=broken(factor, more),
        evidence=answers,
    )
    # Each side's bound has half the error.
    return _enough(agreed(moved, _change(worst, factor, more, errors, rises=rises)), number, answers, errors.go / 2)


def _spread(number: Number, base: Took, cand: Took, *, worst: bool, rises: bool) -> Spread:
    if number.kind == "quantile":
        return QuantileChange.of(base, cand, number.share, worst=worst, rises=rises)
    return MeanChange.of(base, cand, worst=worst, rises=rises)


def _value(number: Number, took: Took) -> float:
    value = took.sketch.quantile(number.share) if number.kind == "quantile" else took.sketch.mean()
    return value or 0.0


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
    """The check, if its verdict is the same ``at_worst``; the lesser of SUSPECT and NO-GO; otherwise undecided."""
    # GATE, The question: a gate decides on the observed answers, and with missing ones at their worst.
    if check.decided == at_worst or (check.decided, at_worst) == ("SUSPECT", "NO-GO"):
        return check
    if (check.decided, at_worst) == ("NO-GO", "SUSPECT"):
        return msgspec.structs.replace(check, decided="SUSPECT")
    return undecided(check, f"it would be {at_worst} if missing answers counted against it")


def _missing(run: RunCases) -> int:
    return sum(with_unrecorded(run.cases).missing)


def _answers(gate: Gate, run: RunCases) -> int:
    """How many answers a number of the results rests on; for usage, how many calls."""
    if _of_usage(gate):
        return run.usage.outputs if run.usage is not None else 0
    return max((sum(column.count) for column in run.cases.columns.values()), default=0)


def same(value: Json, wanted: Json) -> bool:
    """Whether they are equal. Floats may differ in their last digits: three rates of 0.1 have a mean of
    0.10000000000000002. Counts are exact.
    """
    # Python takes a bool for an int; the author of a policy does not.
    if isinstance(value, bool) != isinstance(wanted, bool):
        return False
    if isinstance(value, float) and isinstance(wanted, int | float):
        return math.isclose(value, wanted, rel_tol=1e-9, abs_tol=1e-12)
    return bool(value == wanted)


def _value_at(path: str, run: RunCases) -> Json:
    """The value at ``path`` in the results; ``usage.`` leads into the usage of the run's calls."""
    # The calls' usage takes precedence over a result that an evaluator calls "usage".
    usage = {} if run.usage is None else usage_results(run.usage)
    value: Any = {**run.results, "usage": usage}
    for number, part in enumerate(path.split(".")):
        rest = ".".join(path.split(".")[number:])
        if isinstance(value, Mapping) and rest in value:
            return value[rest]  # a key with dots in it, such as a file's name
        if not isinstance(value, Mapping) or part not in value:
            known = ", ".join(sorted(value)[:20]) if isinstance(value, Mapping) else "nothing"
            raise UsageError(f"{run.called}.{path}: the results have no {part!r} there; there are: {known}")
        value = value[part]
    return value


def reported(path: str, run: RunCases) -> float | None:
    """The number at ``path`` in the results of ``run``; None if there is none."""
    try:
        value = _value_at(path, run)
    except UsageError:
        return None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def written(value: Json) -> str:
    """A value as JSON, shortened."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else text[:57] + "..."
