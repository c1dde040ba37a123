"""How an evaluator's gauges are to be looked at: panels, as declarations that a dashboard is generated from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from evalq.evalcore.views.metrics import Metric, Unit

__all__ = ["Panel", "Plot", "Threshold", "panel_faults"]


class Threshold(msgspec.Struct, frozen=True):
    """From ``value`` on (None: from the lowest) what is shown is good, doubtful or bad."""

    value: float | None
    state: Literal["good", "doubtful", "bad"]


class Plot(msgspec.Struct, frozen=True):
    """What a panel draws: a metric, one series for each value of the labels in ``by``, the others put together.

    ``where`` holds the series to (label, value) pairs. ``legend`` names a series, with ``{label}`` for a label's value.
    ``recent`` draws the values of the last runs (`Metric.recent`) instead of the newest. ``beside`` is a metric whose
    label sets are shown as not applicable where ``metric`` has no value for them. A plot whose metric has another unit
    than its panel has ``thresholds`` of its own.
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

    ``thresholds`` begin with the one from None and rise; ``range`` is where values lie. ``overview`` panels are shown
    on the first page as well as on the evaluator's own. ``width`` is in columns of 24. ``words`` (number, text) puts a
    state into other words than the report's, where those would mislead under the panel's title.
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
    """What is wrong with an evaluator's declarations, a sentence each; nothing when they fit together."""
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
