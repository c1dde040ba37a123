"""How long a scrape takes: `python -m tests.bench.scrape`.

A ledger with 1,000 finished runs (5 evaluators, 8 suites, 10 runs of history each, of evalq's own sample data), 20 open
ones with work in flight, and 50 workers; the exporter is asked over HTTP, as Prometheus does.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import msgspec

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.contract.partial import Partial
from evalq.evalcore.fold import evaluate_files
from evalq.evalcore.model.manifest import Chunk, Header, PlannedInput, Seal
from evalq.workers.exporter.server import Exporter
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.history import Entry, History, HistoryKey, entry_of
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.monitor import Watch
from evalq.workers.settings import Settings
from tests.integration.harness import Server, running_server
from tests.samples import KEY, sampled

SUITES = 8


def entries(scratch: Path) -> dict[str, Entry]:
    """An entry of each evaluator, from the report of its sample data."""
    found = {}
    for name in plugins.names():
        evaluator: Evaluator[Any, Any] = plugins.get(name)
        (scratch / name).mkdir()
        asked = sampled(evaluator, scratch / name, 1_000)
        request = evaluator.command.request(asked)
        report = evaluate_files(evaluator, request.inputs, request.params).report
        found[name] = entry_of(evaluator, "r", HistoryKey(name, "s"), report, 1.0, {})
    return found


def fill(server: Server, settings: Settings, runs: int, scratch: Path) -> None:
    """Put ``runs`` finished runs, 20 open ones, the histories and 50 workers into the ledger."""
    ledger, history = RunLedger(server.client, settings), History(server.client, settings)
    made = entries(scratch)
    for number in range(runs + 20):
        name = plugins.names()[number % len(made)]
        header = Header(
            f"run-{number}", name, "1", "c", {}, (PlannedInput("x", "x", "x"),), suite=f"s{number % SUITES}"
        )
        chunks = [Chunk(seq, 0, seq, seq + 1, seq + 1, 1, "0" * 64) for seq in range(4 if number < runs else 64)]
        ledger.open(header, 1, key=KEY)
        ledger.append(header.run, chunks, 0, Seal(len(chunks), ("s",)))
        ledger.take(header.run)
        if number >= runs:
            for chunk in chunks[:4]:
                ledger.claim(header.run, chunk.seq, 1, f"w{number % 50}", 1)
            continue
        for chunk in chunks:
            ledger.commit(header, chunk, 1, Partial("a" * 64, b"part"), took={"chunk_duration": 0.1, "queue_wait": 1.0})
        ledger.close(header.run, "done")
        recent = [metric.name for metric in plugins.get(name).views.metrics if metric.recent]
        place = HistoryKey(name, header.suite)
        history.record(msgspec.structs.replace(made[name], run=header.run, key=place), recent)
    for number in range(50):
        Heartbeats(ledger.client).beat(
            f"w{number}", {"host": "h", "pid": number, "code": "c", "concurrency": 8, "since": 1}, 3600
        )


def timed(call: Any, times: int) -> list[float]:
    """Milliseconds of each of ``times`` calls."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        took.append(1000 * (time.perf_counter() - began))
    return took


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scrape")
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--times", type=int, default=50)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_server(Path(folder)) as server:
        settings = Settings(broker=server.url, lease_seconds=600)
        fill(server, settings, asked.runs, Path(folder))
        exporter = Exporter(settings, "127.0.0.1", 0)
        threading.Thread(target=exporter.serve, daemon=True).start()
        url = f"http://127.0.0.1:{exporter.port}/metrics"
        with httpx.Client() as client:
            series = sum(not line.startswith("#") for line in client.get(url).text.splitlines())
            watch = Watch(settings)
            first = watch.snapshot()
            rows = {"reading the ledger": timed(lambda: watch.snapshot(first), asked.times)}
            rows["a scrape"] = timed(lambda: client.get(url).raise_for_status(), asked.times)
            history = History(server.client, settings)
            rows["a scrape after a run ended"] = []
            for number in range(asked.times):
                history.record(Entry(f"late-{number}", HistoryKey("vs", "s0"), {}, [], digest="d"))
                rows["a scrape after a run ended"] += timed(lambda: client.get(url).raise_for_status(), 1)
        exporter.close()
    print(f"{asked.runs} finished runs, 20 open, {series} series, {asked.times} times\n")
    print("| | median ms | worst ms |\n| --- | --- | --- |")
    for name, took in rows.items():
        print(f"| {name} | {statistics.median(took):.1f} | {max(took):.1f} |")


if __name__ == "__main__":
    main()
