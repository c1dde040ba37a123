"""`make bench`: every speed claim, beside its rival, as a ratio of medians of one run on one machine."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from tests.bench import cases, queues, start, throughput, tools, traces


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--rows", type=int, default=20_000, help="rows for naive Celery against evalq")
    parser.add_argument("--many", type=int, default=1_000_000, help="rows for evalq against the bare kernel")
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="evalq-bench-") as folder:
        scratch = Path(folder)
        print(f"{os.cpu_count()} cores, {throughput.PROCESSES} processes, medians of {asked.times}", flush=True)
        few, many = scratch / "few.csv", scratch / "many.csv"
        throughput.make_rows(few, asked.rows)
        small = throughput.medians(
            {
                "a naive Celery": lambda: throughput.naive(few, scratch),
                "b evalq": lambda: throughput.queued(few, scratch),
                "c bare kernel": lambda: throughput.bare(few, scratch),
            },
            asked.times,
        )
        throughput.make_rows(many, asked.many)
        large = throughput.medians(
            {
                "b evalq": lambda: throughput.queued(many, scratch),
                "c bare kernel": lambda: throughput.bare(many, scratch),
            },
            asked.times,
        )
    print("\n| rows | way | rows/s | ratio |\n| ---: | --- | ---: | --- |")
    for rows, found in ((asked.rows, small), (asked.many, large)):
        b = rows / found["b evalq"]
        for name, seconds in found.items():
            ratio = "" if name == "b evalq" else f"b/{name[0]} = {b / (rows / seconds):.2f}"
            print(f"| {rows:,} | {name} | {rows / seconds:,.0f} | {ratio} |")
    print("\n" + "\n".join(start.table(asked.times, None)), flush=True)
    queues.main(["--times", str(asked.times)])
    print(flush=True)
    tools.main(["--times", str(asked.times)])
    print(flush=True)
    cases.main(["--times", str(asked.times)])
    print(flush=True)
    traces.main([])


if __name__ == "__main__":
    main()
