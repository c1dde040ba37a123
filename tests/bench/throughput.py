"""Rows a second: (a) naive Celery, (b) evalq with two local workers, (c) the bare kernel in two processes.

(c) is the ceiling: chunk boundaries are known beforehand, nothing is planned, queued, merged or reported; two
forked processes read every other chunk, evaluate it and write its record lines to a file.
"""

from __future__ import annotations

import multiprocessing
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.contract.params import validate
from evalq.evalcore.model.manifest import Span, read_span
from evalq.evalcore.records.cut import Cutter
from tests.integration.harness import clean_environment, evalq, running_server

PROCESSES = 2


def make_rows(path: Path, rows: int) -> None:
    """A CSV of made rows, with a Query ID for every ten."""
    from evalq.evalcore.evaluators.planagent.sample import write_rows

    with path.open("w", encoding="utf-8", newline="") as out:
        write_rows(out, rows, seed=1, queries=max(1, rows // 10), rounds=[f"{n}/1" for n in range(1, 11)])


def plan(path: Path) -> tuple[tuple[str, ...], list[Span]]:
    """Columns and chunks of a CSV."""
    evaluator = plugins.get("planagent")
    with path.open("rb") as stream:
        cutter = Cutter(stream, "csv", path.name, evaluator.records.columns)
        return cutter.columns, list(cutter.spans())


def _kernel(path: Path, columns: tuple[str, ...], spans: list[Span], out: Path) -> None:
    evaluator = plugins.get("planagent")
    params = validate(evaluator.Params, {}, "bench")
    with out.open("wb") as lines:
        for span in spans:
            batch = Batch(path.name, span.first_line, read_span(path, span), columns)
            lines.write(b"\n".join(evaluator.evaluate(batch, params).lines) + b"\n")


def bare(path: Path, scratch: Path) -> float:
    """Seconds of (c)."""
    columns, spans = plan(path)
    fork = multiprocessing.get_context("fork")
    plugins.get("planagent")  # loaded before the fork, as a worker's pool has it
    began = time.perf_counter()
    parts = [
        fork.Process(target=_kernel, args=(path, columns, spans[n::PROCESSES], scratch / f"lines{n}"))
        for n in range(PROCESSES)
    ]
    for part in parts:
        part.start()
    for part in parts:
        part.join()
        assert part.exitcode == 0
    return time.perf_counter() - began


def queued(path: Path, scratch: Path) -> float:
    """Seconds of (b): the whole command, from its start to its exit, embedded server and workers included."""
    out = scratch / "run"
    shutil.rmtree(out, ignore_errors=True)
    began = time.perf_counter()
    done = evalq(
        "planagent", path, "--workers", str(PROCESSES), "--out", out, "--format", "none", cwd=scratch, seconds=900
    )
    seconds = time.perf_counter() - began
    assert done.returncode == 0, done.stderr
    return seconds


def naive(path: Path, scratch: Path) -> float:
    """Seconds of (a): from the first message to the last result; its server and workers are up before."""
    with running_server(scratch) as server, (scratch / "naive.log").open("wb") as log:
        environment = clean_environment(NAIVE_BROKER=server.url)
        command = [sys.executable, "-m", "celery", "-A", "tests.bench.naive", "worker", "--concurrency", str(PROCESSES)]
        worker = subprocess.Popen([*command, "--loglevel", "warning"], stdout=log, stderr=log, env=environment)
        try:
            client = [sys.executable, "-m", "tests.bench.naive", str(path)]
            done = subprocess.run(client, env=environment, capture_output=True, text=True, check=True)
            return float(done.stdout)
        finally:
            worker.terminate()
            worker.wait()


def plan_rows(path: Path) -> tuple[list[str], list[str]]:
    """Columns and the text of each row."""
    with path.open("rb") as stream:
        cutter = Cutter(stream, "csv", path.name, (), size=1)
        return list(cutter.columns), [read_span(path, span).decode() for span in cutter.spans()]


def medians(ways: dict[str, Callable[[], float]], times: int) -> dict[str, float]:
    """The median seconds of each way, the ways taken in turn so that a drift of the machine meets all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(times):
        for name, way in ways.items():
            seconds[name].append(way())
            print(f"  {name}: {seconds[name][-1]:.2f} s", flush=True)
    return {name: statistics.median(values) for name, values in seconds.items()}
