"""`python -m tests.bench.checks_live`: a whole suite of checks over live calls, at the limit that a server states.

5,000 cases with five checks each, 20 repeats: 100,000 calls, by two processes that call, of a server that refuses what
comes beyond its limit in any second (tests/agents/server.py, its own process). The target's file states 14 of 15 of
that limit. The ledger, the producer and the evaluation share the same cores.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import time
from pathlib import Path

from tests.bench.pacing import control, serving
from tests.bench.sweeps import cpu_seconds, peak_megabytes
from tests.integration.harness import EVALQ, clean_environment, running_fleet, running_server, wait_until

_CHECKS = [
    {"contains": "{{id}}"},
    {"json-path": "$.n", "min": 1},
    {"max-length": 2000},
    "not-refusal",
    {"max-latency": 60},
]
IN_FLIGHT, LATENCY = 200, 0.2
_STATED = 14 / 15
"""Of the limit: calls that arrive unevenly are refused at the whole of it, and a refusal costs more than the rest."""


def main() -> None:
    """Measure once and print a Markdown row."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.checks_live")
    parser.add_argument("--cases", type=int, default=5_000)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--limit", type=int, default=250, help="calls a second")
    asked = parser.parse_args()
    head = "calls | limit/s | calls/s | of the limit | refused | MB a process | CPU s a process | producer s, MB"
    print(f"| {head} | whole, s | passed |")
    print("| ---: " * 10 + "|", flush=True)
    _measure(asked.cases, asked.repeat, asked.limit)


def _measure(cases: int, repeat: int, limit: int) -> None:
    with serving() as (url, folder), running_server(folder) as server:
        control(url, latency=LATENCY, per_second=limit)
        _write(folder, url, cases, limit)
        with running_fleet(server.url, folder) as fleet:
            processes = [fleet.add(0, "--calls", str(IN_FLIGHT // 2), "--targets", "targets.yaml") for _ in range(2)]
            wait_until(lambda: server.client.scard("evalq:callers") == 2, "both processes can call")
            began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [*EVALQ, "checks", "cases.yaml", "--target", "t", "--repeat", str(repeat), "--out", "run"]
            options = ["--format", "none", "--workers", "1"]
            subprocess.run([*command, *options], cwd=folder, env=clean_environment(EVALQ_BROKER=server.url), check=True)
            whole, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
            memory = [peak_megabytes(process.pid) for process in processes]
            cpu = [cpu_seconds(process.pid) for process in processes]
        log = control(url)["log"]
        outputs = json.loads((folder / "run" / "report.json").read_bytes())["results"]["outputs"]
    served = [at for at, status in log if status == 200]
    pace = len(served) / (max(served) - min(served))
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"| {len(served)} | {limit} | {pace:.0f} | {pace / limit:.0%} | {len(log) - len(served)} "
          f"| {' and '.join(f'{value:.0f}' for value in memory)} | {' and '.join(f'{value:.0f}' for value in cpu)} "
          f"| {spent:.0f}, {after.ru_maxrss / 1024:.0f} | {whole:.0f} | {outputs['passed']} |", flush=True)  # fmt: skip


def _write(folder: Path, url: str, cases: int, limit: int) -> None:
    listed = [{"id": f"case-{number}", "input": f"Say case-{number}."} for number in range(cases)]
    defaults = {"checks": _CHECKS, "thresholds": {"pass-rate": 0.8}}
    (folder / "cases.yaml").write_text(json.dumps({"defaults": defaults, "cases": listed}))
    target = {"kind": "openai", "base_url": url, "model": "m", "max_concurrency": IN_FLIGHT,
              "requests_per_minute": _STATED * 60 * limit}  # fmt: skip
    (folder / "targets.yaml").write_text(json.dumps({"targets": {"t": target}}))


if __name__ == "__main__":
    main()
