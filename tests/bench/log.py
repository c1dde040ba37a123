"""The log pass beside its rivals: `python -m tests.bench.log [--gigabytes 1] [--times 5] [--rivals FOLDER]`.

A core: evalq's evaluation of a chunk beside plain loops over `json.loads` and over msgspec, in CPU seconds, each
chunk by all ways in turn. End to end: the whole command by default, with `--workers 2` and `--inline`, beside polars
(streaming) and duckdb with two threads, in turn, with equal answers: seconds by the clock from start to exit, CPU
seconds of all processes, and the most memory that all of them have at once (in runs of their own). polars and duckdb
are installed into an environment of their own (FOLDER, kept; else a temporary one).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.evaluators.cooperation import columns, evaluator
from evalq.evalcore.evaluators.cooperation.sample import write_events
from evalq.evalcore.model.manifest import read_span
from evalq.evalcore.records.cut import Cutter
from tests.bench.memory import EVENT_BYTES
from tests.bench.whole import Whole, adopting, memory_of, taken

HERE = Path(__file__).parent / "rivals"
COOPERATIVE = {"assist", "contribute", "cooperate", "join", "support"}
BETRAYAL = {"betray", "defect", "sabotage", "steal"}
CHUNKS = 8


class Plain:
    """The numbers of a log in a loop over its rows."""

    def __init__(self) -> None:
        self.cooperative = self.drops = self.recoveries = self.waits = 0
        self.turns: set[int] = set()
        self.rows: dict[str, int] = {}
        self.stone: dict[str, float] = {}
        self.given: dict[str, float] = {}
        self.pending: dict[str, int] = {}

    def add(self, turn: int, agent: str, decision: str | None, stone: Any) -> None:
        """Count a row."""
        self.turns.add(turn)
        self.rows[agent] = self.rows.get(agent, 0) + 1
        word = (decision or "").lower()
        if word in COOPERATIVE:
            self.cooperative += 1
            wait = turn - self.pending.pop(agent, turn)
            if wait > 0:
                self.recoveries += 1
                self.waits += wait
        elif word in BETRAYAL:
            self.pending[agent] = turn
        if stone is not None:
            now = float(stone)
            if (fall := self.stone.get(agent, now) - now) > 0:
                self.drops += 1
                self.given[agent] = self.given.get(agent, 0.0) + fall
            self.stone[agent] = now

    def numbers(self) -> dict[str, Any]:
        """As the rivals print them."""
        return {
            "cooperative": self.cooperative,
            "turns": len(self.turns),
            "rows": self.rows,
            "given": self.given,
            "drops": self.drops,
            "waits": [self.waits, self.recoveries],
        }


class _Row(msgspec.Struct, gc=False):
    turn: int
    agent: str
    decision: str | None = None
    resources: dict[str, int | float | str] | None = None


def by_json(data: bytes) -> dict[str, Any]:
    """A loop over the lines with the standard library."""
    plain = Plain()
    for line in data.splitlines():
        row = json.loads(line)
        plain.add(row["turn"], row["agent"], row.get("decision"), (row.get("resources") or {}).get("stone"))
    return plain.numbers()


def by_msgspec(data: bytes) -> dict[str, Any]:
    """The same loop over typed rows."""
    plain = Plain()
    for row in msgspec.json.Decoder(_Row).decode_lines(data):
        plain.add(row.turn, row.agent, row.decision, row.resources.get("stone") if row.resources else None)
    return plain.numbers()


def by_evalq(data: bytes) -> dict[str, Any]:
    """The state of a chunk, as a worker computes it."""
    return told(evaluator.evaluate(Batch("log", 1, data), evaluator.Params()).state)


def told(state: Any) -> dict[str, Any]:
    """A state as the rivals print it."""
    agents = state.agents.items()
    return {
        "cooperative": state.cooperative,
        "turns": state.total_turns,
        "rows": {name: own.rows for name, own in agents},
        "given": {name: own.total() for name, own in agents if own.drops},
        "drops": sum(own.drops for _, own in agents),
        "waits": [sum(own.recovery_turns for _, own in agents), sum(own.recoveries for _, own in agents)],
    }


def in_python(data: bytes) -> dict[str, Any]:
    """The same where nothing is compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "compiled_log", lambda: None)
        return by_evalq(data)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two ways found the same, sums of floats but for their last digits."""
    given, its = one["given"], other["given"]
    close = given.keys() == its.keys() and all(math.isclose(given[name], its[name], rel_tol=1e-9) for name in given)
    keys = ("cooperative", "turns", "rows", "drops")
    return close and list(one["waits"]) == list(other["waits"]) and all(one[key] == other[key] for key in keys)


def a_core(path: Path, times: int) -> None:
    """Print CPU microseconds an event of each way, and how many times the plain loop's speed that is."""
    ways: dict[str, Callable[[bytes], dict[str, Any]]] = {
        "json.loads, a plain loop": by_json,
        "msgspec, typed rows, the same loop": by_msgspec,
        "evalq, Python alone": in_python,
        "evalq": by_evalq,
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for data in _chunks(path, CHUNKS):
        events = data.count(b"\n")
        for _ in range(times):
            found = []
            for name, way in ways.items():
                began = time.process_time()
                found.append(way(data))
                taken[name].append((time.process_time() - began) / events)
            assert all(same(found[0], each) for each in found)
    print("\n| a core | CPU µs an event | times the plain loop |\n| --- | ---: | ---: |")
    plain = taken["json.loads, a plain loop"]
    for name, each in taken.items():
        ratio = statistics.median(a / b for a, b in zip(plain, each, strict=True))
        print(f"| {name} | {statistics.median(each) * 1e6:.2f} | {ratio:.1f} |", flush=True)


def _chunks(path: Path, most: int) -> Iterator[bytes]:
    with path.open("rb") as stream:
        for _, span in zip(range(most), Cutter(stream, "jsonl", path.name).spans(), strict=False):
            yield read_span(path, span)


def whole(path: Path, scratch: Path, rivals: Path, times: int) -> None:
    """Print seconds and megabytes of the whole commands."""
    adopting()
    python = _environment(rivals)
    out = scratch / "run"
    ours: list[str | Path] = [
        sys.executable,
        "-m",
        "evalq.producer.cli",
        "cooperation",
        path,
        "--format",
        "none",
        "--run-dir",
        out,
    ]
    ways: dict[str, list[str | Path]] = {
        "evalq": ours,
        "evalq --workers 2": [*ours, "--workers", "2"],
        "evalq --inline": [*ours, "--inline"],
        "polars, streaming": [python, HERE / "log_polars.py", path],
        "duckdb": [python, HERE / "log_duckdb.py", path, "2"],
    }
    found: dict[str, list[Whole]] = {name: [] for name in ways}
    answers: dict[str, dict[str, Any]] = {}
    for _ in range(times):
        for name, command in ways.items():
            shutil.rmtree(out, ignore_errors=True)
            load = os.getloadavg()[0]
            found[name].append(one := taken(command, scratch))
            print(f"  {name}: {one.seconds:.2f} s, {one.cpu:.2f} s of CPU (load before: {load:.1f})", flush=True)
            answers[name] = _metrics(out) if name.startswith("evalq") else json.loads(one.said)
    for name in ways:
        if name.startswith("evalq"):
            _agree(answers, name)
    print(f"\n| {path.stat().st_size / 1e6:,.0f} MB, two cores | s | CPU s | MB |\n| --- | ---: | ---: | ---: |")
    for name, command in ways.items():
        memory = statistics.median(_emptied(out, command, scratch) for _ in range(3))
        clock, cpu = (statistics.median(getattr(one, field) for one in found[name]) for field in ("seconds", "cpu"))
        print(f"| {name} | {clock:.2f} | {cpu:.2f} | {memory:.0f} |", flush=True)


def _emptied(out: Path, command: list[str | Path], scratch: Path) -> float:
    shutil.rmtree(out, ignore_errors=True)
    return memory_of(command, scratch)


def _environment(folder: Path) -> Path:
    python = folder / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        packages = ["polars", "duckdb"]
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True, capture_output=True)
    return python


