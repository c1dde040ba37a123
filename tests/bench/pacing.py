"""`python -m tests.bench.pacing`: a fleet against a server whose limit it is not told.

The server (tests/agents/server.py, a process of its own) serves so many calls in any second and refuses the others. A
sweep by real processes that call finds 50 calls a second; then the limit halves and doubles. It takes two and a half
minutes a fleet.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.agents.server import write_golden
from tests.integration.harness import EVALQ, clean_environment, running_fleet, running_server, wait_until

LATENCY = 0.1
CASES = 10


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.pacing")
    parser.add_argument("--processes", type=int, nargs="*", default=[2, 4])
    asked = parser.parse_args()
    print(
        "| processes | limit/s | seconds | served/s | of the limit | 429s | calls |\n" + "| ---: " * 7 + "|", flush=True
    )
    for processes in asked.processes:
        _follow(processes)


def _follow(processes: int) -> None:
    """The limit is 50 for 40 s, 25 for 40 s, 50 again for 60 s; seconds are from the first call on."""
    marks = [(0, 50), (40, 25), (80, 50), (140, 0)]
    with serving() as (url, folder), running_server(folder) as server:
        control(url, latency=LATENCY, per_second=50)
        write_golden(folder / "golden.json", {f"C{number}": {} for number in range(CASES)})
        with running_fleet(server.url, folder) as fleet:
            for _ in range(processes):
                fleet.add(0, "--calls", "50", "--targets", "targets.yaml")
            wait_until(lambda: server.client.scard("evalq:callers") == processes, "all processes can call")
            command = [*EVALQ, "vs", "golden.json", "--target", "t", "--repeat", "10000", "--out", "run"]
            producer = subprocess.Popen(command, cwd=folder, env=clean_environment(EVALQ_BROKER=server.url))
            began = wait_until(lambda: control(url)["log"], "the first call")[0][0]
            for at, limit in marks[1:-1]:
                _rest(began + at)
                control(url, per_second=limit)
            _rest(began + marks[-1][0])
            log = control(url)["log"]
            producer.kill()
            producer.wait()
    for (start, limit), (end, _) in pairwise(marks):
        for low, high in ((start, start + 10), (start + 10, start + 20), (start + 20, end)):
            _row(processes, limit, [(at - began, status) for at, status in log], low, high)


def _row(processes: int, limit: int, log: Sequence[tuple[float, int]], low: float, high: float) -> None:
    inside = [status for at, status in log if low <= at < high]
    served = inside.count(200) / (high - low)
    refused = inside.count(429) / max(1, len(inside))
    print(f"| {processes} | {limit} | {low:.0f} to {high:.0f} | {served:.1f} | {served / limit:.1%} | {refused:.2%} "
          f"| {len(inside)} |", flush=True)  # fmt: skip


@contextmanager
def serving() -> Iterator[tuple[str, Path]]:
    """The server's base URL, and a folder with a targets file for it."""
    with tempfile.TemporaryDirectory(prefix="evalq-bench-") as name:
        folder = Path(name)
        port = folder / "port"
        process = subprocess.Popen([sys.executable, "-m", "tests.agents.server", str(port)])
        try:
            wait_until(lambda: port.exists() and port.read_text(), "the server listens")
            url = f"http://127.0.0.1:{port.read_text()}/v1"
            target = {"kind": "openai", "base_url": url, "model": "m", "timeout_seconds": 30}
            (folder / "targets.yaml").write_text(json.dumps({"targets": {"t": target}}))
            yield url, folder
        finally:
            process.kill()
            process.wait()


def control(url: str, **values: float) -> Any:
    """Set what the server does; returns its log of (time, status)."""
    request = Request(url.removesuffix("/v1") + "/control", json.dumps(values).encode())  # noqa: S310 - loopback
    with urlopen(request) as reply:  # noqa: S310 - loopback
        return json.load(reply)


def _rest(until: float) -> None:
    while time.time() < until:
        time.sleep(min(0.5, max(0.0, until - time.time())))


if __name__ == "__main__":
    main()
