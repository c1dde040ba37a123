"""CPU time of each process a row and a chunk, besides the kernel: `python -m tests.bench.costs`.

Real runs over a real server with a worker started before them. What the kernel took is written down in the worker's
processes by the evaluator ``timed``. Of two runs, one has twice the rows: what they differ by has no start in it,
nor the parts of a report that are as large for any run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.bench.growth_rows import write_short_rows
from tests.bench.throughput import make_rows
from tests.integration.harness import (
    EVALQ,
    Server,
    children_of,
    clean_environment,
    info,
    running_fleet,
    running_server,
    serves,
    wait_until,
)

TIMED = os.pathsep.join([str(Path(__file__).parent / "timed"), str(Path(__file__).parents[2])])
"""PYTHONPATH of commands and workers that know the evaluator `timed`."""
_SECONDS = ("producer", "pool", "attendant", "server", "kernel", "seconds", "wall_kernel")
_TICKS = os.sysconf("SC_CLK_TCK")


class Costs(msgspec.Struct):
    """CPU seconds of one run by who took them; ``kernel`` is a part of no other."""

    rows: int
    chunks: int
    seconds: float
    producer: float
    pool: float
    attendant: float
    server: float
    kernel: float
    wall_kernel: float
    commands: dict[str, tuple[int, float]]
    server_bytes: int
    all_chunks: int

    def less(self, other: Costs) -> Costs:
        """This without what ``other`` took."""
        names = ("rows", "chunks", *_SECONDS)
        return msgspec.structs.replace(self, **{n: getattr(self, n) - getattr(other, n) for n in names})


class Stage(msgspec.Struct):
    """A server, a worker with so many processes, and where the kernel's times are written."""

    folder: Path
    server: Server
    worker: subprocess.Popen[bytes]
    timed: Path

    def cpu(self) -> tuple[float, float, float]:
        """CPU seconds so far of the worker's pool, of its main process, and of the server."""
        assert self.server.process is not None
        pool = sum(map(cpu_seconds, children_of(self.worker.pid))) + cpu_seconds(
            self.worker.pid, of_ended_children=True
        )
        return pool, cpu_seconds(self.worker.pid), cpu_seconds(self.server.process.pid)

    def kernel(self) -> tuple[float, float]:
        """CPU and wall seconds of all kernels so far."""
        lines = [line.split() for file in self.timed.iterdir() for line in file.read_text().splitlines()]
        return sum(float(line[0]) for line in lines), sum(float(line[1]) for line in lines)


