"""`evalq exporter` beside real runs: exact counts, restarts, a server that goes away, workers that take nothing."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator
from tests.integration.harness import (
    HAZARDS,
    PATIENCE,
    Server,
    children_of,
    committed,
    evalq,
    info,
    running_fleet,
    start_evalq,
    wait_until,
)
from tests.integration.midway import hold
from tests.integration.scraping import running_exporter
from tests.samples import sampled


def _manifest_records(folder: Path) -> int:
    return sum(chunk["records"] for chunk in json.loads((folder / "manifest.json").read_text())["chunks"])


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Made input of each evaluator, as the arguments of its command."""
    folder = tmp_path_factory.mktemp("inputs")
    found = {}
    for name in plugins.names():
        evaluator: Evaluator[Any, Any] = plugins.get(name)
        under = folder / name
        under.mkdir()
        asked = sampled(evaluator, under, 600)
        outputs = [word for path in asked.options.get("outputs", []) for word in ("--outputs", str(path))]
        found[name] = [*map(str, asked.inputs), *outputs]
    return found


def test_counters_and_gauges_equal_the_reports_of_all_evaluators(
    server: Server, inputs: dict[str, list[str]], tmp_path: Path
) -> None:
    """Records of the manifests, outcomes and quality of report.json, to the last bit, and after a restart too."""
    with running_fleet(server.url, Path(inputs["vs"][0]).parent.parent) as fleet:
        fleet.add(1)
        for name, words in inputs.items():
            place = ("--broker", server.url, "--suite", "my suite", "--chunk-size", "100", "--format", "none")
            done = evalq(name, *words, *place, "--run-dir", tmp_path / name, cwd=fleet._cwd)
            assert done.returncode == 0, done.stderr
    with running_exporter(server.url, tmp_path) as exporter:
        before = exporter.scrape()
    with running_exporter(server.url, tmp_path) as exporter:
        after = exporter.scrape()
    counters = {key: value for key, value in before.items() if key[0].endswith("_total")}
    assert {key: after[key] for key in counters} == counters
    for name in inputs:
        report = json.loads((tmp_path / name / "report.json").read_text())
        of = frozenset({"evaluator": name, "suite": "my suite"}.items())
        for counter in ("evalq_records_committed_total", "evalq_records_submitted_total"):
            assert after[counter, of] == _manifest_records(tmp_path / name)
        assert after["evalq_records_dead_total", of] == report["records"]["dead"] == 0
        run = info(tmp_path / name)["progress"]
        assert after["evalq_chunks_committed_total", of] == run["committed"]
        assert after["evalq_chunk_duration_seconds_count", frozenset({("evaluator", name)})] == run["committed"]
        assert after["evalq_runs_ended_total", of | {("state", "done")}] == 1
        target = of | {("target", "")}
        assert after["evalq_last_run_records", target | {("outcome", "scored")}] == report["records"]["scored"]
        evaluator: Evaluator[Any, Any] = plugins.get(name)
        for metric in evaluator.views.metrics:
            for sample in metric.samples(report):
                labels = dict(zip(metric.labels, sample.labels, strict=True)) | {"suite": "my suite", "target": ""}
                shown = frozenset(labels.items())
                assert after[metric.name, shown] == sample.value
                if metric.recent:
                    assert after[f"{metric.name}_recent", shown | {("position", "1")}] == sample.value


def test_counters_are_exact_when_workers_are_killed(server: Server, tmp_path: Path) -> None:
    """Kill -9 in the middle: every record is counted once, and what was published again is counted by reason."""
    held = hold(tmp_path, free=160, held=20)
    place = ("--broker", server.url, "--suite", "my suite", "--out", tmp_path / "run")
    with running_fleet(server.url, tmp_path, PYTHONPATH=HAZARDS) as fleet:
        fleet.add(2)
        run = start_evalq(*held.command, *place, cwd=tmp_path, PYTHONPATH=HAZARDS)
        wait_until(lambda: committed(server, tmp_path / "run") >= 5, "some chunks are committed")
        fleet.kill_at_work(server)
        fleet.add(2)
        held.let_go()
        assert run.wait(timeout=PATIENCE) == 0
    with running_exporter(server.url, tmp_path) as exporter:
        shown = exporter.scrape()
    of = frozenset({"evaluator": "hazards", "suite": "my suite"}.items())
    progress = info(tmp_path / "run")["progress"]
    assert shown["evalq_records_committed_total", of] == held.chunks == _manifest_records(tmp_path / "run")
    assert shown["evalq_duplicates_discarded_total", of] == progress["duplicates"]
    assert shown["evalq_divergent_commits_total", of] == 0
    reasons = ("lost", "lease_died")
    again = [shown["evalq_chunks_reconciled_total", of | {("reason", reason)}] for reason in reasons]
    assert sum(again) == progress["reconciled"] >= 1


