"""A page for each evaluator, made of nothing but what it declares."""

from __future__ import annotations

from typing import Any

from evalcore.evaluator import Evaluator
from evalcore.metrics import LABELS
from grafana.layout import Row
from grafana.page import ENDED, Page, Variable
from grafana.queries import VARIABLES, view
from grafana.view import View

__all__ = ["RUN_CHOICE", "at_a_glance", "page"]

RUN_CHOICE = (
    Variable("suite", ENDED, "What --suite named."),
    Variable("target", ENDED, "The agent that live calls went to. Recorded outputs have none, and show under All."),
)


def page(evaluator: Evaluator[Any, Any]) -> Page:
    """The evaluator's own page: what stands on the overview first, then the rest."""
    metrics = {metric.name: metric for metric in evaluator.metrics}
    own = [
        Variable(label, next(name for name, metric in metrics.items() if label in metric.labels), LABELS[label])
        for label in VARIABLES
        if any(label in metric.labels for metric in metrics.values())
    ]
    held = f'{ENDED}{{evaluator="{evaluator.name}"}}'
    choice = [Variable(each.label, held, each.description) for each in RUN_CHOICE]
    names = [variable.label for variable in (*choice, *own)]
    views = {panel.title: (panel, view(panel, metrics, names)) for panel in evaluator.panels}
    rows = [
        Row(title, tuple(drawn for panel, drawn in views.values() if panel.overview == first))
        for title, first in (("At a glance", True), ("In detail", False))
    ]
    return Page(
        evaluator.name,
        f"evalq: {evaluator.name}",
        f"The newest and the last runs of every suite of {evaluator.name}.",
        tuple(row for row in rows if row.views),
        (*choice, *own),
        since="now-7d",
        refresh="1m",
        evaluator=evaluator.name,
    )


def at_a_glance(evaluator: Evaluator[Any, Any], link: str) -> tuple[View, ...]:
    """What of an evaluator stands on the overview. ``link``: its page."""
    metrics = {metric.name: metric for metric in evaluator.metrics}
    names = [variable.label for variable in RUN_CHOICE]
    return tuple(view(panel, metrics, names, link) for panel in evaluator.panels if panel.overview)
