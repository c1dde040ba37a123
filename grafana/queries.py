"""PromQL for an evaluator's plots, held to what the page's variables chose."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping

from evalq.evalcore.views.metrics import Metric, Panel, Plot
from evalq.workers.exporter.family import LEDGER, RECENT_LABEL, RUN_LABELS
from grafana.view import COUNT, SECONDS, SHARE, Query, Unit, View

VARIABLES = (*RUN_LABELS, "level", "agent", "input")
"""Labels that a page offers a choice of, where its metrics have them."""

SERIES = "series"
"""The label that names a bar's colour among those of the last runs."""

_TOGETHER = {"mean": "avg", "min": "min", "max": "max", "sum": "sum"}
_HEIGHTS = {"stat": 6, "gauge": 6, "status": 6, "bars": 8, "lines": 8, "table": 8}


def chosen(labels: Iterable[str], variables: Container[str], **fixed: str) -> str:
    """A selector: fixed labels, and those that the page has variables for."""
    held = [f'{name}="{value}"' for name, value in fixed.items()]
    held += [f'{name}=~"${name}"' for name in labels if name in variables and name not in fixed]
    return "{" + ",".join(held) + "}" if held else ""


_SERIES = re.compile(r"\b(evalq(?:_|:\w+:)\w+)(\{)?")
_OF_ALL = ("evalq:alerts:none",)
"""Recorded without a ledger: it only says that the rules are evaluated."""


def of_ledger(expr: str) -> str:
    """``expr`` with every series of evalq held to the ledger that the page's variable chose."""

    def held(found: re.Match[str]) -> str:
        name, more = found.groups()
        return found[0] if name in _OF_ALL else f'{name}{{{LEDGER}="${LEDGER}"' + ("," if more else "}")

    return _SERIES.sub(held, expr)


def view(panel: Panel, metrics: Mapping[str, Metric], variables: Container[str], link: str = "") -> View:
    """A declared panel with its queries, on a page with these variables. ``link``: the page with more."""
    recent = any(plot.recent for plot in panel.plots)
    if recent:
        parts = [_recent(plot, metrics[plot.metric], variables) for plot in panel.plots]
        queries: tuple[Query, ...] = (Query("\nor\n".join(parts)),)
    else:
        queries = tuple(_newest(plot, metrics[plot.metric], variables, panel) for plot in panel.plots)
    states = {number: text for plot in panel.plots for text, number in metrics[plot.metric].states}
    words = {**states, **dict(panel.words)}
    return View(
        panel.title,
        panel.description,
        unit(panel.unit, panel.range),
        "recent" if recent else panel.kind,
        queries,
        panel.thresholds,
        panel.range,
        tuple(sorted(words.items())),
        panel.width,
        _HEIGHTS[panel.kind],
        link,
        by_suite=panel.kind != "table" and all("suite" in plot.by for plot in panel.plots) and not recent,
    )


def unit(named: str, within: tuple[float, float] | None) -> Unit:
    """How Grafana writes numbers of that unit which lie within that range."""
    most = within[1] if within else 0
    return {
        "share": SHARE,
        "points": Unit(f"suffix:of {most:g}", 2) if most > 1 else Unit("short", 2),
        "count": COUNT,
        "seconds": SECONDS,
        "bits": Unit("suffix:bits", 2),
        "number": Unit("short", 2),
        "state": Unit("none"),
    }[named]


def _newest(plot: Plot, metric: Metric, variables: Container[str], panel: Panel) -> Query:
    held = chosen((*RUN_LABELS, *metric.labels), variables, **dict(plot.where))
    expr = _put_together(plot, plot.metric, held, plot.by)
    if plot.beside:
        others = _put_together(plot, plot.beside, held, plot.by)
        # NaN keeps a label set on the panel, as "N/A", where the metric has no value for it.
        expr = f"{expr}\nor\n{others} * NaN"
    legend = plot.legend or (metric.name.split("_", 2)[2].replace("_", " ") if panel.kind == "table" else "")
    own = unit(metric.unit, None) if metric.unit != panel.unit else None
    return Query(expr, re.sub(r"\{(\w+)\}", r"{{\1}}", legend), own, plot.thresholds)


def _recent(plot: Plot, metric: Metric, variables: Container[str]) -> str:
    held = chosen((*RUN_LABELS, *metric.labels), variables, **dict(plot.where))
    expr = _put_together(plot, f"{plot.metric}_recent", held, (*plot.by, RECENT_LABEL))
    tail = re.sub(r"\{\w+\}", "", plot.legend).strip()
    joined = ", ".join(f'"{name}"' for name in plot.by)
    # Bars are drawn from one table, whose columns are the values of a single label.
    expr = f'label_join({expr}, "{SERIES}", " ", {joined})' if plot.by else expr
    return f'label_replace({expr}, "{SERIES}", "$1 {tail}", "{SERIES}", "(.*)")' if tail else expr


def _put_together(plot: Plot, name: str, held: str, by: tuple[str, ...]) -> str:
    grouped = f" by ({', '.join(by)}) " if by else ""
    return f"{_TOGETHER[plot.together]}{grouped}({name}{held})"