def test_the_exporter_outlives_its_server(server: Server, tmp_path: Path) -> None:
    """It starts without a server, says so, and finds it when it comes and comes again."""
    server.kill()
    with running_exporter(server.url, tmp_path) as exporter:
        assert exporter.get("/healthz")[0] == 200
        assert exporter.get("/readyz")[0] == 503
        assert exporter.value("evalq_ledger_up") == 0
        for _ in range(2):
            server.start()
            wait_until(lambda: exporter.get("/readyz")[0] == 200, "the exporter is ready")
            assert exporter.value("evalq_ledger_up") == 1
            server.kill()
            assert exporter.value("evalq_ledger_up") == 0
            assert exporter.value("evalq_workers_alive") is None
        server.start()


def test_a_server_that_hangs_is_reported_while_prometheus_waits(server: Server, tmp_path: Path) -> None:
    """Within Prometheus' ten seconds, so that the alert is about the ledger and not about the exporter."""
    assert server.process is not None
    with running_exporter(server.url, tmp_path) as exporter:
        assert exporter.value("evalq_ledger_up") == 1
        server.process.send_signal(signal.SIGSTOP)
        try:
            began = time.monotonic()
            assert exporter.value("evalq_ledger_up") == 0
            assert exporter.get("/readyz")[0] == 503
            assert time.monotonic() - began < 15
        finally:
            server.process.send_signal(signal.SIGCONT)
        wait_until(lambda: exporter.value("evalq_ledger_up") == 1, "it is back")


def test_both_formats_and_nothing_else(server: Server, tmp_path: Path) -> None:
    """Prometheus' text by default, OpenMetrics when asked for; other paths are not found."""
    with running_exporter(server.url, tmp_path) as exporter:
        status, kind, body = exporter.get("/metrics")
        assert (status, kind.startswith("text/plain; version=")) == (200, True)
        assert "# TYPE evalq_workers_alive gauge" in body
        _, kind, body = exporter.get("/metrics", "application/openmetrics-text; version=1.0.0")
        assert kind.startswith("application/openmetrics-text")
        assert body.endswith("# EOF\n")
        assert exporter.get("/")[0] == 404


def test_a_worker_that_lives_and_takes_nothing_is_stuck(server: Server, tmp_path: Path) -> None:
    """Its pool is stopped and its heartbeat goes on: stuck while its queue holds work, consuming when it goes on."""
    held, out = hold(tmp_path), tmp_path / "run"
    with (
        running_exporter(server.url, tmp_path, EVALQ_STUCK_SECONDS="1") as exporter,
        running_fleet(server.url, tmp_path, PYTHONPATH=HAZARDS) as fleet,
    ):
        worker = fleet.add(1, EVALQ_LEASE_SECONDS="600")  # while it holds one it is at work, however long that takes
        run = start_evalq(*held.command, "--broker", server.url, "--out", out, cwd=tmp_path, PYTHONPATH=HAZARDS)
        wait_until(lambda: committed(server, out) == held.free, "it waits at a record")
        assert exporter.value("evalq_workers_stuck") == 0
        assert (exporter.value("evalq_chunks", state="published") or 0) > 0
        stopped = children_of(worker.pid)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        server.client.delete(f"evalq:run:{{{info(out)['run']}}}:leases")  # as if that were over: nobody renews it
        wait_until(lambda: exporter.value("evalq_workers_stuck") == 1, "the worker is seen to be stuck")
        assert exporter.value("evalq_workers_alive") == 1
        assert exporter.value("evalq_workers_consuming") == 0
        wait_until(lambda: (exporter.value("evalq_oldest_pending_age_seconds") or 0) > 1, "work has waited")
        held.let_go()
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: exporter.value("evalq_workers_consuming") == 1, "the worker takes chunks again")
    run.kill()
    run.wait()


def test_an_address_in_use_and_a_wrong_ledger_are_reported(server: Server, tmp_path: Path) -> None:
    """Exit 2 with what to change; no broker at all is a configuration error."""
    taken = evalq("exporter", "--broker", server.url, "--port", str(server.port), cwd=tmp_path)
    assert taken.returncode == 2
    assert "choose --bind and --port" in taken.stderr
    assert evalq("exporter", cwd=tmp_path).returncode == 2
    rabbit = evalq("exporter", "--broker", "amqp://127.0.0.1:1/", cwd=tmp_path)
    assert rabbit.returncode == 2
    assert "--ledger" in rabbit.stderr
