"""What grows with an input: `python -m tests.bench.growth`.

Rows of 100 bytes, made while they are read through a pipe, with up to 100,000 Query IDs; a server and one worker. For
each number of rows: CPU time of a row by process, and each process's high-water mark.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

import msgspec

from tests.bench.costs import TIMED, Stage, fleet_stage
from tests.bench.growth_rows import QUERIES, short_rows
from tests.integration.harness import EVALQ, children_of, clean_environment, info


class Grown(msgspec.Struct):
    """What a run took: ``microseconds`` a row of all processes, peaks in MB, and of the server what it held."""

    rows: int
    chunks: int
    seconds: float
    microseconds: float
    producer: float
    worker: float
    server: float


def grown(stage: Stage, rows: int, queries: int = QUERIES) -> Grown:
    """One run over ``rows`` made rows, its input a pipe."""
    out = stage.folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    words = ["planagent", "-", "--broker", stage.server.url, "--out", str(out), "--format", "none"]
    before = sum(stage.cpu())
    began = os.times().elapsed
    environment = clean_environment(PYTHONPATH=TIMED, TMPDIR=str(stage.folder))
    command = subprocess.Popen(
        [*EVALQ, *words], cwd=stage.folder, env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    writer = threading.Thread(target=_write, args=(command, rows, queries))
    writer.start()
    peaks = {0: 0.0}
    while (ended := os.wait4(command.pid, os.WNOHANG))[0] == 0:
        for pid in children_of(stage.worker.pid):
            peaks[pid] = max(peaks.get(pid, 0.0), _high_water(pid))
        writer.join(0.5) if writer.is_alive() else threading.Event().wait(0.5)
    writer.join()
    seconds = os.times().elapsed - began
    command.returncode = os.waitstatus_to_exitcode(ended[1])
    assert command.returncode == 0, command.stderr.read() if command.stderr else ""
    usage = ended[2]
    cpu = sum(stage.cpu()) - before + usage.ru_utime + usage.ru_stime
    report = msgspec.json.decode((out / "report.json").read_bytes())
    assert report["records"]["total"] == rows
    assert stage.server.process is not None
    return Grown(
        rows,
        int(info(out)["progress"]["chunks"]),
        seconds,
        1e6 * cpu / rows,
        usage.ru_maxrss / 1024,
        max(peaks.values()),
        _high_water(stage.server.process.pid),
    )


def _write(command: subprocess.Popen[bytes], rows: int, queries: int) -> None:
    assert command.stdin is not None
    with command.stdin as out:
        out.writelines(short_rows(rows, queries))


def _high_water(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


def main() -> None:
    """Run each number of rows, in a fleet of its own, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.growth")
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--queries", type=int, default=QUERIES, help="most Query IDs")
    asked = parser.parse_args()
    print("| rows | Query IDs | chunks | s | CPU µs a row | producer MB | worker process MB | server MB |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for rows in asked.rows:
        queries = min(asked.queries, rows)
        with tempfile.TemporaryDirectory(prefix="evalq-bench-") as scratch, fleet_stage(Path(scratch)) as stage:
            found = grown(stage, rows, queries)
        sizes = f"{found.producer:.0f} | {found.worker:.0f} | {found.server:.0f}"
        print(
            f"| {rows:,} | {queries:,} | {found.chunks} | {found.seconds:.1f} | {found.microseconds:.2f} | {sizes} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