def _metrics(out: Path) -> dict[str, Any]:
    (entry,) = json.loads((out / "report.json").read_bytes())["results"]["logs"].values()
    assert isinstance(entry, dict)
    return entry


def _agree(answers: dict[str, dict[str, Any]], name: str) -> None:
    """The rivals say the same, and evalq's metrics are those of their numbers."""
    ours, theirs = answers[name], answers["polars, streaming"]
    assert same(theirs, answers["duckdb"])
    assert ours["message_counts"] == theirs["rows"]
    assert ours["metadata"]["total_turns"] == theirs["turns"]
    assert math.isclose(ours["cooperation_rate"], theirs["cooperative"] / sum(theirs["rows"].values()))
    assert math.isclose(ours["average_contribution"], sum(theirs["given"].values()) / theirs["drops"])
    assert math.isclose(ours["average_recovery_time"], theirs["waits"][0] / theirs["waits"][1])
    assert all(math.isclose(ours["contributions"][name], given) for name, given in theirs["given"].items())


def main() -> None:
    """Make the log, and measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.log")
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--rivals", type=Path, help="where polars and duckdb are, or are to be installed")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="evalq-bench-") as folder:
        path = Path(folder) / "log.jsonl"
        with path.open("wb") as stream:
            write_events(stream, int(asked.gigabytes * 1e9) // EVENT_BYTES, seed=1)
        a_core(path, asked.times)
        whole(path, Path(folder), asked.rivals or Path(folder) / "rivals", asked.times)


if __name__ == "__main__":
    main()
