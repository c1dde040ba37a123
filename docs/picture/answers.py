"""What a panel's queries answer, as rows and series: Grafana's transformations of the pages, done here again."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from evalq.workers.exporter.family import RECENT_LABEL
from grafana.queries import SERIES


class Answered(Protocol):
    """A series of a Prometheus' answer: labels, and (seconds since 1970, value)."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Without the metric's name."""

    @property
    def points(self) -> Sequence[tuple[float, float]]:
        """Numbers only."""


class Source(msgspec.Struct, frozen=True):
    """How answers are had: an instant's, and those of the whole time; ``marks`` are times to be marked on lines."""

    now: Callable[[str], Sequence[Answered]]
    over: Callable[[str], Sequence[Answered]]
    marks: tuple[float, ...] = ()


class Value(msgspec.Struct, frozen=True):
    """A named number; None where there is none."""

    name: str
    value: float | None


def _name(target: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    legend = target.get("legendFormat", "")
    if not legend:
        return ", ".join(labels.values())
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), legend).strip()


def _last(series: Answered) -> float | None:
    return series.points[-1][1] if series.points else None


def marked(page: Mapping[str, Any], source: Source) -> Source:
    """The source with the page's marks whose time is a series' value."""
    asked = [each["expr"] for each in page["annotations"]["list"] if each["enable"] and each.get("useValueForTime")]
    times = {value / 1000 for expr in asked for each in source.over(expr) for _, value in each.points}
    return msgspec.structs.replace(source, marks=tuple(sorted(times)))


def values(panel: Mapping[str, Any], source: Source) -> list[Value]:
    """One number for each series, by name."""
    asked = [(target, each) for target in panel["targets"] for each in source.now(target["expr"])]
    return [Value(_name(target, each.labels), _last(each)) for target, each in asked]


def formats(panel: Mapping[str, Any], name: str) -> dict[str, Any]:
    """How a panel shows the value of that name: its defaults, and what overrides them for the name."""
    field = panel["fieldConfig"]
    overrides = [each["properties"] for each in field["overrides"] if each["matcher"]["options"] == name]
    return {**field["defaults"], **{each["id"]: each["value"] for own in overrides for each in own}}


def lines(panel: Mapping[str, Any], source: Source) -> list[tuple[str, Sequence[tuple[float, float]]]]:
    """(name, points) of each series over time."""
    return [
        (_name(target, each.labels), each.points)
        for target in panel["targets"]
        for each in source.over(target["expr"])
        if each.points
    ]


def matrix(panel: Mapping[str, Any], source: Source) -> tuple[list[str], dict[str, list[float]]]:
    """Positions, the oldest run first, and for each series its value at each (NaN where there is none)."""
    (target,) = panel["targets"]
    found: dict[str, dict[str, float]] = {}
    for each in source.now(target["expr"]):
        value = _last(each)
        if value is not None:
            found.setdefault(each.labels.get(SERIES, ""), {})[each.labels[RECENT_LABEL]] = value
    positions = sorted({position for row in found.values() for position in row if position.isdigit()}, key=int)[::-1]
    return positions, {name: [row.get(each, math.nan) for each in positions] for name, row in sorted(found.items())}


Row = tuple[list[str], list[float | None]]
"""Labels, and the numbers behind them."""


def table(panel: Mapping[str, Any], source: Source) -> tuple[list[str], list[str], list[Row]]:
    """(names of labels, names of values, rows of both)."""
    rows: dict[tuple[tuple[str, str], ...], list[float | None]] = {}
    targets = panel["targets"]
    for index, target in enumerate(targets):
        for each in source.now(target["expr"]):
            key = tuple(sorted(each.labels.items()))
            rows.setdefault(key, [None] * len(targets))[index] = _last(each)
    renamed = next(step["options"]["renameByName"] for step in panel["transformations"] if step["id"] == "organize")
    (sort,) = panel["options"]["sortBy"]
    at = list(renamed.values()).index(sort["displayName"])
    heads = list(dict.fromkeys(name for key in rows for name, _ in key))
    listed = [([dict(key).get(name, "") for name in heads], numbers) for key, numbers in sorted(rows.items())]
    listed.sort(key=lambda row: (row[1][at] is None, row[1][at] or 0.0), reverse=sort["desc"])
    return heads, list(renamed.values()), listed
