"""What a row of 3 kB costs besides its evaluation, step by step: `python -m tests.bench.cost`. CPU of this process.

A run's steps without its queue: the producer plans, a worker reads and checks a chunk's bytes, evaluates and packs; the
producer unpacks, merges, writes the record lines, and in the end makes the report.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.contract.partial import encode, unpack_answer
from evalq.evalcore.evaluators.planagent import PlanParams, evaluator
from evalq.evalcore.fold import Fold, InputSummary
from evalq.evalcore.model.manifest import read_span
from evalq.evalcore.native import way
from evalq.evalcore.records.cut import Cutter
from evalq.evalcore.records.digests import chunk_digest, new_key
from tests.bench.throughput import make_rows

STEPS = ("plan", "read and check", "evaluate", "pack", "unpack", "merge", "write", "report")
KERNEL = "evaluate"
PARAMS = PlanParams()


class Clock:
    """CPU seconds by step."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STEPS, 0.0)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Count what is done inside."""
        began = time.process_time()
        yield
        self.seconds[name] += time.process_time() - began


def run(path: Path, scratch: Path) -> dict[str, float]:
    """One run of all steps."""
    clock, fold, key = Clock(), Fold(evaluator, PARAMS, 1), new_key()
    with clock.step("plan"), path.open("rb") as stream:
        cutter = Cutter(stream, "csv", path.name, evaluator.records.columns, key=key)
        spans = list(cutter.spans())
    with (scratch / "lines").open("wb") as out:
        for span in spans:
            with clock.step("read and check"):
                data = read_span(path, span)
                assert chunk_digest(data, key) == span.digest
            with clock.step("evaluate"):
                outcome = evaluator.evaluate(Batch(path.name, span.first_line, data, cutter.columns), PARAMS)
            with clock.step("pack"):
                partial = encode(outcome)
            with clock.step("unpack"):
                answer = unpack_answer(partial, evaluator)
            with clock.step("merge"):
                fold.add(0, answer)
            with clock.step("write"):
                out.write(answer.text)
                out.write(b"\n")
    with clock.step("report"):
        fold.finish([InputSummary(path.name, str(path), cutter.sha256)], lambda _: path.open("rb"), scratch)
    return clock.seconds


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cost")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--times", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="evalq-bench-") as folder:
        path = Path(folder) / "rows.csv"
        make_rows(path, asked.rows)
        runs = [run(path, Path(folder)) for _ in range(asked.times)]
    each = {step: statistics.median(found[step] for found in runs) / asked.rows * 1e6 for step in STEPS}
    print(f"{asked.rows:,} rows, medians of {asked.times}, rows read by {way()}\n\n| step | us a row |\n| --- | ---: |")
    for step, microseconds in each.items():
        print(f"| {step} | {microseconds:.2f} |")
    print(f"| all but {KERNEL} | {sum(each.values()) - each[KERNEL]:.2f} |")


if __name__ == "__main__":
    main()
