"""docs/reference/observers.md, made from the results file: the last line of each seed counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evalq.evalcore.views.markdown import table
from tests.chaos.seen.compare import ROWS
from tests.chaos.seen.observers import OBSERVERS

DOCS = Path(__file__).parents[3] / "docs" / "reference"
RESULTS, PAGE = DOCS / "observers.jsonl", DOCS / "observers.md"

_HEAD = """# Observers of a run under faults

The same run of `evalq` looked at by three observers at once, while its processes were killed: the exporter of evalq,
[celery-exporter](https://github.com/danihodovic/celery-exporter) and [Flower](https://github.com/mher/flower).

```sh
python -m tests.chaos.seen {seeds}
```

runs it again, with the rivals in environments of their own (by pip); it needs root and `ip` for the cut link.

Celery's task events, worker heartbeats and remote control, which the rivals live on, are switched off in evalq. **For
these runs they were switched on**, in workers and producer, by a way in that only this test has
(`tests/chaos/seen/talking.py`). celery-exporter ran with `--retry-interval 1` (by default it ends when the server
goes away), Flower with `--persistent=True --state_save_interval=5000` (by default it keeps nothing), all else as it
comes. celery-exporter has Celery 5.5.3 since it needs a redis package below 6, which newer ones refuse. Each observer
was scraped again 1.5 s after its last answer; Flower was asked to refresh its workers before every look.

A run: three workers of one process, chunks of ten records that take 0.5 s, one record that kills its process. The
faults, in an order drawn from the seed, are in the line above each table; so is what the server keeps over its restart.

**Truth** comes from a journal that the processes themselves write when they give a message to Celery and when they
begin and end a task, from what the driver did, and from the run's manifest and report. How to read a cell:

- It is the first scrape that was begun at the moment named; observers had 3 s to catch up with the end of the run, and
  8 s after their own restart. Beside a number that changes meanwhile stands the truth at the end of that scrape.
- `/` parts two numbers that an observer has for one thing. `-`: it has no such number. "none": it has, and shows none
  just then. "no answer": the scrape failed.
- Each number is what one scrape showed. Prometheus, where it scrapes often enough, adds up over a counter that begins
  again at 0; here nothing does.
- Rivals count tasks. Their "chunks done" are tasks that succeeded: also those that found their chunk done already.
"""


def page() -> str:
    """The page as it should be."""
    lines = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()] if RESULTS.exists() else []
    return render(lines)


def render(lines: list[dict[str, Any]]) -> str:
    """From the results' lines."""
    last = {line["seed"]: line for line in lines}
    seeds = " ".join(f"--seed {seed}" for seed in sorted(last)) or "--seed 1"
    parts = [_HEAD.format(seeds=seeds), *(_run(last[seed]) for seed in sorted(last)), "## What was read\n\n" + _reads()]
    return "\n".join(parts)


def _run(line: dict[str, Any]) -> str:
    names = [one.name for one in OBSERVERS]
    versions = ", ".join(f"{name} {line['versions'][name]}" for name in names)
    head = (
        f"## Seed {line['seed']}\n\n{line['date']}, commit {line['commit']}, {line['server']}; {versions}. "
        f"{line['seconds']:.0f} s. In this order: {'; '.join(line['struck'])}.\n\n"
    )
    return head + table(("", "truth", *names), [tuple(row) for row in line["rows"]])


def _reads() -> str:
    facts = {row.fact: row.title.partition(": ")[2] for row in ROWS}
    rows: list[tuple[object, ...]] = [
        (title, *(one.reads.get(fact, "-") for one in OBSERVERS)) for fact, title in facts.items()
    ]
    return table(("", *(one.name for one in OBSERVERS)), rows)
