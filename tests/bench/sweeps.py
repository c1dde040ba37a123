"""`python -m tests.bench.sweeps`: a whole sweep over slow calls, as a share of what its calls in flight allow.

10,000 calls of 500 ms, 200 in flight on two processes that call: 400 calls a second would be ideal. The server is
tests/agents/server.py in a process of its own; the ledger, the producer and the evaluation share the same cores.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import time
from pathlib import Path

from tests.agents.server import write_golden
from tests.bench.pacing import control, serving
from tests.integration.harness import EVALQ, clean_environment, running_fleet, running_server, wait_until

CASES = 10


def main() -> None:
    """Measure and print a Markdown row a run."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sweeps")
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--in-flight", type=int, default=200)
    parser.add_argument("--latency", type=float, default=0.5)
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    print("| calls | in flight | calls/s | of the ideal | MB a process | CPU s a process | producer s, MB | whole, s |")
    print("| ---: " * 8 + "|", flush=True)
    for _ in range(asked.times):
        _one(asked.calls, asked.in_flight, asked.latency)


def _one(calls: int, in_flight: int, latency: float) -> None:
    with serving() as (url, folder), running_server(folder) as server:
        control(url, latency=latency)
        write_golden(folder / "golden.json", {f"C{number}": {"share": 0.1 * number} for number in range(CASES)})
        target = {"kind": "openai", "base_url": url, "model": "m", "max_concurrency": in_flight,
                  "requests_per_minute": 120 * in_flight / latency}  # fmt: skip
        (folder / "targets.yaml").write_text(json.dumps({"targets": {"slow": target}}))
        with running_fleet(server.url, folder) as fleet:
            processes = [fleet.add(0, "--calls", str(in_flight // 2), "--targets", "targets.yaml") for _ in range(2)]
            wait_until(lambda: server.client.scard("evalq:callers") == 2, "both processes can call")
            began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [*EVALQ, "vs", "golden.json", "--target", "slow", "--repeat", str(calls // CASES), "--out", "run"]
            options = ["--format", "none", "--workers", "1"]
            subprocess.run([*command, *options], cwd=folder, env=clean_environment(EVALQ_BROKER=server.url), check=True)
            whole, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
            memory = [peak_megabytes(process.pid) for process in processes]
            cpu = [cpu_seconds(process.pid) for process in processes]
        log = [at for at, status in control(url)["log"] if status == 200]
    took = max(log) - min(log) + latency
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"| {len(log)} | {in_flight} | {len(log) / took:.0f} | {len(log) / took / (in_flight / latency):.0%} "
          f"| {' and '.join(f'{value:.0f}' for value in memory)} | {' and '.join(f'{value:.1f}' for value in cpu)} "
          f"| {spent:.1f}, {after.ru_maxrss / 1024:.0f} | {whole:.1f} |", flush=True)  # fmt: skip


def peak_megabytes(pid: int) -> float:
    """Most memory a process had, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def cpu_seconds(pid: int) -> float:
    """CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    main()
