"""Many cases with an output each, beside the loop that one would write: whole commands from their start to their exit.

    python -m tests.bench.cases [--cases 10000 100000] [--times 3]

The loop (tests/bench/rivals/plain_checks.py) reads both files, does the same two checks and writes a record for each
output; both have to find the same number that pass. Also told: the most memory of a process, and how large the files
are of which there is one a run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
from pathlib import Path

from tests.bench.start import Taken
from tests.bench.tools import PASSED, evalq, timed

ROOT = Path(__file__).parents[2]
_FILES = ("run.json", "results.yaml", "report.html", "report.json", "by_case.jsonl", "records.jsonl")
_HEAD = "cases | evalq, wall s | CPU s | loop, CPU s | times its CPU | MB | "


def write(folder: Path, cases: int) -> None:
    """Files of so many cases with an output each, of which one in twenty fails."""
    with (folder / "cases.jsonl").open("w") as listed, (folder / "outputs.jsonl").open("w") as said:
        for n in range(cases):
            asked = f"What is {n} plus {n}? Answer with the number."
            checks = [{"contains": str(2 * n)}, {"max-length": 200}]
            case = {"id": f"case-{n:07}", "input": asked, "checks": checks, "tags": ["odd" if n % 2 else "even"]}
            answer = f"The sum of {n} and {n} is {2 * n if n % 20 else 7 * n + 1}."
            listed.write(json.dumps(case) + "\n")
            said.write(json.dumps({"case": case["id"], "repeat": 0, "output": answer}) + "\n")


def plain(folder: Path) -> tuple[Taken, int]:
    """The loop, and how many outputs passed."""
    script = ROOT / "tests" / "bench" / "rivals" / "plain_checks.py"
    command = [sys.executable, str(script), "cases.jsonl", "outputs.jsonl", "plain.jsonl"]
    took, said = timed(command, folder, dict(os.environ))
    found = PASSED.search(said)
    assert found, said
    return took, int(found[1])


def row(cases: int, times: int) -> str:
    """A line of the table: both ways in turn, after a first time that fills caches."""
    ours: list[Taken] = []
    theirs: list[Taken] = []
    most = 0.0
    with tempfile.TemporaryDirectory(prefix="evalq-bench-") as scratch:
        folder = Path(scratch)
        write(folder, cases)
        for turn in range(times + 1):
            mine, passed = evalq(["checks", "cases.jsonl", "--outputs", "outputs.jsonl"], folder)
            # Of all children so far: sizes come in rising order, and a loop over fewer cases takes less.
            most = most or resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            other, found = plain(folder)
            assert passed == found, f"they differ in how many pass: {passed} and {found}"
            if turn:
                ours.append(mine)
                theirs.append(other)
        # Fewer cases have no file of their own for what the report says of each.
        written = [folder / "run" / name for name in _FILES]
        sizes = [path.stat().st_size if path.exists() else 0 for path in written]
    ratio = statistics.median(one.cpu / two.cpu for one, two in zip(ours, theirs, strict=True))
    wall, cpu, loop = (
        statistics.median(each)
        for each in ([one.wall for one in ours], [one.cpu for one in ours], [one.cpu for one in theirs])
    )
    message = " | ".join(f"{size / 1e6:.3g}" for size in sizes)
    return f"| {cases:,} | {wall:.1f} | {cpu:.1f} | {loop:.2f} | {ratio:.1f} x | {most:,.0f} | {message} |"


def main(words: list[str] | None = None) -> None:
    """Measure and print a Markdown table; files are in MB."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cases")
    parser.add_argument("--cases", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args(words)
    print(f"| {_HEAD}{' | '.join(_FILES)} |\n| {'---: | ' * (6 + len(_FILES))}".rstrip())
    for cases in sorted(asked.cases):
        print(row(cases, asked.times), flush=True)


if __name__ == "__main__":
    main()
