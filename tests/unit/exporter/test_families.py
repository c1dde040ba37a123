"""From what the ledger counts to series: names with blanks, zeros, buckets, and the cap on label sets."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.openmetrics.exposition import generate_latest

from evalq.evalcore.compare.drift import DriftState, MeasureState
from evalq.evalcore.views.metrics import Metric
from evalq.workers.exporter.catalogue import FAMILIES, family
from evalq.workers.exporter.collector import FleetMetrics
from evalq.workers.exporter.family import MetricFamily
from evalq.workers.exporter.series import Series, folded, newest_series, recent_series
from evalq.workers.ledger.heartbeats import CallerFacts, FollowerFacts, TargetFacts
from evalq.workers.ledger.history import Entry, HistoryKey
from evalq.workers.ledger.sweep_model import SECONDS, SweepHeader, bucket, counters
from evalq.workers.monitor import Newest, ServerFacts, Snapshot, UnservedRun, WorkerStatus

SERVER = ServerFacts("valkey", "9", 1, 0, "noeviction", 0, False, False, False, 0.0, 1)


def _snapshot(**given: Any) -> Snapshot:
    chunks = dict.fromkeys(("planned", "published", "leased", "committed"), 0)
    empty: dict[str, Any] = {key: {} for key in ("runs", "totals", "calls", "queues")}
    empty |= {
        "now": 0.0,
        "chunks": chunks,
        "oldest_age": 0.0,
        "workers": [],
        "unacked": None,
        "sweeps": [],
        "callers": [],
        "version": "",
        "histories": [],
    }
    return Snapshot(**(empty | {"server": SERVER} | given))


def _state(run: str, **measure: Any) -> DriftState:
    return DriftState(
        specification=run, run=run, reference="x", kind="first", runs=3, measures={"pass_rate": MeasureState(**measure)}
    )


def _series(name: str, snapshot: Snapshot) -> list[Series]:
    """What a metric of the catalogue reads of a snapshot."""
    read = family(name).read
    assert read is not None
    return read(snapshot)


def test_every_metric_of_the_catalogue_has_a_source() -> None:
    """One each, by its type; only what the exporter knows of itself is not read of the snapshot."""
    own = {"evalq_ledger_up", "evalq_scrape_seconds", "evalq_series_folded", "evalq_build_info", "evalq_ledger_info"}
    assert {each.name for each in FAMILIES if each.read is None and each.spread is None} == own
    assert all((each.spread is not None) == (each.kind == "histogram") for each in FAMILIES)
    assert not [each.name for each in FAMILIES if each.read is not None and each.spread is not None]


@pytest.mark.parametrize("shown", [each for each in FAMILIES if each.read], ids=lambda each: each.name)
def test_every_series_has_a_value_for_each_label(shown: MetricFamily) -> None:
    """As many label values as the catalogue has labels, from a snapshot in which everything occurs."""
    totals = {f"{name} vs a b": 1 for name in ("submitted", "records", "dead", "chunks", "duplicates", "divergent")}
    totals |= {"failures vs a b load": 1, "reconciled vs a b lost": 2, "ended vs a b done": 3, "last_commit": 5}
    entry = Entry("r", HistoryKey("vs", "a b"), {"scored": 1, "total": 1}, [])
    counters_of_traces = ("traces", "left_out", "late", "unread", "removed", "passed", "failed", "errors")
    followed = dict.fromkeys((*counters_of_traces, "tool_calls", "tool_errors", "tokens", "cost"), 2.0)
    full = _snapshot(
        totals=totals,
        calls={"answered t": 1, "failed t rate_limit": 2, "tokens t prompt": 3, "cost t": 4},
        queues={"q": 1},
        sweeps=[SweepHeader("s", "t", "old", 1, 1), SweepHeader("r", "t", "mine", 1, 1)],
        callers=[CallerFacts("h", 1, "mine", 8, 0, {"t": TargetFacts("c"), "u": TargetFacts("d")})],
        unacked=0,
        histories=[Newest(entry, [], [_state("r", e=1.0)])],
        followers=[FollowerFacts("h", "checks", "a b", 5.0, 1, followed, lag=2.0, at=1.0)],
    )
    rows = _series(shown.name, full)
    assert rows
    assert {len(labels) for labels, _ in rows} == {len(shown.labels)}


def test_drift_is_that_of_the_chain_with_most_evidence() -> None:
    """A suite of several named runs has one series a measure; a page outweighs any evidence that is none yet."""
    chains = [_state("a", e=5000.0), _state("b", e=300.0, since="b", change=-0.2), _state("c", e=200.0, since="c")]
    place = HistoryKey("vs", "night", "t")
    seen = _snapshot(histories=[Newest(Entry("c", place, {}, []), [], chains)])
    of = ("vs", "night", "t", "pass_rate")
    assert _series("evalq_drift", seen) == [(of, 1.0)]
    assert _series("evalq_drift_e_value", seen) == [(of, 300.0)]
    assert _series("evalq_drift_change", seen) == [(of, -0.2)]
    assert _series("evalq_drift", _snapshot()) == []


def test_the_newest_run_of_a_suite_is_reported_beside_its_counter_and_never_as_a_label() -> None:
    """As an exemplar, in the format that has them; over all targets, and left out where its id is too long."""
    entries = [
        Entry("old", HistoryKey("vs", "night", "t"), {}, [], ended=5.25),
        Entry("new", HistoryKey("vs", "night", "u"), {}, [], ended=6.5),
        Entry("x" * 130, HistoryKey("vs", "long", ""), {}, [], ended=7.0),
    ]
    totals = {f"{name} vs {suite}{tail}": 3 for suite in ("night", "long", "none")
              for name, tail in (("submitted", ""), ("ended", " done"))}  # fmt: skip
    seen = _snapshot(totals=totals, histories=[Newest(entry, []) for entry in entries])
    text = generate_latest(FleetMetrics(seen, 100)).decode()  # type: ignore[no-untyped-call]  # the library has no types here
    lines = [line for line in text.splitlines() if line.startswith("evalq_runs_ended_total")]
    assert [line for line in lines if "#" in line] == [
        'evalq_runs_ended_total{evaluator="vs",state="done",suite="night"} 3.0 # {run="new"} 1.0 6.500000000'
    ]
    assert len(lines) == 12


def test_the_first_run_that_goes_to_a_state_is_an_increase() -> None:
    """Each state that a run of a suite may go to is counted from 0, paused and cancelled too."""
    seen = _snapshot(totals={"submitted vs night": 3, "ended vs night done": 1})
    assert dict(_series("evalq_runs_ended_total", seen)) == {
        ("vs", "night", "done"): 1.0,
        ("vs", "night", "paused"): 0.0,
        ("vs", "night", "failed"): 0.0,
        ("vs", "night", "cancelled"): 0.0,
    }


def test_sick_workers_and_runs_without_a_worker_are_shown_by_bounded_labels() -> None:
    """By evaluator with zeros, never by reason or host; of waiting runs the longest."""
    worker = WorkerStatus("w", "h", "c", 1, 0, 0.0, 0.0, "", "idle", {"vs": "no module named x"})
    seen = _snapshot(workers=[worker], unserved=[UnservedRun("a", 3.0), UnservedRun("b", 9.0)])
    assert dict(_series("evalq_workers_sick", seen))[("vs",)] == 1.0
    assert dict(_series("evalq_workers_sick", seen))[("planagent",)] == 0.0
    assert _series("evalq_unserved_seconds", seen) == [((), 9.0)]
    assert _series("evalq_unserved_seconds", _snapshot()) == [((), 0.0)]


def test_a_sweep_is_called_by_processes_of_its_version_alone() -> None:
    """By target, with zeros for targets that can be called and are not swept."""
    full = _snapshot(
        sweeps=[SweepHeader("s", "t", "old", 1, 1), SweepHeader("r", "t", "mine", 1, 1)],
        callers=[CallerFacts("h", 1, "mine", 8, 0, {"t": TargetFacts("c"), "u": TargetFacts("d")})],
    )
    assert _series("evalq_sweeps", full) == [(("t",), 2.0), (("u",), 0.0)]
    assert _series("evalq_sweeps_uncalled", full) == [(("t",), 1.0), (("u",), 0.0)]


def test_suites_with_blanks_are_whole_and_what_never_happened_is_zero() -> None:
    """The first event of a suite that was seen is an increase from 0."""
    seen = _snapshot(totals={"submitted vs my suite": 5, "reconciled vs my suite lost": 2})
    assert _series("evalq_divergent_commits_total", seen) == [(("vs", "my suite"), 0.0)]
    assert _series("evalq_chunks_reconciled_total", seen) == [
        (("vs", "my suite", "lease_died"), 0.0),
        (("vs", "my suite", "lost"), 2.0),
    ]


def test_live_calls_are_shown_by_outcome_kind_and_time() -> None:
    """Failures of all kinds are one outcome; kinds and tokens have metrics of their own; times are cumulative."""
    calls = {"called my t": 9, "recorded my t": 6, "failed my t rate_limit": 2, "failed my t timeout": 1}
    calls |= {"tokens my t prompt": 70, "seconds my t 0.5": 4, "seconds my t +Inf": 1, "seconds my t sum": 2_500_000}
    seen = _snapshot(calls=calls)
    assert dict(_series("evalq_calls_total", seen)) == {
        ("my t", "called"): 9.0, ("my t", "recorded"): 6.0, ("my t", "failed"): 3.0}  # fmt: skip
    assert dict(_series("evalq_call_failures_total", seen)) == {("my t", "rate_limit"): 2.0, ("my t", "timeout"): 1.0}
    assert _series("evalq_call_tokens_total", seen) == [(("my t", "prompt"), 70.0)]
    assert _series("evalq_call_cost_total", _snapshot(calls={"cost my t": 1_500_000})) == [(("my t",), 1.5)]
    spread = family("evalq_call_seconds").spread
    assert spread is not None
    ((labels, buckets, total),) = spread(seen)
    assert (labels, total) == (("my t",), 2.5)
    assert len(buckets) == len(SECONDS) + 1
    assert dict(buckets)["0.25"] == 0.0
    assert dict(buckets)["0.5"] == dict(buckets)["300"] == 4.0
    assert buckets[-1] == ("+Inf", 5.0)


def test_a_time_is_counted_in_the_bucket_that_bounds_it() -> None:
    """On the bound belongs to it, above the last has none; the sum is in whole microseconds."""
    assert [bucket(seconds) for seconds in (0, 0.001, 0.0011, 300, 301)] == ["0.001", "0.001", "0.0025", "300", "+Inf"]
    assert list(counters("vs", {"x": 0.25})) == ["x vs 0.25", 1, "x vs sum", 250_000]


def test_beyond_the_cap_everything_is_one_other() -> None:
    """Counts add up, shares are averaged, states show the worst; the total number of series is bounded."""
    rows: list[Series] = [((f"s{number}", ""), float(number)) for number in range(5)]
    assert folded(rows, 5) == (rows, 0)
    assert folded(rows, 2) == ([*rows[:2], (("other", "other"), 9.0)], 3)
    assert folded(rows, 2, "mean")[0][-1] == (("other", "other"), 3.0)
    assert folded(rows, 2, "max")[0][-1] == (("other", "other"), 4.0)


def test_the_last_runs_stand_side_by_side() -> None:
    """The newest is at position 1; no more than the metric asks for; a sample of another shape is left out."""
    metric = Metric("evalq_x_y", "Help.", "share", "y", recent=2)
    place = HistoryKey("x", "s", "t")
    runs = [[("evalq_x_y", (), value), ("evalq_x_y", ("odd",), 9.0)] for value in (0.1, 0.2, 0.3)]
    newest = Newest(Entry("r", place, {}, runs[0]), runs)
    assert newest_series(metric, [newest]) == [(("s", "t"), 0.1)]
    assert recent_series(metric, [newest]) == [(("s", "t", "1"), 0.1), (("s", "t", "2"), 0.2)]


def test_histograms_beyond_the_cap_are_counted_as_left_out() -> None:
    """A histogram has no series for the others; that there are some is reported all the same."""
    calls = {f"seconds t{number} 1": 1 for number in range(7)}
    none, some = FleetMetrics(_snapshot(), 5), FleetMetrics(_snapshot(calls=calls), 5)
    list(none.collect())
    shown = {each.name: each for each in some.collect()}
    assert len({sample.labels["target"] for sample in shown["evalq_call_seconds"].samples}) == 5
    assert some.folded - none.folded == 2