def cpu_seconds(pid: int, *, of_ended_children: bool = False) -> float:
    """CPU seconds of a process so far, or of its children that have ended (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = fields[13:15] if of_ended_children else fields[11:13]
    return (int(user) + int(system)) / _TICKS


def share_cores_alike(pid: int) -> None:
    """Linux gives each session its share of the cores: a worker is one of its own, and gets as much as this one."""
    mine, theirs = Path("/proc/self/autogroup"), Path(f"/proc/{pid}/autogroup")
    with contextlib.suppress(OSError):
        theirs.write_text(mine.read_text().split()[-1])


@contextmanager
def fleet_stage(folder: Path, processes: int = 1) -> Iterator[Stage]:
    """A server and a worker for the length of a block."""
    timed = folder / f"timed-{processes}"
    timed.mkdir()
    environment = {"PYTHONPATH": TIMED, "TIMED_FOLDER": str(timed)}
    with running_server(folder) as server, running_fleet(server.url, folder, **environment) as fleet:
        worker = fleet.add(processes, "--root", str(folder))
        share_cores_alike(worker.pid)
        wait_until(lambda: serves(server), "the worker serves")
        yield Stage(folder, server, worker, timed)


def measure(stage: Stage, path: Path, *options: str) -> Costs:
    """What one run over ``path`` took."""
    out = stage.folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    stage.server.client.config_resetstat()
    before, kernel_before = stage.cpu(), stage.kernel()
    words: list[str] = ["timed", str(path), "--broker", stage.server.url, "--out", str(out), "--format", "none"]
    words += options
    environment = clean_environment(PYTHONPATH=TIMED)
    began = os.times().elapsed
    command = subprocess.Popen([*EVALQ, *words], cwd=stage.folder, env=environment, stderr=subprocess.PIPE)
    _, status, usage = os.wait4(command.pid, 0)
    seconds = os.times().elapsed - began
    command.returncode = os.waitstatus_to_exitcode(status)
    assert command.returncode == 0, command.stderr.read() if command.stderr else ""
    after, kernel = stage.cpu(), stage.kernel()
    message: dict[str, Any] = stage.server.client.info("commandstats")
    commands = {n.removeprefix("cmdstat_"): (v["calls"], v["usec"] / 1e6) for n, v in message.items()}
    peak = stage.server.client.info("memory")["used_memory_peak"]
    report = msgspec.json.decode((out / "report.json").read_bytes())
    chunks = int(info(out).get("progress", {}).get("chunks") or 1)
    pool, attendant, server = (a - b for a, b in zip(after, before, strict=True))
    took, wall = (a - b for a, b in zip(kernel, kernel_before, strict=True))
    return Costs(
        report["records"]["total"],
        chunks,
        seconds,
        usage.ru_utime + usage.ru_stime,
        pool - took,
        attendant,
        server,
        took,
        wall,
        commands,
        peak,
        chunks,
    )


def _shown(name: str, found: Costs) -> list[str]:
    whole = found.producer + found.pool + found.attendant + found.server
    lines = []
    for what, seconds in (
        ("producer", found.producer),
        ("worker: pool process, less the kernel", found.pool),
        ("worker: main process", found.attendant),
        ("server", found.server),
        ("all but the kernel", whole),
        ("kernel", found.kernel),
    ):
        a_row, a_chunk = 1e6 * seconds / found.rows, 1e3 * seconds / found.chunks
        lines.append(f"| {name} | {what} | {a_row:.2f} | {a_chunk:.2f} |")
    return lines


def main() -> None:
    """Measure rows of 3 kB and of 100 bytes, in chunks of the usual size and in small ones."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.costs")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument(
        "--rows", type=int, default=110_000, help="of 3 kB; a report packs all records up to 100,000, so take more"
    )
    parser.add_argument("--short", type=int, default=1_000_000, help="rows of 100 bytes")
    parser.add_argument("--commands", action="store_true", help="what the server did, too")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="evalq-bench-") as scratch:
        folder = Path(scratch)
        files = {name: folder / f"{name}.csv" for name in ("one", "few", "long", "longer", "short", "shorter")}
        make_rows(files["few"], asked.rows)
        make_rows(files["long"], 2 * asked.rows)
        write_short_rows(files["short"], asked.short // 3)
        write_short_rows(files["shorter"], asked.short)
        ways = {
            "3 kB": (files["few"], files["long"], []),
            "100 B": (files["short"], files["shorter"], []),
            "3 kB, 100 a chunk": (files["few"], files["long"], ["--chunk-size", "100"]),
        }
        found: dict[str, list[Costs]] = {name: [] for name in ways}
        with fleet_stage(folder) as stage:
            for _ in range(asked.times):
                for name, (small, large, more) in ways.items():
                    found[name].append(measure(stage, large, *more).less(measure(stage, small, *more)))
    print("| rows | who | µs a row | ms a chunk |\n| --- | --- | ---: | ---: |")
    for name, several in found.items():
        print("\n".join(_shown(name, _median(several))), flush=True)
    for name, several in found.items() if asked.commands else ():
        for command, (calls, took) in sorted(several[-1].commands.items(), key=lambda item: -item[1][1])[:14]:
            chunks = several[-1].all_chunks
            print(f"{name}: {command} {calls / chunks:.2f} calls, {1e3 * took / chunks:.3f} ms a chunk")


def _median(several: list[Costs]) -> Costs:
    middle = {name: statistics.median(getattr(one, name) for one in several) for name in _SECONDS}
    return msgspec.structs.replace(several[0], **middle)


if __name__ == "__main__":
    main()
