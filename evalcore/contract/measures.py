"""The numbers of an evaluator by which two runs are compared, case by case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec

from evalq.evalcore.records.batch import Batch

Direction = Literal["higher", "lower", "neither"]
"""Which change of a number is an improvement."""


class Measure(msgspec.Struct, frozen=True):
    """A number that every answered record has.

    ``name`` follows the evaluator's in a policy ("vs.pass_rate"). ``kind`` "pass" means 0 or 1, "score" a number on the
    scale from ``low`` to ``high``. ``better`` says which end is wanted. ``optional``: some runs have no record with a
    value of it, and are then not compared by it.
    """

    name: str
    kind: Literal["pass", "score"] = "pass"
    low: float = 0.0
    high: float = 1.0
    better: Literal["higher", "lower"] = "higher"
    optional: bool = False

    @property
    def width(self) -> float:
        """The length of the scale (``high`` less ``low``), in the measure's own unit."""
        return self.high - self.low

    @property
    def is_share(self) -> bool:
        """Whether its mean is a share of answers, which people read in percent; a score is a number."""
        return self.kind == "pass"

    @property
    def reading(self) -> str:
        """A hint for reading a change; empty if more is better, as usual."""
        return "less of it is better, and a change below 0 is a rise" if self.better == "lower" else ""


def size(change: float, measure: Measure) -> str:
    """The size of a change of ``measure``, as people read it: points of a share, else the number."""
    return f"{100 * change:.1f} points" if measure.is_share else f"{change:.3g}"


def changed(change: float, measure: Measure) -> str:
    """A change of ``measure`` with its sign, as people read it: points of a share, else the number."""
    return f"{round(100 * change, 1) + 0.0:+.1f} points" if measure.is_share else signed(change)


def signed(value: float) -> str:
    """A change with its sign; a difference that only rounding of sums makes is shown as 0."""
    return f"{round(value, 14) + 0.0:+.4g}"


def level(value: float, measure: Measure) -> str:
    """A value of ``measure``, as people read it: percent of a share, else the number."""
    return f"{100 * value:.1f} %" if measure.is_share else f"{value:.4g}"


def pass_measure(measures: Iterable[Measure]) -> Measure | None:
    """The measure that an answer passes or fails by; None where all are scores."""
    return next((each for each in measures if each.kind == "pass"), None)


class Number(msgspec.Struct, frozen=True):
    """A number of the results that is no measure.

    ``path`` has keys with dots between; "*" stands for any one key, and "**" at the end for all that follow.
    ``better`` says which change is an improvement. ``kind`` says how a gate decides on it:

    - "fact": a count of this run, such as failed outputs. A gate compares it with a bound directly. ``holds_missing``:
      it counts missing answers. With ``of`` it is the largest of the values that an `Observation` has under that name.
    - "mean", "total" and "quantile" (``share`` of the answers do not exceed it): over the values that an `Observation`
      has under the name ``of``. They vary by chance, and have intervals.
    - "estimate": anything else. How far chance moves it is unknown, so a gate decides nothing by it, unless the
      results have its interval beside it (as ``low`` and ``high`` beside ``value``).
    """

    path: str
    better: Direction = "neither"
    kind: Literal["fact", "mean", "total", "quantile", "estimate"] = "fact"
    of: str = ""
    share: float = 0.0
    holds_missing: bool = False

    def matches(self, path: str) -> bool:
        """Whether it is the number at ``path``."""
        pattern, keys = self.path.split("."), path.split(".")
        if pattern[-1] == "**":
            pattern, keys = pattern[:-1], keys[: len(pattern) - 1]
        return len(pattern) == len(keys) and all(part in ("*", key) for part, key in zip(pattern, keys, strict=True))


def number_at(path: str, numbers: Iterable[Number]) -> Number:
    """The first of ``numbers`` that matches ``path``; without one, an estimate without a direction."""
    return next((each for each in numbers if each.matches(path)), Number(path, kind="estimate"))


def spread_of(name: str, quantiles: Mapping[str, float], better: Direction = "lower") -> tuple[Number, ...]:
    """The numbers under ``name`` in the results, for a value such as seconds that `Measures.took` names."""
    return (
        Number(f"{name}.mean", better, "mean", name),
        Number(f"{name}.total", better, "total", name),
        *(Number(f"{name}.{key}", better, "quantile", name, share) for key, share in quantiles.items()),
        Number(f"{name}.max", better, of=name),
        Number(f"{name}.*"),
    )


