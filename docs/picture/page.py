"""A whole page as a picture: panels where their grid positions say, titles of rows between them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from PIL import Image

from docs.picture.answers import Source, marked
from docs.picture.kinds import KINDS
from grafana.layout import COLUMNS

_INCHES = 16.0
_ROW = 0.36
_DPI = 80
_COLOURS = 96


def save(page: Mapping[str, Any], source: Source, now: float, path: Path) -> None:
    """Draw a dashboard (its JSON) from answers into a PNG. ``now``: seconds since 1970."""
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in page["panels"])
    tall = (rows + 2) * _ROW
    source = marked(page, source)
    figure = Figure(figsize=(_INCHES, tall), dpi=_DPI, facecolor="#f4f5f5")
    FigureCanvasAgg(figure)
    figure.text(0.008, 1 - 1.1 * _ROW / tall, page["title"], size=15, weight="bold")
    figure.text(0.992, 1 - 1.1 * _ROW / tall, "drawn for the docs; not Grafana", size=8, color="#8a8a8a", ha="right")
    for panel in page["panels"]:
        at = panel["gridPos"]
        x, w = at["x"] / COLUMNS, at["w"] / COLUMNS
        h, y = at["h"] * _ROW / tall, 1 - (at["y"] + at["h"] + 1.8) * _ROW / tall
        if panel["type"] == "row":
            figure.text(x + 0.008, y + h * 0.25, panel["title"], size=11, weight="bold", color="#444444")
            continue
        _frame(figure, x, y, w, h)
        unit = _ROW / tall
        figure.text(x + 0.008, y + h - 0.75 * unit, panel["title"], size=9.5, weight="bold", va="center")
        axes = panel["type"] in ("timeseries", "barchart")
        left, low = (0.042, 1.75 * unit) if axes else (0.008, 0.25 * unit)
        ax = figure.add_axes((x + left, y + low, w - left - 0.01, h - low - 1.35 * unit))
        ax.set_axis_off()
        KINDS[panel["type"]](ax, panel, source, now)
    figure.savefig(path)
    Image.open(path).convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def _frame(figure: Figure, x: float, y: float, w: float, h: float) -> None:
    box = FancyBboxPatch(
        (x + 0.003, y + 0.003 * _INCHES / figure.get_figheight()),
        w - 0.006,
        h - 0.006 * _INCHES / figure.get_figheight(),
        boxstyle="square,pad=0",
        facecolor="white",
        edgecolor="#dddddd",
        transform=figure.transFigure,
        zorder=-1,
    )
    figure.patches.append(box)
