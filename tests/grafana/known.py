"""What there is to ask for: every series that Prometheus can have, with its labels."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from evalq.evalcore.contract import plugins
from evalq.workers.exporter.catalogue import FAMILIES
from evalq.workers.exporter.family import LEDGER, MetricFamily, quality
from tests.grafana.promql import parsed, result_labels

TOP = Path(__file__).parents[2]
RULES = sorted((TOP / "deploy" / "prometheus" / "rules").glob("*.yml"))

_SCRAPE = frozenset({"job", "instance", LEDGER})
_OWN = {  # what Prometheus itself makes
    "ALERTS": frozenset(
        {"alertname", "alertstate", "severity", "suite", "target", "queue", "evaluator", "measure", LEDGER}
    ),
}


def families() -> list[MetricFamily]:
    """The catalogue: the fleet's metrics, and the gauges of all evaluators."""
    own = [each for name in plugins.names() for metric in plugins.get(name).views.metrics for each in quality(metric)]
    return [*FAMILIES, *own]


def exported() -> dict[str, frozenset[str]]:
    """Series of the exporter: a histogram has three."""
    series: dict[str, frozenset[str]] = {}
    for family in families():
        labels = frozenset(family.labels) | _SCRAPE
        if family.kind == "histogram":
            series |= {f"{family.name}_{part}": labels for part in ("sum", "count")}
            series[f"{family.name}_bucket"] = labels | {"le"}
        else:
            series[family.name] = labels
    return series


def groups(files: list[Path] = RULES) -> Iterator[dict[str, Any]]:
    """Every rule of the files."""
    for file in files:
        yield from _rules(file)


@cache
def _rules(file: Path) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(file.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


def recordings() -> dict[str, str]:
    """Names and expressions of recording rules, in the order in which they are evaluated."""
    return {rule["record"]: rule["expr"] for rule in groups() if "record" in rule}


def alerts() -> dict[str, dict[str, Any]]:
    """Alerting rules by name."""
    return {rule["alert"]: rule for rule in groups() if "alert" in rule}


@cache
def known() -> dict[str, frozenset[str]]:
    """Every series with its labels, recorded ones included. Raises Faulty where a recording asks for what is not."""
    series = {**_OWN, **exported()}
    for name, expr in recordings().items():
        series[name] = result_labels(parsed(expr), series) or frozenset()
    return series
