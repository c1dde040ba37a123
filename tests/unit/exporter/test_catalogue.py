"""The catalogue of fleet metrics holds what Prometheus and the rules of the project ask of names and labels."""

from __future__ import annotations

import re

import pytest

from evalq.evalcore.contract import plugins
from evalq.workers.exporter.catalogue import FAMILIES, family
from evalq.workers.exporter.family import SECONDS, MetricFamily, quality

FORBIDDEN = {"run", "run_id", "worker", "host", "pid", "error", "message", "record"}
EVERY = [
    *FAMILIES,
    *(f for name in plugins.names() for metric in plugins.get(name).views.metrics for f in quality(metric)),
]


@pytest.mark.parametrize("each", EVERY, ids=lambda each: each.name)
def test_names_types_and_labels_are_as_prometheus_has_them(each: MetricFamily) -> None:
    """Counters end in _total and nothing else does; labels never tell runs, processes or messages apart."""
    assert re.fullmatch(r"evalq_[a-z][a-z0-9_]*[a-z]", each.name)
    assert each.name.endswith("_total") == (each.kind == "counter")
    assert bool(each.buckets) == (each.kind == "histogram")
    assert not set(each.labels) & FORBIDDEN
    assert len(set(each.labels)) == len(each.labels)
    assert each.help.endswith(".")


def test_no_name_is_declared_twice() -> None:
    """Not among the fleet's metrics, and not by two evaluators."""
    names = [each.name for each in EVERY]
    assert sorted(names) == sorted(set(names))


def test_a_family_is_found_by_its_name() -> None:
    """The exporter fills families by name; a name that is not declared cannot be exported."""
    assert family("evalq_chunk_duration_seconds").buckets == SECONDS == tuple(sorted(SECONDS))
    with pytest.raises(KeyError):
        family("evalq_nonsense_total")
