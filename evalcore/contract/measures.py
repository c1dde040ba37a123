"""By which of its numbers an evaluator's runs are compared, case by case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec

from evalq.evalcore.records.batch import Batch

Direction = Literal["higher", "lower", "neither"]
"""Which change of a number is wanted."""


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
        """How a change of it is to be read, for a sentence about one; empty where more is better, as usual."""
        return "less of it is better, and a change below 0 is a rise" if self.better == "lower" else ""


def size(change: float, measure: Measure) -> str:
    """The size of a change of ``measure``, as people read it: points of a share, else the number."""
    return f"{100 * change:.1f} points" if measure.is_share else f"{change:.3g}"


def changed(change: float, measure: Measure) -> str:
    """A change of ``measure`` with its sign, as people read it: points of a share, else the number."""
    return f"{round(100 * change, 1) + 0.0:+.1f} points" if measure.is_share else signed(change)


def signed(value: float) -> str:
    """A change with its sign; none is told of what differs by the rounding of two sums alone."""
    return f"{round(value, 14) + 0.0:+.4g}"


def level(value: float, measure: Measure) -> str:
    """A value of ``measure``, as people read it: percent of a share, else the number."""
    return f"{100 * value:.1f} %" if measure.is_share else f"{value:.4g}"


def pass_measure(measures: Iterable[Measure]) -> Measure | None:
    """The measure that an answer passes or fails by; None where all are scores."""
    return next((each for each in measures if each.kind == "pass"), None)


class Number(msgspec.Struct, frozen=True):
    """A number of the results that is no measure, at ``path``: keys with dots between; "*" stands for any one key, and
    "**" at the end for all that follow.

    ``better`` says which change of it is wanted. ``kind`` says what it is, and so how a gate decides on it:

    - "fact": counted in this run, such as outputs that failed; it is compared with a bound as it is. ``holds_missing``:
      what is missing is counted in it. With ``of`` it is the largest of such values as an `Observation` has.
    - "mean", "total" and "quantile" (``share`` of the answers do not exceed it): over the values that an `Observation`
      has ``of`` that name. They vary by chance, and have intervals.
    - "estimate": anything else. Nothing says how far chance moves it, so that a gate decides nothing by it, unless the
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
        own, given = self.path.split("."), path.split(".")
        if own[-1] == "**":
            own, given = own[:-1], given[: len(own) - 1]
        return len(own) == len(given) and all(mine in ("*", key) for mine, key in zip(own, given, strict=True))


def number_at(path: str, numbers: Iterable[Number]) -> Number:
    """The first of ``numbers`` that is at ``path``; an estimate without a direction where none is."""
    return next((each for each in numbers if each.matches(path)), Number(path, kind="estimate"))


def spread_of(name: str, quantiles: Mapping[str, float], better: Direction = "lower") -> tuple[Number, ...]:
    """What stands under ``name`` in the results, where it is what answers took: mean, total, ``quantiles`` by key, and
    the largest one.
    """
    return (
        Number(f"{name}.mean", better, "mean", name),
        Number(f"{name}.total", better, "total", name),
        *(Number(f"{name}.{key}", better, "quantile", name, share) for key, share in quantiles.items()),
        Number(f"{name}.max", better, of=name),
        Number(f"{name}.*"),
    )


class Judged(msgspec.Struct, frozen=True):
    """What of a run's results rests on verdicts that may be wrong, such as those of models.

    ``labels`` has, for each such check, {case: (labels passed by judge and person, by the judge alone, by the person
    alone, by none, answers that the judge passed, all of its answers)}; ``outputs`` the same of whole answers, as
    judged and with all labels in place of the judges' verdicts. ``by`` is a digest of who judged, and how. ``apart``
    are the results, by the first key of their path, that rest on no such verdict.
    """

    labels: dict[str, dict[str, tuple[int, int, int, int, int, int]]]
    by: str = ""
    apart: tuple[str, ...] = ()
    outputs: dict[str, tuple[int, int, int, int, int, int]] = {}

    def rests(self, path: str) -> bool:
        """Whether what stands at ``path`` in the results rests on such verdicts."""
        return path.partition(".")[0] not in self.apart


class Observation(msgspec.Struct, frozen=True):
    """What one record says of its case: a value for each measure, or none at all where nothing was answered.

    An error, a dead record, an unanswered call: ``values`` is empty, and the record counts as missing. A ``repeat``
    that was answered before in its case and input is passed over; one that was missing is no more, once it is answered.
    ``label`` tells answers apart, where they can collapse. ``took`` has a number, or None, for each name that
    `Measures.took` has: what the answer took, from 0 on.
    """

    case: str
    values: tuple[float | None, ...] = ()
    repeat: int | None = None
    label: str | None = None
    took: tuple[float | None, ...] = ()


def _none(report: Mapping[str, Any]) -> list[str]:
    return []


def _nobody(report: Mapping[str, Any]) -> Judged | None:
    return None


def _unknown(report: Mapping[str, Any]) -> dict[str, float] | None:
    return None


class Measures(msgspec.Struct, frozen=True):
    """The measures of an evaluator; its cases are what two runs have in common.

    ``observe`` reads a line of records.jsonl, as decoded JSON, into its case and its values in the order of
    ``measures``. A value of None is one that this record does not have, and no failure. It gives None for a line
    about no case. ``collapsed`` gives the cases whose answers a report calls collapsed, ``stopped`` those that were
    asked less often than planned since they were decided: how often depends on what they answered.

    ``named`` gives the cases that a chunk's records are about without evaluating them, so that they can be listed
    before a run; it is given the chunk and the parameters, and may repeat a case. Without it nobody can tell.

    ``unrecorded`` gives the cases that a report says should have been answered, and that no record is about.

    ``collapse_p`` gives how surprising the answers to each case are if it is not collapsed, {case: p-value}, of all
    cases that have answers, by the rule that ended the case; ``diverse`` gives the cases that are decided not to be
    collapsed, each by itself. None of both: the evaluator cannot tell, and collapse is never decided.

    ``took`` names numbers of single answers without a scale, such as seconds, and ``numbers`` declares those of the
    results that are no measures; what it leaves out has no direction, and decides nothing.

    ``judged`` says what of a report rests on verdicts that may be wrong. ``beside`` are parameters that ask nothing
    else of an agent, such as labels that people gave afterwards: runs that differ by them alone are still comparable.
    """

    measures: tuple[Measure, ...]
    observe: Callable[[Mapping[str, Any]], Observation | None]
    collapsed: Callable[[Mapping[str, Any]], list[str]] = _none
    stopped: Callable[[Mapping[str, Any]], list[str]] = _none
    named: Callable[[Batch, Any], Iterable[str]] | None = None
    judged: Callable[[Mapping[str, Any]], Judged | None] = _nobody
    beside: tuple[str, ...] = ()
    collapse_p: Callable[[Mapping[str, Any]], dict[str, float] | None] = _unknown
    diverse: Callable[[Mapping[str, Any]], list[str]] = _none
    took: tuple[str, ...] = ()
    numbers: tuple[Number, ...] = ()
    unrecorded: Callable[[Mapping[str, Any]], list[str]] = _none
