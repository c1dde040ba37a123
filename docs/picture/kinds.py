"""Each kind of panel, drawn into a frame."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib as mpl
import matplotlib.font_manager
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, DateFormatter, date2num
from matplotlib.patches import Wedge

from docs.picture.answers import Source, Value, formats, lines, matrix, table, values
from docs.picture.words import colour, named, text

mpl.rcParams["font.family"] = [
    name for name in ("DejaVu Sans", "NanumGothic") if name in matplotlib.font_manager.get_font_names()
]  # the second has Korean letters: Debian's package fonts-nanum

_GREY = "#8a8a8a"
_ROWS = 9
_PALETTE = mpl.color_sequences["tab10"]


def _tiles(ax: Axes, panel: Mapping[str, Any], source: Source, now: float) -> None:
    """Numbers side by side, each with its name."""
    found = values(panel, source) or [Value("", None)]
    solid = panel["options"]["colorMode"] != "value"
    across = len(found) if len(found) <= 4 else math.ceil(math.sqrt(len(found)))
    down = math.ceil(len(found) / across)
    for index, each in enumerate(found):
        x, y = index % across / across, 1 - (index // across + 1) / down
        defaults = formats(panel, each.name)
        shade = colour(each.value, defaults)
        if solid:
            ax.add_patch(mpl.patches.Rectangle((x + 0.01, y + 0.02), 1 / across - 0.02, 1 / down - 0.04, color=shade))
        shown = text(each.value, defaults, now)
        size = min(20, 95 * _width(ax) / across / max(4, len(shown)), 26 * _height(ax) / down)
        label = _short(each.name, int(13 * _width(ax) / across)) if panel["options"]["textMode"] != "value" else ""
        at = x + 0.5 / across, y + (0.42 if label else 0.5) / down
        ax.text(*at, shown, ha="center", va="center", size=size, color="white" if solid else shade, weight="bold")
        name = x + 0.5 / across, y + 0.8 / down
        ax.text(*name, label, ha="center", va="center", size=8, color="white" if solid else _GREY)


def _gauge(ax: Axes, panel: Mapping[str, Any], source: Source, now: float) -> None:
    """Half a ring each."""
    found = values(panel, source) or [Value("", None)]
    defaults = panel["fieldConfig"]["defaults"]
    low, high = defaults.get("min", 0), defaults.get("max", 1)
    ratio = _width(ax) / _height(ax)
    ax.set_xlim(0, ratio * len(found))
    ax.set_ylim(0, len(found))
    for index, each in enumerate(found):
        x, y, r = ratio * (index + 0.5), len(found) * 0.3, min(0.42 * ratio, 0.62 * len(found))
        ax.add_patch(Wedge((x, y), r, 0, 180, width=0.28 * r, color="#e4e4e4"))
        if each.value is not None:
            share = min(1.0, max(0.0, (each.value - low) / (high - low)))
            shade = colour(each.value, defaults)
            ax.add_patch(Wedge((x, y), r, 180 - 180 * share, 180, width=0.28 * r, color=shade))
        ax.text(
            x,
            y + 0.12 * r,
            text(each.value, defaults, now),
            ha="center",
            size=min(15, 7 * _width(ax) / len(found)),
            weight="bold",
        )
        ax.text(x, 0.06 * len(found), _short(each.name, 26), ha="center", size=8, color=_GREY)


def _bars(ax: Axes, panel: Mapping[str, Any], source: Source, now: float) -> None:
    """A bar for each number, from the left."""
    found = values(panel, source)
    defaults = panel["fieldConfig"]["defaults"]
    if not found:
        return _nothing(ax, defaults)
    low = defaults.get("min", 0.0)
    high = defaults.get("max") or max((each.value or 0) for each in found) or 1.0
    names = 0.34
    for index, each in enumerate(found):
        y, tall = 1 - (index + 0.85) / len(found), 0.7 / len(found)
        share = max(0.0, min(1.0, ((each.value or 0) - low) / (high - low)))
        ax.barh(y, 0.5, tall, names, color="#ececec", align="edge")
        ax.barh(y, 0.5 * share, tall, names, color=colour(each.value, defaults), align="edge")
        ax.text(names - 0.01, y + tall / 2, _short(each.name, 30), ha="right", va="center", size=8)
        ax.text(0.99, y + tall / 2, text(each.value, defaults, now), ha="right", va="center", size=9, weight="bold")
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    return None


def _recent(ax: Axes, panel: Mapping[str, Any], source: Source, now: float) -> None:
    """Groups of bars, the newest run on the right."""
    positions, found = matrix(panel, source)
    defaults = panel["fieldConfig"]["defaults"]
    if not found:
        return _nothing(ax, defaults)
    _axes(ax, defaults)
    wide = 0.8 / len(found)
    for index, (name, row) in enumerate(found.items()):
        at = [place - 0.4 + wide * (index + 0.5) for place in range(len(positions))]
        ax.bar(at, row, wide * 0.92, label=_short(name, 40), color=_PALETTE[index % 10])
    ax.set_xticks(range(len(positions)), positions, size=7)
    ax.set_xlabel(defaults["custom"]["axisLabel"], size=7, color=_GREY, labelpad=1)
    return _finish(ax, defaults)


def _lines(ax: Axes, panel: Mapping[str, Any], source: Source, now: float) -> None:
    """Over time; thresholds are dashes."""
    found = lines(panel, source)
    defaults = panel["fieldConfig"]["defaults"]
    if not found:
        return _nothing(ax, defaults)
    _axes(ax, defaults)
    stacked = defaults.get("custom", {}).get("stacking", {}).get("mode") == "normal"
    if stacked:
        moments = sorted({at for _, points in found for at, _ in points})
        rows = [[dict(points).get(at, 0.0) for at in moments] for _, points in found]
        ax.stackplot(_dates(moments), rows, labels=[_short(name, 40) for name, _ in found], alpha=0.75)
    else:
        for index, (name, points) in enumerate(found):
            moments, heights = [at for at, _ in points], [value for _, value in points]
            ax.plot(_dates(moments), heights, label=_short(name, 40), color=_PALETTE[index % 10], linewidth=1.4)
    for step in defaults.get("thresholds", {}).get("steps", ()):
        if step["value"] is not None and defaults.get("custom", {}).get("thresholdsStyle"):
            ax.axhline(step["value"], color=named(step["color"]), linestyle="--", linewidth=0.8)
    for at in source.marks:
        ax.axvline(_dates([at])[0], color=named("blue"), linewidth=0.5, alpha=0.35)
    ax.xaxis.set_major_locator(AutoDateLocator(minticks=3, maxticks=6))
    ax.xaxis.set_major_formatter(DateFormatter("%H:%M"))
    return _finish(ax, defaults)


def _table(ax: Axes, panel: Mapping[str, Any], source: Source, now: float) -> None:
    """The first rows of it."""
    labels, heads, rows = table(panel, source)
    if not rows:
        return _nothing(ax, panel["fieldConfig"]["defaults"])
    kinds = [formats(panel, head) for head in heads]
    cells = [
        [_short(word, 44) for word in words]
        + [text(number, kind, now) for number, kind in zip(numbers, kinds, strict=True)]
        for words, numbers in rows
    ]
    titles = [*labels, *heads]
    widest = [max(len(each[column]) for each in [titles, *cells[:_ROWS]]) + 2 for column in range(len(titles))]
    x = 0.0
    for column, wide in enumerate(widest):
        ax.text(x, 0.96, titles[column], size=8, weight="bold", va="top")
        for row, cell in enumerate(cells[:_ROWS]):
            ax.text(x, 0.85 - row * 0.09, cell[column], size=8, va="top")
        x += wide / sum(widest)
    if len(cells) > _ROWS:
        ax.text(0, 0.85 - _ROWS * 0.09, f"and {len(cells) - _ROWS} more", size=8, va="top", color=_GREY)
    return None


def _nothing(ax: Axes, defaults: Mapping[str, Any]) -> None:
    ax.text(0.5, 0.5, text(None, defaults), ha="center", va="center", size=12, color=_GREY)


def _axes(ax: Axes, defaults: Mapping[str, Any]) -> None:
    ax.set_axis_on()
    ax.tick_params(labelsize=7, colors="#555555", length=2)
    ax.grid(visible=True, color="#e6e6e6", linewidth=0.6)
    ax.set_axisbelow(True)
    for side in ax.spines.values():
        side.set_visible(False)
    ax.yaxis.set_major_formatter(lambda value, _: text(value, {**defaults, "mappings": []}))


def _finish(ax: Axes, defaults: Mapping[str, Any]) -> None:
    """The range of the values, and the names of the series below."""
    if "min" in defaults:
        ax.set_ylim(defaults["min"], defaults.get("max", 1) * 1.02)
    else:
        ax.set_ylim(bottom=min(0.0, 1.05 * ax.dataLim.y0))
    handles, names = ax.get_legend_handles_labels()
    columns = max(1, min(5, int(_width(ax) * 9 / max(map(len, names)))))
    below, lines = (-0.2, 1) if ax.get_xlabel() else (-0.1, 2)
    shown = min(len(names), lines * columns)
    place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, below), "ncols": columns}
    ax.legend(handles[:shown], names[:shown], fontsize=7, frameon=False, **place)


def _dates(moments: list[float]) -> Any:
    return date2num([datetime.datetime.fromtimestamp(at, tz=datetime.UTC) for at in moments])


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _width(ax: Axes) -> float:
    return ax.get_position().width * ax.figure.get_figwidth()  # type: ignore[union-attr]  # axes here have one


def _height(ax: Axes) -> float:
    return ax.get_position().height * ax.figure.get_figheight()  # type: ignore[union-attr]  # axes here have one


KINDS: dict[str, Callable[[Axes, Mapping[str, Any], Source, float], None]] = {
    "stat": _tiles,
    "gauge": _gauge,
    "bargauge": _bars,
    "barchart": _recent,
    "timeseries": _lines,
    "table": _table,
}
"""Types of panels of the pages, and how each is drawn."""
