"""A web service's day: jobs submitted from threads and processes while workers and one producer are killed.

The test of the suite takes some jobs; for a thousand of them:

    python -m tests.integration.many_handles --jobs 1000 --processes 5 --threads 20
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import evalq
from evalq.evalcore.evaluators.planagent.sample import write_rows
from tests.integration.harness import Fleet, Server, running_fleet, running_server, wait_until
from tests.integration.harness import evalq as run_evalq


class Day(NamedTuple):
    """How many jobs, from how many processes of how many threads; workers are killed every so many ``seconds``."""

    jobs: int
    processes: int
    threads: int
    seconds: float


def _work(number: int, day: Day, rows: Sequence[dict[str, str]], out: str) -> None:
    """One process of the service: its share of the jobs, each by a thread, and each tenth posted twice."""
    mine = range(number, day.jobs, day.processes)
    lock = threading.Lock()

    def job(index: int) -> None:
        handle = evalq.submit("planagent", rows[index], once=f"job {index}")
        if index % 10 == 0:  # a caller that lost the answer posts again
            assert evalq.submit("planagent", rows[index], once=f"job {index}").id == handle.id
        with lock, open(out, "a", encoding="utf-8") as stream:
            stream.write(f"{index} {handle.id}\n")
        assert handle.run(timeout=1800).report == evalq.evaluate("planagent", rows[index]).report

    with ThreadPoolExecutor(day.threads) as pool:
        list(pool.map(job, mine))


@contextlib.contextmanager
def _killing(fleet: Fleet, seconds: float, seed: int) -> Iterator[list[int]]:
    """Every so many seconds one of the workers is killed, and another one started."""
    over, killed = threading.Event(), list[int]()
    chosen = random.Random(seed)

    def kill() -> None:
        while not over.wait(seconds):
            victim = chosen.choice([each for each in fleet.processes if each.poll() is None])
            fleet.kill(victim)
            killed.append(victim.pid)
            fleet.add(1)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def live_through(day: Day, folder: Path, server: Server, fleet: Fleet, seed: int = 1) -> dict[str, Any]:
    """Let a day pass; returns what was counted. The current folder is ``folder``, and EVALQ_BROKER names the server.

    Raises AssertionError if a handle did not end, a result differs, a job ran twice, or a key is left.
    """
    with open("rows.csv", "w", encoding="utf-8", newline="") as out:
        write_rows(out, day.jobs, seed=seed)
    with open("rows.csv", encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    fleet.add(1)
    fleet.add(1)
    began = time.monotonic()
    files = [str(folder / f"ids-{number}") for number in range(day.processes)]
    fork = multiprocessing.get_context("fork")
    # After a submission of this process: the others inherit its connections, and must not use them.
    assert evalq.submit("planagent", rows[0], once="job 0").id
    service = [fork.Process(target=_work, args=(number, day, rows, file)) for number, file in enumerate(files)]
    with _killing(fleet, day.seconds, seed) as killed:
        for each in service:
            each.start()
        # One producer dies in the middle of its work.
        wait_until(lambda: Path(files[-1]).exists() and len(_ids(files[-1])) >= 2, "it has submitted some")
        assert service[-1].pid is not None
        os.kill(service[-1].pid, signal.SIGKILL)
        for each in service:
            each.join()
        assert [each.exitcode for each in service] == [0] * (day.processes - 1) + [-signal.SIGKILL]
        _work(day.processes - 1, day, rows, files[-1])  # it is started again, and posts all of its jobs again
        ids = {index: run for file in files for index, run in _ids(file)}
        ended = {handle.id: handle.wait(1800) for handle in evalq.runs()}
    assert sorted(ids) == list(range(day.jobs))
    assert ended == dict.fromkeys(ids.values(), "done"), "each job is one run, and each run has ended"
    totals = {name.decode(): int(count) for name, count in server.client.hgetall("evalq:totals").items()}
    (records,) = [count for name, count in totals.items() if name.startswith("records ")]
    assert records == day.jobs, "no answer counts twice"
    seconds = time.monotonic() - began
    pruned = run_evalq("prune", "--older-than", "0", "--broker", server.url, cwd=folder)
    assert pruned.returncode == 0, pruned.stderr
    left = [key.decode() for key in server.client.scan_iter() if any(run in key.decode() for run in ids.values())]
    assert (left, server.client.hgetall("evalq:runs"), list(folder.glob("evalq-runs/planagent*"))) == ([], {}, [])
    return {"jobs": day.jobs, "workers killed": len(killed), "producers killed": 1, "seconds": round(seconds, 1)}


def _ids(file: str) -> list[tuple[int, str]]:
    lines = Path(file).read_text(encoding="utf-8").split("\n")[:-1]
    return [(int(index), run) for index, run in (line.split(" ") for line in lines)]


def main(words: Sequence[str]) -> None:
    """A day as long as the command line says."""
    parser = argparse.ArgumentParser()
    for name, default in (("jobs", 1000), ("processes", 5), ("threads", 20), ("seconds", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    day = Day(**vars(parser.parse_args(words)))
    with tempfile.TemporaryDirectory(prefix="evalq-") as scratch, running_server(Path(scratch)) as server:
        os.environ["EVALQ_BROKER"] = server.url
        os.chdir(scratch)
        with running_fleet(server.url, Path(scratch)) as fleet:
            sys.stdout.write(json.dumps(live_through(day, Path(scratch), server, fleet)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
