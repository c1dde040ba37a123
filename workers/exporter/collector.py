"""Prometheus families of a scrape, built from a snapshot by the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.core import Metric as PrometheusMetric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Timestamp

from evalq.evalcore.contract import plugins
from evalq.evalcore.version import __version__, code_version
from evalq.evalcore.views.metrics import Unit
from evalq.workers.exporter.catalogue import FAMILIES, family
from evalq.workers.exporter.family import LEDGER, MetricFamily, quality
from evalq.workers.exporter.series import (
    Series,
    Together,
    folded,
    newest_runs,
    newest_series,
    recent_series,
)
from evalq.workers.monitor import Newest, Snapshot

_TOGETHER: dict[Unit, Together] = {"count": "sum", "state": "max"}
_RUNS_ENDED = "evalq_runs_ended_total"
_Exemplars = dict[tuple[str, ...], Exemplar]
_EXEMPLAR_CHARS = 128
"""OpenMetrics' limit for an exemplar's names and values."""


class WithLedgerName(Collector):
    """The families of ``inner`` with a label for the ledger's name, since one Prometheus may watch several ledgers."""

    def __init__(self, inner: Collector, ledger: str) -> None:
        self._inner = inner
        self._ledger = ledger

    def collect(self) -> Iterator[PrometheusMetric]:
        """The families of ``inner``, with the label."""
        for shown in self._inner.collect():
            shown.samples = [
                sample._replace(labels={LEDGER: self._ledger, **sample.labels}) for sample in shown.samples
            ]
            yield shown


class _Bounded(Collector):
    """Families of at most ``most`` series and one for the others.

    ``folded`` counts these others, and left-out series of histograms.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.folded = 0

    def _family(
        self, shown: MetricFamily, rows: list[Series], together: Together = "sum", exemplars: _Exemplars | None = None
    ) -> PrometheusMetric:
        kept, others = folded(rows, self._most, together)
        self.folded += others
        return _filled(shown, kept, exemplars)


class FleetMetrics(_Bounded):
    """Metrics that may change with every scrape: work, fleet, calls, server and newest runs."""

    def __init__(self, snapshot: Snapshot, most: int) -> None:
        super().__init__(most)
        self._snapshot = snapshot

    def collect(self) -> Iterator[PrometheusMetric]:
        """In the catalogue's order."""
        for shown in FAMILIES:
            if shown.read is not None:
                exemplars = _newest_runs(self._snapshot) if shown.name == _RUNS_ENDED else {}
                yield self._family(shown, shown.read(self._snapshot), shown.together, exemplars)
            elif shown.spread is not None:
                filled = HistogramMetricFamily(shown.name, shown.help, labels=shown.labels)
                rows = shown.spread(self._snapshot)
                self.folded += max(0, len(rows) - self._most)
                for labels, buckets, total in rows[: self._most]:
                    filled.add_metric(labels, buckets, total)
                yield filled


class QualityMetrics(_Bounded):
    """Metrics that an evaluator declares of its runs; they change only when a run ends."""

    def __init__(self, evaluator: str, histories: Sequence[Newest], most: int) -> None:
        super().__init__(most)
        self._metrics = plugins.get(evaluator).views.metrics
        self._histories = histories

    def collect(self) -> Iterator[PrometheusMetric]:
        """In the order of its declarations."""
        for metric in self._metrics:
            together: Together = _TOGETHER.get(metric.unit, "mean")
            for shown, read in zip(quality(metric), (newest_series, recent_series), strict=False):
                yield self._family(shown, read(metric, self._histories), together)


class ExporterMetrics(Collector):
    """Metrics of the exporter itself: whether the ledger answered, the seconds it took, the number of folded series.

    ``server`` is the id of the ledger's server, new at each start; empty if it did not answer.
    """

    def __init__(self, *, up: bool, seconds: float, series_folded: int, server: str) -> None:
        self._server = server
        self._values = {
            "evalq_ledger_up": float(up),
            "evalq_scrape_seconds": seconds,
            "evalq_series_folded": float(series_folded),
        }

    def collect(self) -> Iterator[PrometheusMetric]:
        """These metrics, and the version."""
        for name, value in self._values.items():
            yield _filled(family(name), [((), value)])
        yield _info("evalq_build_info", {"version": __version__, "code": code_version()})
        if self._server:
            yield _info("evalq_ledger_info", {"server": self._server})


def _info(name: str, facts: dict[str, str]) -> InfoMetricFamily:
    shown = InfoMetricFamily(name.removesuffix("_info"), family(name).help)
    shown.add_metric([], facts)
    return shown


def _newest_runs(snapshot: Snapshot) -> dict[tuple[str, ...], Exemplar]:
    """The id of each suite's newest run, as an exemplar: a label would make a series for each run."""
    return {
        (*of, "done"): Exemplar({"run": run}, 1.0, Timestamp(int(ended), int(ended % 1 * 1e9)))
        for of, (run, ended) in newest_runs(snapshot).items()
        if len("run" + run) <= _EXEMPLAR_CHARS
    }


def _filled(shown: MetricFamily, rows: list[Series], exemplars: _Exemplars | None = None) -> PrometheusMetric:
    kind: Any = CounterMetricFamily if shown.kind == "counter" else GaugeMetricFamily
    filled: Any = kind(shown.name, shown.help, labels=shown.labels)
    for labels, value in rows:
        exemplar = (exemplars or {}).get(labels)
        filled.add_metric(labels, value, **({"exemplar": exemplar} if exemplar else {}))
    return filled  # type: ignore[no-any-return]  # either class is one
