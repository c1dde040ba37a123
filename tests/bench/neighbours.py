"""`python -m tests.bench.neighbours`: a fast sweep beside four that are paced at six calls a minute, and alone; and a
matrix of three targets at once beside its slowest alone.

Real processes make the calls, of real servers. Both ways alternate in one run; the ratio is that of their medians.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.agents.server import write_golden
from tests.bench.pacing import control, serving
from tests.integration.harness import EVALQ, clean_environment, running_fleet, running_server, wait_until

LATENCY = 0.1
CASES = 10
LANES = 10
PACED = 4


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.neighbours")
    parser.add_argument("--calls", type=int, default=600, help="calls of the fast sweep")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--matrix", type=int, default=100, metavar="CALLS", help="calls of each target of the matrix")
    parser.add_argument("--only-matrix", action="store_true")
    asked = parser.parse_args()
    if not asked.only_matrix:
        _paced_sweeps(asked)
    _matrix(asked.times, asked.matrix)


def _paced_sweeps(asked: argparse.Namespace) -> None:
    alone, beside = list[float](), list[float]()
    with serving() as (fast, folder), serving() as (slow, _), running_server(folder) as server:
        control(fast, latency=LATENCY)
        control(slow, latency=LATENCY)
        targets: dict[str, dict[str, str | int]] = {"fast": {"kind": "openai", "base_url": fast, "model": "m"}}
        for number in range(PACED):
            targets[f"paced{number}"] = {"kind": "openai", "base_url": slow, "model": "m", "requests_per_minute": 6}
        (folder / "targets.yaml").write_text(json.dumps({"targets": targets}))
        write_golden(folder / "golden.json", {f"C{number}": {} for number in range(CASES)})
        with running_fleet(server.url, folder) as fleet:
            fleet.add(1, "--calls", str(LANES), "--targets", "targets.yaml")
            wait_until(lambda: server.client.scard("evalq:callers") == 1, "the process can call")
            for number in range(asked.times):
                alone.append(_rate(fast, folder, server.url, f"alone{number}", asked.calls))
                with _paced(slow, folder, server.url, number):
                    beside.append(_rate(fast, folder, server.url, f"beside{number}", asked.calls))
    both = [statistics.median(each) for each in (alone, beside)]
    print(f"{os.cpu_count()} cores; medians of {asked.times}; {LANES} calls in flight, {LATENCY:g} s each\n")
    print("| a fast sweep | calls/s | of alone |\n| --- | ---: | ---: |")
    print(f"| alone | {both[0]:.1f} | |")
    print(f"| beside {PACED} sweeps at 6 calls a minute | {both[1]:.1f} | {both[1] / both[0]:.1%} |", flush=True)


SECONDS = (0.05, 0.1, 0.2)
"""So long each call of a target of the matrix takes."""


def _matrix(times: int, calls: int) -> None:
    """Seconds of a matrix of three targets, one call at once each, and of a matrix of the slowest."""
    one, three = list[float](), list[float]()
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(serving()) for _ in SECONDS]
        folder, targets = servers[0][1], {}
        for (url, _), latency in zip(servers, SECONDS, strict=True):
            control(url, latency=latency)
            targets[f"t{latency:g}"] = {"kind": "openai", "base_url": url, "model": "m", "max_concurrency": 1}
        (folder / "targets.yaml").write_text(json.dumps({"targets": targets}))
        write_golden(folder / "golden.json", {f"C{number}": {} for number in range(CASES)})
        for number in range(times):
            for names, found in ((list(targets)[-1:], one), (list(targets), three)):
                name = f"{len(names)}-{number}"
                run = {
                    "evaluator": "vs",
                    "golden": "golden.json",
                    "repeat": calls // CASES,
                    "matrix": {"target": names},
                }
                (folder / "suite.json").write_text(json.dumps({"suite": name, "parallel": 3, "runs": [run]}))
                command = [*EVALQ, "run", "suite.json", "--targets", "targets.yaml", "--out", name, "--quiet"]
                began = time.monotonic()
                subprocess.run(
                    command, cwd=folder, env=clean_environment(), stdout=subprocess.DEVNULL, check=True, timeout=600
                )
                found.append(time.monotonic() - began)
    slowest, both = statistics.median(one), statistics.median(three)
    print(f"\n| a matrix of {calls} calls a target | seconds | of the slowest |\n| --- | ---: | ---: |")
    print(f"| the slowest target, {SECONDS[-1]:g} s a call | {slowest:.1f} | |")
    print(f"| three targets, parallel: 3 | {both:.1f} | {both / slowest:.1%} |")


def _rate(url: str, folder: Path, broker: str, name: str, calls: int) -> float:
    """Calls per second of a fast sweep, from its tenth call on to its last."""
    before = len(control(url)["log"])
    with _producer(folder, broker, "fast", calls // CASES, name) as producer:
        assert producer.wait() == 0, f"{name} failed: see {folder / name}.err"
    times = sorted(at for at, _ in control(url)["log"][before:])
    seconds: float = times[-1] - times[CASES - 1]
    return (len(times) - CASES) / seconds


@contextmanager
def _paced(url: str, folder: Path, broker: str, number: int) -> Iterator[None]:
    """Four sweeps that were paced already: each has made a call, and waits for the next one."""
    producers = []
    before = len(control(url)["log"])
    for each in range(PACED):
        producers.append(_producer(folder, broker, f"paced{each}", 100, f"paced{number}-{each}"))
        producers[-1].__enter__()
    try:
        wait_until(lambda: len(control(url)["log"]) >= before + PACED, "each has made a call")
        yield
    finally:
        for producer in producers:
            producer.send_signal(signal.SIGINT)
        for producer in producers:
            producer.wait()
        time.sleep(1)  # the process gives their calls back


def _producer(folder: Path, broker: str, target: str, repeat: int, name: str) -> subprocess.Popen[bytes]:
    command = [*EVALQ, "vs", "golden.json", "--target", target, "--repeat", str(repeat), "--out", name]
    with (folder / f"{name}.err").open("wb") as err:
        return subprocess.Popen(
            command, cwd=folder, env=clean_environment(EVALQ_BROKER=broker), stdout=subprocess.DEVNULL, stderr=err
        )


if __name__ == "__main__":
    main()
