"""Peak memory of every process of a command, on inputs of a given size: `python -m tests.bench.memory`."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from pathlib import Path

from evalq.evalcore.evaluators.cooperation.sample import write_events
from evalq.evalcore.evaluators.planagent.sample import write_rows
from tests.integration.harness import children_of, start_evalq

ROW_BYTES, EVENT_BYTES = 3_050, 241


def descendants(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for parent in found:
        found.extend(child for child in children_of(parent) if child not in found)
    return found


def peaks(*args: str | Path, cwd: Path) -> dict[str, float]:
    """Peak resident MB by kind of process: the kernel's own high-water mark, read until the command ends."""
    command = start_evalq(*args, cwd=cwd)
    found: dict[str, float] = {}
    while command.poll() is None:
        for pid in descendants(command.pid):
            with contextlib.suppress(OSError, StopIteration):
                status = Path(f"/proc/{pid}/status").read_text().splitlines()
                line = next(line for line in status if line.startswith("VmHWM:"))
                kind = _kind(pid, command.pid)
                found[kind] = max(found.get(kind, 0.0), int(line.split()[1]) / 1024)
    _, said = command.communicate()
    assert command.returncode == 0, said
    return found


def _kind(pid: int, producer: int) -> str:
    line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    if pid == producer:
        return "producer"
    if b"/bin/sh" in line:
        return "guard"
    return "worker process" if b"worker" in line else "server"


def main() -> None:
    """Make a CSV and a log of ``--gigabytes`` each, run both, and print the peaks."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.memory")
    parser.add_argument("--gigabytes", type=float, default=1.0)
    asked = parser.parse_args()
    size = int(asked.gigabytes * 1e9)
    with tempfile.TemporaryDirectory(prefix="evalq-bench-") as folder:
        scratch = Path(folder)
        rows, events = size // ROW_BYTES, size // EVENT_BYTES
        with (scratch / "rows.csv").open("w", encoding="utf-8", newline="") as out:
            write_rows(out, rows, seed=1, queries=rows // 3, rounds=["1/1", "2/1", "3/1", "4/1"])
        with (scratch / "log.jsonl").open("wb") as stream:
            write_events(stream, events, seed=1)
        for command, name in (("planagent", "rows.csv"), ("cooperation", "log.jsonl")):
            megabytes = (scratch / name).stat().st_size / 1e6
            found = peaks(command, name, "--format", "none", "--run-dir", scratch / command, cwd=scratch)
            shown = ", ".join(f"{kind} {peak:.0f} MB" for kind, peak in sorted(found.items()))
            print(f"{command}, {megabytes:.0f} MB: {shown}", flush=True)


if __name__ == "__main__":
    main()
