"""Metrics: the numbers of a report to watch over time, and how dashboards draw them."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from evalq.evalcore.model.canonical import Json

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
"""The labels that a metric may have, each with few values: never a run, a record or a message."""

Scope = Callable[[Mapping[str, Json]], Iterable[tuple[dict[str, str], Json]]]
"""Maps a report to the parts in which to follow a path, each with its labels."""

_NAME = re.compile(r"evalq_[a-z0-9_]*[a-z0-9]")
_STEP = re.compile(r"(?P<key>[^.{}\[\]]+)?(?:\{(?P<each>\w+)\}|\[(?P<of>[\w,]+)\])?")


class MetricSample(msgspec.Struct, frozen=True, order=True):
    """One value of a metric, with ``labels`` in the metric's order."""

    metric: str
    labels: tuple[str, ...]
    value: float


def whole(report: Mapping[str, Json]) -> Iterator[tuple[dict[str, str], Json]]:
    """The scope of most metrics: all of ``results``."""
    yield {}, report["results"]


class Metric(msgspec.Struct, frozen=True):
    """A gauge: its name in Prometheus' form, beginning with ``evalq_`` and the evaluator, and the path to its values.

    ``path`` has keys and dots from ``results`` on. ``{level}`` in place of a key takes every key of an object as the
    label; ``[agent,case]`` after a key takes every element of a list, with these keys of it as labels. A missing value
    or null has no sample; false and true are 0 and 1. ``states`` gives numbers to texts: (text, number). If there are
    more than ``most`` samples, the highest stay. ``recent`` is the number of runs to show side by side.
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
        """Check the declaration at import, since only its author can correct it."""
        unknown = set(self.labels) - set(LABELS)
        if not _NAME.fullmatch(self.name) or unknown:
            raise ValueError(f"metric {self.name!r}: a wrong name, or labels that are not allowed: {sorted(unknown)}")
        if (self.unit == "state") != bool(self.states):
            raise ValueError(f"metric {self.name}: states go with the unit 'state', and only with it")

    def samples(self, report: Mapping[str, Json]) -> list[MetricSample]:
        """The values in a report, sorted by labels."""
        samples = (
            MetricSample(self.name, tuple(labels[name] for name in self.labels), value)
            for scope_labels, part in self.scope(report)
            for labels, leaf in _follow(part, self.path.split("."), scope_labels)
            if (value := self._number(leaf)) is not None
        )
        # Order by labels, too: the choice among equal values must not depend on their order in the report.
        return sorted(heapq.nlargest(self.most, samples, key=lambda s: (s.value, s.labels)) if self.most else samples)

    def _number(self, leaf: Json) -> float | None:
        if isinstance(leaf, str):
            return dict(self.states).get(leaf)
        return float(leaf) if isinstance(leaf, bool | int | float) else None


def samples(metrics: Iterable[Metric], report: Mapping[str, Json]) -> list[MetricSample]:
    """The samples of all ``metrics`` in a report (report.json's content)."""
    return [sample for metric in metrics for sample in metric.samples(report)]


def _follow(value: Json, steps: list[str], labels: dict[str, str]) -> Iterator[tuple[dict[str, str], Json]]:
    """(labels, leaf) for every value to which the steps lead."""
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


# Panels for an evaluator's gauges: declarations from which a dashboard is generated.


class Threshold(msgspec.Struct, frozen=True):
    """The state of values from ``value`` on (None: from the lowest): good, doubtful or bad."""

    value: float | None
    state: Literal["good", "doubtful", "bad"]


class Plot(msgspec.Struct, frozen=True):
    """A metric in a panel: one series for each value of the labels in ``by``, combined over the other labels.

    ``where`` selects series by (label, value) pairs. ``legend`` names a series, with ``{label}`` for a label's value.
    ``recent`` draws the values of the last runs (`Metric.recent`) instead of the newest. ``beside`` is a metric: if
    ``metric`` has no value for one of its label sets, the panel shows "not applicable". A plot whose metric has another
    unit than its panel needs ``thresholds``.
    """

    metric: str
    by: tuple[str, ...] = ()
    together: Literal["mean", "min", "max", "sum"] = "mean"
    where: tuple[tuple[str, str], ...] = ()
    legend: str = ""
    recent: bool = False
    beside: str = ""
    thresholds: tuple[Threshold, ...] = ()


class Panel(msgspec.Struct, frozen=True):
    """One panel. ``kind``: stat (a number), gauge (one on its range), bars, lines (over time), table, status (words).

    ``thresholds`` begin with the one from None and rise; ``range`` bounds the values. ``overview`` panels are on the
    first page, too. ``width`` is in columns of 24. ``words`` (number, text) replaces the report's words for a state, if
    these would mislead under the panel's title.
    """

    title: str
    description: str
    unit: Unit
    kind: Literal["stat", "gauge", "bars", "lines", "table", "status"]
    plots: tuple[Plot, ...]
    thresholds: tuple[Threshold, ...] = ()
    range: tuple[float, float] | None = None
    overview: bool = False
    width: int = 8
    words: tuple[tuple[float, str], ...] = ()


def panel_faults(evaluator: str, metrics: Iterable[Metric], panels: Iterable[Panel]) -> Iterator[str]:
    """A sentence for each fault in an evaluator's declarations."""
    declared: dict[str, Metric] = {}
    prefix = f"evalq_{evaluator.replace('-', '_')}_"
    for metric in metrics:
        if not metric.name.startswith(prefix):
            yield f"{metric.name} does not begin with {prefix}"
        if metric.name in declared:
            yield f"{metric.name} is declared twice"
        declared[metric.name] = metric
    titles: set[str] = set()
    for panel in panels:
        yield from (f"panel {panel.title!r}: {fault}" for fault in _faults(panel, declared))
        if panel.title in titles:
            yield f"panel {panel.title!r} is declared twice"
        titles.add(panel.title)


def _faults(panel: Panel, declared: dict[str, Metric]) -> Iterator[str]:
    if not (panel.title and panel.description and panel.plots and 1 <= panel.width <= 24):
        yield "it needs a title, a description, a plot and a width of 1 to 24"
    for thresholds in (panel.thresholds, *(plot.thresholds for plot in panel.plots)):
        bounds = [threshold.value for threshold in thresholds]
        rising = [bound for bound in bounds[1:] if bound is not None]
        if bounds and (bounds[0] is not None or len(rising) < len(bounds) - 1 or rising != sorted(rising)):
            yield "thresholds begin with one from None and rise"
    for plot in panel.plots:
        metric = declared.get(plot.metric)
        if metric is None:
            yield f"no metric {plot.metric}"
            continue
        unknown = {*plot.by, *(name for name, _ in plot.where)} - _labels(metric)
        if unknown:
            yield f"{plot.metric} has no label {', '.join(sorted(unknown))}"
        if plot.beside and not {*plot.by, *(name for name, _ in plot.where)} <= _labels(declared.get(plot.beside)):
            yield f"{plot.beside} is not there, or lacks the labels of {plot.metric}"
        if {number for number, _ in panel.words} - {number for _, number in metric.states}:
            yield f"words for numbers that are no state of {plot.metric}"
        if plot.recent and not metric.recent:
            yield f"{plot.metric} is not kept for the last runs"
        if metric.unit != panel.unit and not (panel.kind == "stat" and plot.legend and plot.thresholds):
            yield f"its unit is {panel.unit}, that of {plot.metric} is {metric.unit}"


def _labels(metric: Metric | None) -> set[str]:
    return {*metric.labels, "suite", "target"} if metric else set()