class Judged(msgspec.Struct, frozen=True):
    """Which of a run's results rest on verdicts that may be wrong, such as a model's.

    ``labels`` has, for each such check, {case: (labels passed by judge and person, by the judge alone, by the person
    alone, by none, answers that the judge passed, all of its answers)}; ``outputs`` the same of whole answers, as
    judged and with all labels in place of the judges' verdicts. ``by`` is a digest of the judges and their settings.
    ``unaffected`` has the first keys of the paths of results that rest on no such verdict.
    """

    labels: dict[str, dict[str, tuple[int, int, int, int, int, int]]]
    by: str = ""
    unaffected: tuple[str, ...] = ()
    outputs: dict[str, tuple[int, int, int, int, int, int]] = {}

    def affects(self, path: str) -> bool:
        """Whether the result at ``path`` rests on such verdicts."""
        return path.partition(".")[0] not in self.unaffected


class Observation(msgspec.Struct, frozen=True):
    """One record's values for its case, one for each measure.

    Without an answer (an error, a dead record, an unanswered call) ``values`` is empty, and the record counts as
    missing. Of several answers to one ``repeat`` of a case in an input, the first counts; it also replaces a missing
    one. ``label`` distinguishes answers that can collapse. ``took`` has a number of at least 0, or None, for each name
    in `Measures.took`.
    """

    case: str
    values: tuple[float | None, ...] = ()
    repeat: int | None = None
    label: str | None = None
    took: tuple[float | None, ...] = ()


def _no_cases(report: Mapping[str, Any]) -> list[str]:
    return []


def _no_judged(report: Mapping[str, Any]) -> Judged | None:
    return None


def _no_p_values(report: Mapping[str, Any]) -> dict[str, float] | None:
    return None


class Measures(msgspec.Struct, frozen=True):
    """The measures of an evaluator, by the cases that two runs share.

    ``observe`` reads a line of records.jsonl, as decoded JSON, into its case and its values in the order of
    ``measures``. A value of None means that the record has no such value; it is no failure. It gives None for a line
    about no case. ``collapsed`` gives the cases whose answers a report calls collapsed. ``stopped`` gives the cases
    that were decided before all planned calls; how many calls they got depends on their answers.

    ``named`` lists the cases of a chunk's records before a run, without evaluating them. It gets the chunk and the
    parameters, and may repeat a case. Without it, evalq cannot list cases before a run.

    ``unrecorded`` gives the cases that a report says should have been answered, and that no record is about.

    ``collapse_p`` gives {case: p-value} for all cases with answers, by the rule that ended the case: how surprising
    the answers are if the case is not collapsed. ``diverse`` gives the cases that are decided not to be collapsed, each
    by itself. If both give nothing, a gate never decides on collapse.

    ``took`` names numbers of single answers without a scale, such as seconds. ``numbers`` declares the results that
    are no measures; a number that is not declared has no direction, and decides nothing.

    ``judged`` gives the results that rest on verdicts that may be wrong. ``not_compared`` names parameters that do not
    change an agent's task, such as labels that people added later: runs may differ in these. ``new_cases`` names a
    parameter that is set where the cases are other ones in each run, as of traces: its runs are one series.
    """

    measures: tuple[Measure, ...]
    observe: Callable[[Mapping[str, Any]], Observation | None]
    collapsed: Callable[[Mapping[str, Any]], list[str]] = _no_cases
    stopped: Callable[[Mapping[str, Any]], list[str]] = _no_cases
    named: Callable[[Batch, Any], Iterable[str]] | None = None
    judged: Callable[[Mapping[str, Any]], Judged | None] = _no_judged
    not_compared: tuple[str, ...] = ()
    collapse_p: Callable[[Mapping[str, Any]], dict[str, float] | None] = _no_p_values
    diverse: Callable[[Mapping[str, Any]], list[str]] = _no_cases
    new_cases: str = ""
    took: tuple[str, ...] = ()
    numbers: tuple[Number, ...] = ()
    unrecorded: Callable[[Mapping[str, Any]], list[str]] = _no_cases
