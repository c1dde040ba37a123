"""A page for each evaluator, made of nothing but what it declares."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.views.metrics import LABELS
from grafana import drift
from grafana.layout import Row
from grafana.page import ENDED, Page, Variable
from grafana.queries import VARIABLES, view
from grafana.view import View

OWN_ROW = 4
"""An evaluator with as many panels on the overview has a row of its own there."""

RUN_CHOICE = (
    Variable("suite", ENDED, "What --suite named."),
    Variable("target", ENDED, "The agent that live calls went to. Recorded outputs have none, and show under All."),
)


def page(evaluator: Evaluator[Any, Any]) -> Page:
    """The evaluator's own page: what stands on the overview first, then the rest."""
    metrics = {metric.name: metric for metric in evaluator.views.metrics}
    own = [
        Variable(label, next(name for name, metric in metrics.items() if label in metric.labels), LABELS[label])
        for label in VARIABLES
        if any(label in metric.labels for metric in metrics.values())
    ]
    held = f'{ENDED}{{evaluator="{evaluator.name}"}}'
    # Numbers of several suites together are true of none of them.
    choice = [Variable(each.label, held, each.description, one=each.label == "suite") for each in RUN_CHOICE]
    names = [variable.label for variable in (*choice, *own)]
    shown = [(panel.overview, view(panel, metrics, names)) for panel in evaluator.views.panels]
    first, rest = (tuple(drawn for glance, drawn in shown if glance is of) for of in (True, False))
    together = (("The newest and the last runs", first + rest),)
    named = (("At a glance", first), ("In detail", rest)) if len(first) >= OWN_ROW else together
    rows = (*(Row(title, views) for title, views in named), *_drift(evaluator, names))
    return Page(
        evaluator.name,
        f"evalq: {evaluator.name}",
        f"The newest and the last runs of every suite of {evaluator.name}.",
        rows,
        (*choice, *own),
        since="now-7d",
        refresh="1m",
        evaluator=evaluator.name,
    )


def _drift(evaluator: Evaluator[Any, Any], names: Container[str]) -> Iterator[Row]:
    if evaluator.measures is not None:
        yield drift.row(names, evaluator.name)


def at_a_glance(evaluator: Evaluator[Any, Any], link: str) -> tuple[View, ...]:
    """What of an evaluator stands on the overview. ``link``: its page."""
    metrics = {metric.name: metric for metric in evaluator.views.metrics}
    names = [variable.label for variable in RUN_CHOICE]
    return tuple(view(panel, metrics, names, link) for panel in evaluator.views.panels if panel.overview)
