"""A model of a fleet: what a chunk and a record cost here, and what that makes of 2 to 2,000 workers.

`python -m tests.bench.scale` measures the costs on this machine, holds the model's throughput of 1, 2 and 4 local
workers against real runs, and simulates fleets whose every process has a core of its own, 1 ms from each other.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import msgspec

from evalq.evalcore.model.manifest import Chunk, Header
from evalq.evalcore.version import code_version
from evalq.workers.address import read_address
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.servers.connections import connect
from evalq.workers.settings import TIMINGS, Settings
from tests.bench.costs import Costs, cpu_seconds, fleet_stage, measure
from tests.bench.fleet_model import Model, Simulated, simulate
from tests.bench.throughput import make_rows
from tests.integration.harness import running_server
from tests.samples import KEY

_LOCAL = (1, 2, 4)
_FLEETS = (2, 4, 8, 16, 64, 250, 1_000, 2_000)
_KERNELS = (1, 10, 100, 1_000)
_SMALL = 100
"""Records of a small chunk: enough of them that a run has hundreds."""
_HEAD = (
    "| workers | records/s | a worker busy | producer busy | ledger busy | limit |",
    "| ---: | ---: | ---: | ---: | ---: | --- |",
)


def fitted(small: Costs, large: Costs) -> Model:
    """Costs by chunk and by record of two runs that differ in how many records a chunk has: two equations each."""

    def of(name: str) -> tuple[float, float]:
        a, b = getattr(small, name), getattr(large, name)
        # a = chunks * per chunk + rows * per record, of both runs
        determinant = small.chunks * large.rows - large.chunks * small.rows
        per_chunk = (a * large.rows - b * small.rows) / determinant
        per_record = (small.chunks * b - large.chunks * a) / determinant
        return max(0.0, per_chunk), max(0.0, per_record)

    producer, pool, attendant, server = map(of, ("producer", "pool", "attendant", "server"))
    kernel = large.kernel / large.rows
    worker = (pool[0] + attendant[0], pool[1] + attendant[1])
    return Model(producer, worker, server, kernel, records=large.rows / large.chunks)


def server_costs(folder: Path) -> tuple[float, float, float]:
    """Seconds of the server for a heartbeat, for a look, and for each chunk in flight that a look meets."""
    with running_server(folder) as server:
        assert server.process is not None
        process = server.process.pid
        settings = Settings(broker=server.url, window=2_000)
        client = connect(read_address(server.url), settings)
        ledger, register = RunLedger(client, settings), Heartbeats(client)
        header = Header("scale", "planagent", "1", code_version(), {}, ())
        epoch = ledger.open(header, 1, key=KEY)
        chunks = [Chunk(seq, 0, seq, seq + 1, seq + 1, 1, f"{seq:064x}") for seq in range(2_000)]
        ledger.append("scale", chunks, 0)

        def spent(times: int, step: str) -> float:
            before = cpu_seconds(process)
            for _ in range(times):
                if step == "beat":
                    register.beat("worker", {"host": "h", "pid": 1, "code": code_version()}, TIMINGS.life)
                else:
                    ledger.poll("scale")
            return (cpu_seconds(process) - before) / times

        beat, look = spent(4_000, "beat"), spent(4_000, "look")
        ledger.take("scale", epoch=epoch)
        return beat, look, max(0.0, (spent(200, "look") - look) / 2_000)


def measured(folder: Path, rows: int, times: int) -> tuple[Model, dict[int, float]]:
    """The model's costs of rows of 3 kB, and records a second of real runs with so many local workers."""
    few, many = folder / "few.csv", folder / "many.csv"
    make_rows(few, rows)
    make_rows(many, 2 * rows)
    small, large = [], []
    rates: dict[int, list[float]] = {count: [] for count in _LOCAL}
    for count in _LOCAL:
        with fleet_stage(folder, count) as stage:
            measure(stage, few)  # loads what the workers need
            for _ in range(times):
                found = measure(stage, many).less(measure(stage, few))
                rates[count].append(found.rows / found.seconds)
                if count == 1:
                    large.append(found)
                    size = ("--chunk-size", str(_SMALL))
                    small.append(measure(stage, many, *size).less(measure(stage, few, *size)))
    model = fitted(_middle(small), _middle(large))
    beat, look, flight = server_costs(folder)
    model = msgspec.structs.replace(model, beat=beat, look=look, flight=flight)
    return model, {count: statistics.median(found) for count, found in rates.items()}


def _middle(several: list[Costs]) -> Costs:
    names = ("producer", "pool", "attendant", "server", "kernel")
    return msgspec.structs.replace(
        several[0], **{name: statistics.median(getattr(one, name) for one in several) for name in names}
    )


def _told(model: Model) -> list[str]:
    lines = ["| who | ms a chunk | µs a record |", "| --- | ---: | ---: |"]
    for name in ("producer", "worker", "server"):
        chunk, record = getattr(model, name)
        shown = "worker, without the kernel" if name == "worker" else name
        lines.append(f"| {shown} | {1e3 * chunk:.2f} | {1e6 * record:.2f} |")
    lines.append(f"| kernel | | {1e6 * model.kernel:.2f} |")
    lines += [
        "",
        f"A chunk has {model.records:,.0f} records. The server takes",
        f"{1e6 * model.beat:.0f} µs for a worker's heartbeat (every {TIMINGS.beat:g} s),",
        f"{1e6 * model.look:.0f} µs for a look and {1e6 * model.flight:.1f} µs more for each chunk in flight.",
    ]
    return lines


def _checked(model: Model, rates: dict[int, float]) -> list[str]:
    lines = ["| workers | measured, records/s | model | model / measured |", "| ---: | ---: | ---: | ---: |"]
    for count, rate in rates.items():
        found = simulate(model, count, cores=os.cpu_count() or 1, delay=0.0)
        ratio = found.records_a_second / rate
        lines.append(f"| {count} | {rate:,.0f} | {found.records_a_second:,.0f} | {ratio:.2f} |")
    return lines


def _fleets(model: Model) -> list[str]:
    lines = []
    for times in _KERNELS:
        slower = msgspec.structs.replace(model, kernel=times * model.kernel)
        for window in (64, 4_000):
            lines += ["", f"Kernel of {1e6 * slower.kernel:,.0f} µs a record, window {window:,}:", ""]
            lines += _HEAD
            lines += [_row(count, simulate(slower, count, window=window)) for count in _FLEETS]
    return lines


def _row(count: int, found: Simulated) -> str:
    busy = f"{found.worker:.0%} | {found.producer:.0%} | {found.server:.0%}"
    return f"| {count:,} | {found.records_a_second:,.0f} | {busy} | {found.limit} |"


def main() -> None:
    """Measure, check, simulate, and print docs/reference/scale.md's tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scale")
    parser.add_argument("--rows", type=int, default=110_000)
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="evalq-bench-") as scratch:
        model, rates = measured(Path(scratch), asked.rows, asked.times)
    print("\n".join(["## Costs", "", *_told(model), "", "## The model against real runs", "", *_checked(model, rates)]))
    print("\n".join(["", "## Fleets", *_fleets(model)]))
    print(f"\n({time.monotonic() - began:.0f} s)")


if __name__ == "__main__":
    main()
