"""Single demands of a gate: a bound, a drop behind the baseline, a plain number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from evalq.evalcore.compare.comparison import Measured
from evalq.evalcore.compare.decision import Check, Decided, undecided
from evalq.evalcore.compare.intervals import Level, level_of
from evalq.evalcore.compare.looks import SINGLE, Errors
from evalq.evalcore.compare.pairs import pairs_of
from evalq.evalcore.compare.policy import Gate
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.compare.summary import CaseSummary
from evalq.evalcore.compare.unrecorded_cases import with_unrecorded
from evalq.evalcore.contract.measures import Measure
from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.canonical import Json

__all__ = ["compared", "held", "level_in", "margin_of", "plain", "reported", "signed"]


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
        reason = f"{_number(level.mean)}, {_between(errors)} {_number(low)} and {_number(high)}"
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
        yield _agreed(check, decisions[1])
    if gate.equals is not None:
        # What is missing may lie at both ends: either may be what moves the mean off the number.
        ends: tuple[_Fill, ...] = ("lowest", "highest")
        check = _equal(gate, _mean_in(run, measure), _answers(run, measure))
        if check.value is None:
            yield msgspec.structs.replace(check, decided="INCONCLUSIVE", reason="no case has an answer")
            return
        broken = any(not _same(_mean_in(run, measure, end), gate.equals) for end in ends)
        yield _agreed(check, "NO-GO" if broken else "GO")


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


def compared(
    gate: Gate, measure: Measure, observed: Measured | None, worst: Measured | None, errors: Errors
) -> Iterator[Check]:
    """How far it may fall behind the baseline.

    GO where a larger fall is excluded, NO-GO where one is shown, SUSPECT where it fell beyond chance and neither is.
    """
    for name, given in (("max_drop", gate.max_drop), ("max_relative_drop", gate.max_relative_drop)):
        if given is None:
            continue
        demand = f"falls by at most {_number(given)}" + (" of the baseline" if name == "max_relative_drop" else "")
        if observed is None or worst is None:
            yield Check(gate.metric, demand, gate.tier, "INCONCLUSIVE", "no case has an answer in both runs")
            continue
        # Each by its own base: at the worst the baseline has its missing answers as its best ones.
        margins = [margin_of(gate, name, each.estimate.base) for each in (observed, worst)]
        seen = observed.estimate
        check = Check(
            gate.metric,
            demand,
            gate.tier,
            _dropped(observed, margins[0], errors.no_go),
            f"changed by {signed(seen.delta)}, {_between(errors)} {signed(seen.low)} and "
            f"{signed(seen.high)} ({_number(seen.base)} to {_number(seen.cand)}, {seen.cases} cases"
            + (f"; {measure.reading})" if measure.reading else ")"),
            seen.delta,
            seen.low,
            seen.high,
            seen.p_worse,
            p_margin=observed.p_margin(margins[0]),
            evidence=seen.answers,
        )
        yield _agreed(check, _dropped(worst, margins[1], errors.no_go))


def margin_of(gate: Gate, name: str, base: float) -> float:
    """How far a number may fall behind ``base`` by the bound called ``name``, in the measure's unit."""
    given = float(getattr(gate, name))
    # A share of its size: a number below 0 can fall, too.
    return given * abs(base) if name == "max_relative_drop" else given


def _dropped(found: Measured, margin: float, alpha: float) -> Decided:
    # GATE 6: GO first, so that a fall that is sure, and smaller than allowed, stops nothing.
    if found.estimate.low > -margin:
        return "GO"
    if found.p_margin(margin) <= alpha:
        return "NO-GO"
    return "SUSPECT" if found.estimate.p_worse <= alpha else "INCONCLUSIVE"


def _agreed(check: Check, at_worst: Decided) -> Check:
    """The check, where what is missing cannot change it; of SUSPECT and NO-GO, which differ in degree, the lesser."""
    # GATE, The question: a gate decides at the observed and at the worst; where they differ nobody knows.
    if check.decided == at_worst or (check.decided, at_worst) == ("SUSPECT", "NO-GO"):
        return check
    if (check.decided, at_worst) == ("NO-GO", "SUSPECT"):
        return msgspec.structs.replace(check, decided="SUSPECT")
    return undecided(check, f"it would be {at_worst} if what is missing counted against it")


