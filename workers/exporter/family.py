"""A metric of the exporter: its name, help, labels and the source of its values.

Label sets stay small: users name suites and targets, so their number is capped (``max_suites``). Further ones count as
`OTHER`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from evalq.evalcore.views.metrics import Metric
from evalq.workers.exporter.series import Histogram, Series, Together
from evalq.workers.ledger.sweep_model import SECONDS
from evalq.workers.monitor import Snapshot

__all__ = [
    "LEDGER",
    "RECENT_LABEL",
    "RUN_LABELS",
    "SECONDS",
    "MetricFamily",
    "counter",
    "gauge",
    "histogram",
    "quality",
]

LEDGER = "ledger"
"""The label of every series with its ledger's name, since one Prometheus may watch several (`ledger_name`)."""

RUN_LABELS = ("suite", "target")
"""The first labels of every evaluator's gauge."""

RECENT_LABEL = "position"
"""The label of a run in ``<name>_recent``: 1 is the newest."""

Group = Literal["work", "fleet", "server", "runs", "calls", "traces", "exporter"]

_Read = Callable[[Snapshot], list[Series]]


class MetricFamily(msgspec.Struct, frozen=True):
    """A metric: its full name, type, one sentence of help, labels, and a histogram's bucket bounds.

    ``read`` reads its series from a snapshot, ``spread`` those of a histogram; the collector fills a metric with
    neither. ``together`` says how series beyond the cap become one.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram", "info"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    group: Group = "work"
    read: _Read | None = None
    spread: Callable[[Snapshot], list[Histogram]] | None = None
    together: Together = "sum"


def counter(name: str, read: _Read, text: str, *labels: str, group: Group = "work") -> MetricFamily:
    """A counter in the ledger or of its server."""
    return MetricFamily(f"evalq_{name}_total", "counter", text, labels, group=group, read=read)


def gauge(
    name: str, read: _Read | None, text: str, *labels: str, group: Group = "work", together: Together = "sum"
) -> MetricFamily:
    """A value that goes up and down."""
    return MetricFamily(f"evalq_{name}", "gauge", text, labels, group=group, read=read, together=together)


def histogram(
    name: str, spread: Callable[[Snapshot], list[Histogram]], text: str, label: str, group: Group = "work"
) -> MetricFamily:
    """Times, in the ledger's buckets."""
    return MetricFamily(f"evalq_{name}_seconds", "histogram", text, (label,), SECONDS, group, spread=spread)


def quality(metric: Metric) -> list[MetricFamily]:
    """An evaluator's gauge in the exporter: of the newest run, and (`Metric.recent`) of the last ones."""
    labels = (*RUN_LABELS, *metric.labels)
    shown = [MetricFamily(metric.name, "gauge", metric.help, labels, group="runs")]
    if metric.recent:
        text = f"{metric.help} Of the last {metric.recent} runs, the newest at 1."
        shown.append(MetricFamily(f"{metric.name}_recent", "gauge", text, (*labels, RECENT_LABEL), group="runs"))
    return shown
