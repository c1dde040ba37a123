"""Rows a second by other task queues beside evalq: `python -m tests.bench.queues` (part of `make bench`).

Rivals come from a folder of their own, into which pip installs them; one that cannot be installed is left out, and it
is said why. All have two worker processes that are up before the clock starts, and give all lines back to the client.
evalq's command is measured from its start to its exit.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.bench.throughput import make_rows, queued
from tests.integration.harness import clean_environment, running_server


class Rival(msgspec.Struct, frozen=True):
    """A module of `tests.bench.rivals.queues`, what pip installs for it, and what `python -m` starts as its worker."""

    module: str
    packages: tuple[str, ...] = ()
    worker: str = ""


PACKAGE = "tests.bench.rivals.queues"
_CELERY = f"celery -A {PACKAGE}.celery_tasks worker --concurrency 2 --loglevel error"
RIVALS = {
    "multiprocessing.Pool": Rival("processes"),
    "Celery": Rival("celery_tasks", (), _CELERY),
    "Celery, chunks of 100": Rival("celery_chunks", (), _CELERY),
    "Dramatiq": Rival("dramatiq_actors", ("dramatiq[redis]",), "dramatiq {module} --processes 2 --threads 1"),
    "RQ": Rival("rq_jobs", ("rq",), "rq.cli worker-pool -n 2 -u {url} -w rq.SimpleWorker"),
    "Huey": Rival("huey_tasks", ("huey",), "huey.bin.huey_consumer {module}.huey -w 2 -k process -q"),
    "taskiq": Rival("taskiq_tasks", ("taskiq", "taskiq-redis"), "taskiq worker {module}:broker --workers 2"),
    "Dask": Rival("dask_futures", ("dask[distributed]",)),
}
PATIENCE = 900


class Found(msgspec.Struct):
    """What a client prints."""

    seconds: float
    lines: int
    digest: str


def install(folder: Path, packages: Sequence[str]) -> str:
    """Why ``packages`` cannot be installed into ``folder``; nothing where they were."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), "--upgrade", *packages]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


@contextlib.contextmanager
def _running(command: list[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    if not command:
        yield
        return
    with log.open("wb") as out:
        arguments = [sys.executable, "-m", *command]
        worker = subprocess.Popen(arguments, stdout=out, stderr=out, env=environment, start_new_session=True)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.pid, 15)
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(10)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.pid, 9)


def measure(name: str, path: Path, rows_a_job: int, packages: Path, scratch: Path) -> Found:
    """One run of a rival, with a server of its own."""
    rival = RIVALS[name]
    module = f"{PACKAGE}.{rival.module}"
    with running_server(scratch) as server:
        root = str(Path(__file__).parents[2])
        search = os.pathsep.join([root, str(packages)])
        environment = clean_environment(RIVAL_SERVER=server.url, PYTHONPATH=search)
        command = rival.worker.format(module=module, url=server.url).split()
        with _running(command, environment, scratch / "worker.log"):
            client = [sys.executable, "-m", module, str(path), str(rows_a_job)]
            done = subprocess.run(client, env=environment, capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 0, done.stderr
            return msgspec.json.decode(done.stdout.splitlines()[-1], type=Found)


def table(rows: int, rows_a_job: int, times: int, packages: Path, scratch: Path) -> list[str]:
    """Lines of a Markdown table."""
    path = scratch / f"{rows}.csv"
    make_rows(path, rows)
    ways, messages = dict[str, list[float]](), []
    for name, rival in RIVALS.items():
        if rival.packages and (why := install(packages / name, rival.packages)):
            messages.append(f"{name} is left out: {why}")
        else:
            ways[name] = []
    digests, ours = set(), list[float]()
    for _ in range(times):
        ours.append(queued(path, scratch))
        for name, seconds in ways.items():
            found = measure(name, path, rows_a_job, packages / name, scratch)
            assert found.lines == rows
            digests.add(found.digest)
            seconds.append(found.seconds)
            print(f"  {name}: {found.seconds:.2f} s", flush=True)
    assert len(digests) == 1, "the rivals have different lines"
    base = rows / statistics.median(ours)
    lines = [f"| {rows:,} | {rows_a_job} | evalq, the whole command | {base:,.0f} | |"]
    for name, seconds in ways.items():
        pace = rows / statistics.median(seconds)
        lines.append(f"| {rows:,} | {rows_a_job} | {name} | {pace:,.0f} | {base / pace:.1f} x |")
    return [*lines, *messages]


def main(words: Sequence[str] | None = None) -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.queues")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--packages", type=Path, help="where rivals are, or will be")
    asked = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="evalq-bench-") as folder:
        scratch = Path(folder)
        packages: Any = asked.packages or scratch / "packages"
        print("| rows | rows a job | way | rows/s | evalq does |\n| ---: | ---: | --- | ---: | ---: |")
        for rows_a_job in (1, 500):
            print("\n".join(table(asked.rows, rows_a_job, asked.times, packages, scratch)), flush=True)


if __name__ == "__main__":
    main()
