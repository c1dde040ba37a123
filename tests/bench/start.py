"""What a command takes from its start to its end: 20, 100 and 20,000 rows of 3 kB, beside Python that does nothing.

CPU time is that of the command and of all processes that it has waited for, so without what `--workers` start. With
--before, another checkout's commands are run in turn with these, by its folder on the search path.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec

from tests.bench.throughput import make_rows
from tests.integration.harness import clean_environment, running_fleet, running_server, serves, wait_until

ROWS = (20, 100, 20_000)
_NOTHING = (sys.executable, "-c", "pass")
ARGS = {"by default": (), "--inline": ("--inline",), "--workers 2": ("--workers", "2")}


class Taken(msgspec.Struct, frozen=True):
    """Seconds of a whole command."""

    wall: float
    cpu: float


def taken(command: list[str], cwd: Path, environment: dict[str, str]) -> Taken:
    """Run a command to its end, which has to be a good one."""
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=cwd, env=environment, stderr=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return Taken(wall, used.ru_utime + used.ru_stime)


def evaluation(rows: Path, args: tuple[str, ...], cwd: Path, before: Path | None = None) -> Taken:
    """`evalq planagent` over ``rows``, as its user starts it; of the code in ``before`` where that is given."""
    out = cwd / "run"
    shutil.rmtree(out, ignore_errors=True)
    environment = clean_environment(**({"PYTHONPATH": str(before)} if before else {}))
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its byte code
    words = ["planagent", str(rows), *args, "--out", str(out), "--format", "none", "--quiet"]
    return taken([sys.executable, "-P", "-m", "evalq.producer.cli", *words], cwd, environment)


def interleaved(ways: dict[str, Callable[[], Taken]], times: int) -> dict[str, list[Taken]]:
    """All ways in turn, so often, after a first time that fills caches."""
    found: dict[str, list[Taken]] = {name: [] for name in ways}
    for number in range(times + 1):
        for name, way in ways.items():
            seconds = way()
            if number:
                found[name].append(seconds)
    return found


def table(times: int, before: Path | None) -> list[str]:
    """Measured now: lines of Markdown."""
    lines = ["| rows | way | wall s | (spread) | CPU s |", "| ---: | --- | ---: | --- | ---: |"]
    with tempfile.TemporaryDirectory(prefix="eq-") as folder, ExitStack() as stack:
        scratch = Path(folder)
        server = stack.enter_context(running_server(scratch))
        stack.enter_context(running_fleet(server.url, scratch)).add(2)
        wait_until(lambda: serves(server), "the fleet is warm")
        for rows in ROWS:
            path = scratch / f"rows{rows}.csv"
            make_rows(path, rows)
            ways: dict[str, Callable[[], Taken]] = {
                "python -c pass": lambda: taken([*_NOTHING], scratch, clean_environment()),
            }
            asked = {**ARGS, "--broker (a warm fleet)": ("--broker", server.url)}
            for name, args in asked.items():
                ways[name] = lambda path=path, args=args: evaluation(path, args, scratch)  # type: ignore[misc]  # mypy sees no defaults
                if before:
                    ways[f"{name}, before"] = lambda path=path, args=args: evaluation(path, args, scratch, before)  # type: ignore[misc]  # the same
            if before:
                ways.pop("--broker (a warm fleet), before")  # the fleet is of this code
            lines += [_line(rows, name, each) for name, each in interleaved(ways, times).items()]
    return lines


def _line(rows: int, name: str, each: list[Taken]) -> str:
    wall, cpu = [one.wall for one in each], statistics.median(one.cpu for one in each)
    return f"| {rows:,} | {name} | {statistics.median(wall):.2f} | {min(wall):.2f} to {max(wall):.2f} | {cpu:.2f} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.start")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--before", type=Path, help="a checkout of the code to compare with")
    asked = parser.parse_args()
    print("\n".join(table(asked.times, asked.before)))


if __name__ == "__main__":
    main()