def plain(gate: Gate, run: RunCases, partner: RunCases | None) -> Iterator[Check]:
    """A number of the results that is no measure: taken as it is, since nothing says how far chance moved it.

    Nor does anything say how far missing answers would: no GO for a value that is demanded exactly where any is
    missing, nor for a bound where all are. Raises UsageError for a path that leads to no number, and where only a
    measure will do.
    """
    value = _found(gate.path, run)
    missing, evidence = _missing(gate, run), _evidence(gate, run)
    if gate.per_case is not None:
        measures = ", ".join(f"{run.called}.{each.name}" for each in run.cases.measures)
        raise UsageError(f"{gate.metric}: per_case needs passes of single cases; those are in {measures}")
    if gate.equals is not None:
        check = _equal(gate, value, evidence)
        # As for bounds: where nothing was answered nobody knows what the number would have been.
        check = check if value is not None else msgspec.structs.replace(check, decided="INCONCLUSIVE")
        yield _known(check, missing)
    # A bool is an int to Python, and no number to whoever wrote the bound.
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    limits: list[tuple[str, float, bool]] = []
    limits += [(f"at least {_number(gate.min)}", gate.min, True)] if gate.min is not None else []
    limits += [(f"at most {_number(gate.max)}", gate.max, False)] if gate.max is not None else []
    if gate.compares and partner is not None:
        before = _found(gate.path, partner)
        if isinstance(before, int | float) and not isinstance(before, bool):
            for name in ("max_drop", "max_relative_drop"):
                if getattr(gate, name) is not None:
                    drop = margin_of(gate, name, before)
                    limits.append((f"falls by at most {_number(drop)} behind {_number(before)}", before - drop, True))
        else:
            yield Check(gate.metric, "a drop", gate.tier, "INCONCLUSIVE", "the baseline has no number there", value)
    for demand, bound, least in limits:
        if number is None:
            yield Check(gate.metric, demand, gate.tier, "INCONCLUSIVE", f"it is {_told(value)}, and no number", value)
            continue
        kept = _same(number, bound) or (number >= bound if least else number <= bound)
        reason = f"{_number(number)}, as it stands: nothing is known of its chance variation"
        check = Check(gate.metric, demand, gate.tier, "GO" if kept else "NO-GO", reason, number, evidence=evidence)
        answered = any(any(column.count) for column in run.cases.columns.values())
        yield _known(check, 0 if answered else missing)


def _missing(gate: Gate, run: RunCases) -> int:
    # What calls took is known, whether they were answered or not.
    return 0 if gate.path.partition(".")[0] == "usage" else sum(with_unrecorded(run.cases).missing)


def _evidence(gate: Gate, run: RunCases) -> int:
    """How many answers a number of the results rests on; of what calls took, how many calls."""
    if gate.path.partition(".")[0] == "usage":
        return run.usage.outputs if run.usage is not None else 0
    return max((sum(column.count) for column in run.cases.columns.values()), default=0)


def _known(check: Check, missing: int) -> Check:
    """The check, where it is not met by what may have been ``missing``."""
    if check.decided != "GO" or not missing:
        return check
    reason = f"{check.reason}; {missing} answer(s) are missing, and nobody knows what it would be with them"
    return msgspec.structs.replace(check, decided="INCONCLUSIVE", reason=reason)


def _equal(gate: Gate, value: Json, evidence: int) -> Check:
    # Equality asks for the very value: chance has no part in a number that is demanded exactly.
    kept = _same(value, gate.equals)
    demand = f"equals {_told(gate.equals)}"
    reason = f"it is {_told(value)}"
    return Check(gate.metric, demand, gate.tier, "GO" if kept else "NO-GO", reason, value, evidence=evidence)


def _same(value: Json, wanted: Json) -> bool:
    """Whether they are equal, a float up to its last digits: three rates of 0.1 have a mean of 0.10000000000000002, and
    0.8 less a drop of 0.1 is more than 0.7. Counts are exact.
    """
    # A bool is an int to Python, and no number to whoever wrote the one or the other.
    if isinstance(value, bool) != isinstance(wanted, bool):
        return False
    if isinstance(value, float) and isinstance(wanted, int | float):
        return math.isclose(value, wanted, rel_tol=1e-9, abs_tol=1e-12)
    return bool(value == wanted)


def _found(path: str, run: RunCases) -> Json:
    """What stands at ``path`` in the results, or under ``usage.`` in what the calls took."""
    # So that one path serves for results and for what calls took; an evaluator that has "usage" is overruled.
    usage = {} if run.usage is None else msgspec.to_builtins(run.usage)
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


def _between(errors: Errors) -> str:
    return f"with {100 * (1 - 2 * errors.go):.4g} % between"


def _number(value: float) -> str:
    return f"{value:.4g}"


def signed(value: float) -> str:
    """A change with its sign; none is told of what differs by the rounding of two sums alone."""
    return f"{round(value, 14) + 0.0:+.4g}"


def _told(value: Json) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else text[:57] + "..."
