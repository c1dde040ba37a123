"""What of a report is watched over time: an evaluator's quality gauges, as declarations.

Nothing here knows who shows them. A `Metric` names a gauge and where in a report its values stand; `samples` reads
them out of the report. `suite`, `target` and `evaluator` label every gauge and are added by whoever exports it.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from evalq.evalcore.model.canonical import Json

__all__ = ["LABELS", "Metric", "Sample", "Scope", "Unit", "samples", "whole"]

Unit = Literal["share", "points", "count", "seconds", "bits", "number", "state"]
"""share: 0 to 1; points: a score on its evaluator's own scale; state: a number that `Metric.states` puts into words."""

LABELS: Mapping[str, str] = {
    "agent": "the agent that gave the output",
    "band": "the band a score falls into",
    "case": "the case",
    "check": "the kind of check",
    "component": "the component of a score",
    "input": "the input, where each has a result of its own",
    "issue": "what was wrong, one of few texts",
    "judge": "the target that judged",
    "level": "the agent's level",
    "patterns": "the set of patterns",
    "question": "the question asked of a record",
    "reading": "which reading of the rule",
    "round": "the round",
    "score": "the score",
    "signal": "the danger signal",
    "tag": "the tag of cases",
}
"""Labels a metric may have: sets that an evaluation keeps small. Never a run, a record or a message."""

Scope = Callable[[Mapping[str, Json]], Iterable[tuple[dict[str, str], Json]]]
"""From a report to the parts of it that a path is followed in, each with the labels that tell it from the others."""

_NAME = re.compile(r"evalq_[a-z0-9_]*[a-z0-9]")
_STEP = re.compile(r"(?P<key>[^.{}\[\]]+)?(?:\{(?P<each>\w+)\}|\[(?P<of>[\w,]+)\])?")


class Sample(msgspec.Struct, frozen=True, order=True):
    """One value of a metric: ``labels`` in the metric's own order of them."""

    metric: str
    labels: tuple[str, ...]
    value: float


def whole(report: Mapping[str, Json]) -> Iterator[tuple[dict[str, str], Json]]:
    """The scope of most metrics: all of ``results``."""
    yield {}, report["results"]


class Metric(msgspec.Struct, frozen=True):
    """A gauge: its name in Prometheus' form, with ``evalq_`` and the evaluator in front, and where its values stand.

    ``path`` is of keys and dots from ``results`` on. ``{level}`` in place of a key takes every key of an object and
    makes it the label; ``[agent,case]`` behind a key takes every element of a list, and those keys of it as labels.
    What is missing or null has no sample; false and true are 0 and 1. ``states`` gives numbers to texts: (text,
    number). Of more than ``most`` samples the highest are kept. ``recent`` says of how many runs the values are shown
    side by side.
    """

    name: str
    help: str
    unit: Unit
    path: str
    labels: tuple[str, ...] = ()
    states: tuple[tuple[str, float], ...] = ()
    scope: Scope = whole
    most: int = 0
    recent: int = 0

    def __post_init__(self) -> None:
        """A declaration that cannot be exported is a mistake of its writer, found when it is imported."""
        unknown = set(self.labels) - set(LABELS)
        if not _NAME.fullmatch(self.name) or unknown:
            raise ValueError(f"metric {self.name!r}: a wrong name, or labels that are not allowed: {sorted(unknown)}")
        if (self.unit == "state") != bool(self.states):
            raise ValueError(f"metric {self.name}: states go with the unit 'state', and only with it")

    def samples(self, report: Mapping[str, Json]) -> list[Sample]:
        """The values in a report, sorted by labels."""
        found = (
            Sample(self.name, tuple(labels[name] for name in self.labels), value)
            for given, part in self.scope(report)
            for labels, leaf in _follow(part, self.path.split("."), given)
            if (value := self._number(leaf)) is not None
        )
        # By labels, too: which of several equal values are kept must not depend on their order in the report.
        return sorted(heapq.nlargest(self.most, found, key=lambda s: (s.value, s.labels)) if self.most else found)

    def _number(self, leaf: Json) -> float | None:
        if isinstance(leaf, str):
            return dict(self.states).get(leaf)
        return float(leaf) if isinstance(leaf, bool | int | float) else None


def samples(metrics: Iterable[Metric], report: Mapping[str, Json]) -> list[Sample]:
    """What all ``metrics`` show of a report (report.json's content)."""
    return [sample for metric in metrics for sample in metric.samples(report)]


def _follow(value: Json, steps: list[str], labels: dict[str, str]) -> Iterator[tuple[dict[str, str], Json]]:
    """(labels, leaf) of every place that the steps lead to."""
    if not steps:
        yield labels, value
        return
    step = _STEP.fullmatch(steps[0])
    if step is None:
        raise ValueError(f"{steps[0]!r} is no step of a path: key, {{label}} or key[label,...]")
    rest, key, each, of = steps[1:], step["key"], step["each"], step["of"]
    if key is not None:
        value = value.get(key) if isinstance(value, Mapping) else None
    if each is not None:
        for name, inner in value.items() if isinstance(value, Mapping) else ():
            yield from _follow(inner, rest, {**labels, each: str(name)})
    elif of is not None:
        for inner in value if isinstance(value, list) else ():
            yield from _follow(inner, rest, {**labels, **{name: str(inner[name]) for name in of.split(",")}})
    elif value is not None:
        yield from _follow(value, rest, labels)
