"""`python -m tests.bench.pacing`: a fleet against a server whose limit it is not told, and many calls in flight.

The server (tests/agents/server.py, a process of its own) serves so many calls in any second and refuses the others.
First the fleet finds 50 calls a second, then the limit halves and doubles; then 10,000 calls of 500 ms, 200 of them in
flight on two processes. It takes eight minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
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

import redis

from tests.integration.harness import running_server, wait_until
from workers.pacing import Pacer
from workers.targets import Call, Caller, Failure, call_paced, limits_of, load_targets

LATENCY = 0.1


def main() -> None:
    """Measure and print Markdown tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.pacing")
    parser.add_argument("--processes", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--calls", type=int, default=10_000, help="calls of the second measurement; 0: without it")
    asked = parser.parse_args()
    print(
        "| processes | limit/s | seconds | served/s | of the limit | 429s | calls |\n" + "| ---: " * 7 + "|", flush=True
    )
    for processes in asked.processes:
        _follow(processes)
    if asked.calls:
        _many(asked.calls)


def _follow(processes: int) -> None:
    """The limit is 50 for 40 s, 25 for 40 s, 50 again for 60 s."""
    with serving() as (url, folder), running_server(folder) as pace:
        control(url, latency=LATENCY, per_second=50)
        began = time.time()
        fleet = [_caller(url, pace.url, folder, in_flight=50, seconds=140) for _ in range(processes)]
        marks = [(0, 50), (40, 25), (80, 50), (140, 0)]
        for at, limit in marks[1:-1]:
            _rest(began + at)
            control(url, per_second=limit)
        for process in fleet:
            process.wait()
        log = control(url)["log"]
    for (start, limit), (end, _) in pairwise(marks):
        for low, high in ((start, start + 10), (start + 10, start + 20), (start + 20, end)):
            _row(processes, limit, [(at - began, status) for at, status in log], low, high)


def _row(processes: int, limit: int, log: Sequence[tuple[float, int]], low: float, high: float) -> None:
    inside = [status for at, status in log if low <= at < high]
    served = inside.count(200) / (high - low)
    refused = inside.count(429) / max(1, len(inside))
    print(f"| {processes} | {limit} | {low:.0f} to {high:.0f} | {served:.1f} | {served / limit:.1%} | {refused:.2%} "
          f"| {len(inside)} |", flush=True)  # fmt: skip


def _many(calls: int) -> None:
    """All calls by two processes with 100 in flight each, against 500 ms of latency and no limit."""
    with serving() as (url, folder), running_server(folder) as pace:
        control(url, latency=0.5)
        fleet = [_caller(url, pace.url, folder, in_flight=100, calls=calls // 2) for _ in range(2)]
        found = [json.loads(process.communicate()[0]) for process in fleet]
        log = control(url)
    seconds = max(at for at, _ in log["log"]) - min(one["began"] for one in found)
    answered = sum(one["answered"] for one in found)
    print("\n| calls | answered | seconds | calls/s | of the ideal 400/s | MB a process | CPU s a process |")
    print("| ---: " * 7 + "|")
    megabytes, cpu = max(one["megabytes"] for one in found), max(one["cpu"] for one in found)
    rate = answered / seconds
    print(f"| {calls} | {answered} | {seconds:.1f} | {rate:.0f} | {rate / 400:.1%} | {megabytes:.0f} | {cpu:.1f} |")


@contextmanager
def serving() -> Iterator[tuple[str, Path]]:
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


def _caller(url: str, pace: str, folder: Path, **plan: float) -> subprocess.Popen[bytes]:
    order = json.dumps({"pace": pace, "targets": str(folder / "targets.yaml"), **plan})
    return subprocess.Popen([sys.executable, "-m", "tests.bench.pacing", "--caller", order], stdout=subprocess.PIPE)


def control(url: str, **values: float) -> Any:
    request = Request(url.removesuffix("/v1") + "/control", json.dumps(values).encode())  # noqa: S310 - loopback
    with urlopen(request) as reply:  # noqa: S310 - loopback
        return json.load(reply)


def _rest(until: float) -> None:
    while time.time() < until:
        time.sleep(min(0.5, max(0.0, until - time.time())))


async def _call(order: dict[str, Any]) -> None:
    """One process of the fleet: ``in_flight`` lanes call until ``calls`` are done or ``seconds`` are over."""
    named = load_targets(order["targets"])["t"]
    client = redis.Redis.from_url(order["pace"])
    began = time.time()
    left, answered = int(order.get("calls", 1 << 40)), 0
    async with Caller(named) as caller, Pacer(client, "t", limits_of(named)) as pacer:

        async def lane() -> None:
            nonlocal left, answered
            while left > 0 and time.time() < began + order.get("seconds", 1e9):
                left -= 1
                attempts = await call_paced(caller, pacer, Call("a prompt"))
                answered += not isinstance(attempts[-1], Failure)

        await asyncio.gather(*(lane() for _ in range(int(order["in_flight"]))))
    used = resource.getrusage(resource.RUSAGE_SELF)
    told = {"began": began, "answered": answered, "megabytes": used.ru_maxrss / 1024,
            "cpu": used.ru_utime + used.ru_stime}  # fmt: skip
    print(json.dumps(told))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--caller"]:
        asyncio.run(_call(json.loads(sys.argv[2])))
    else:
        main()
