"""Everything that pages, rules and alerts ask, as Prometheus can be asked it; and what has no answer in such a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import promql_parser as promql

from tests.grafana import checks
from tests.grafana.known import alerts, recordings
from tests.grafana.pages import PAGES
from tests.grafana.promql import parsed

_FILTERS = ("and", "or", "unless", ">", "<", ">=", "<=", "==", "!=")


class Question(msgspec.Struct, frozen=True):
    """An expression, who asks it, and whether over time."""

    where: str
    expr: str
    over_time: bool


def spelled(expr: str, rate: str, span: str) -> str:
    """The expression as Grafana would send it with All chosen everywhere."""
    expr = expr.replace("$__rate_interval", rate).replace("$__range", span)
    return re.sub(r'=~?"\$[A-Za-z]\w*"', '=~".*"', expr)


def atoms(node: Any) -> Iterator[str]:
    """What an alert compares and combines, each part by itself: an alert that is silent has answers too."""
    if isinstance(node, promql.ParenExpr):
        yield from atoms(node.expr)
    elif isinstance(node, promql.BinaryExpr) and str(node.op) in _FILTERS:
        yield from atoms(node.lhs)
        yield from atoms(node.rhs)
    elif not isinstance(node, promql.NumberLiteral):
        yield str(node)


def questions(rate: str = "20s", span: str = "1h") -> Iterator[Question]:
    """Of each panel, annotation and variable of each page, of each recording rule and each alert."""
    for uid, page in PAGES.items():
        lines = {f"panel {panel['title']!r}" for panel in checks.panels(page) if panel["type"] == "timeseries"}
        for where, expr, _ in checks.expressions(page):
            yield Question(f"{uid}: {where}", spelled(expr, rate, span), where in lines)
    for name, expr in recordings().items():
        yield Question(f"rule {name}", expr, over_time=True)
    for name, rule in alerts().items():
        for atom in atoms(parsed(rule["expr"])):
            # One late scrape makes a series absent for a second; the alert waits that out, and this asks once.
            yield Question(f"alert {name}", atom, over_time=not atom.startswith("absent("))


SILENT: dict[str, str] = {
    r"'Divergent answers'": "evaluators are pure: no answer came again and differed",
    r"'(Votes of judges|Cost of judges|Pass rate by plain)": "no check of the sample asks a judge",
    r"'(Enhanced|Light) VS'.*evalq_vs_level_self_critique": "only full agents give a self-critique",
    r"'Light VS'.*evalq_vs_level_t_score_diversity": "light agents give no T-scores",
    r"^rule evalq:an_hour_ago:missing": "nobody had looked at the ledger more than an hour before",
    r"EvalqExporterDown.*absent\(evalq_ledger_up": "the exporter is there",
}
"""What is asked and has no answer in such a run: a regular expression of its place and expression, and why."""
