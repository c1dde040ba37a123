"""What each rival computes, and how its client is run."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.contract.params import validate
from evalq.evalcore.model.manifest import read_span
from evalq.evalcore.records.cut import Cutter

URL = os.environ.get("RIVAL_SERVER", "")
PROCESSES = 2
Job = tuple[str, int, list[str]]
"""Rows as they stand in the file, the line that they begin on, and the file's columns."""

_evaluator = plugins.get("planagent")
_params = validate(_evaluator.Params, {}, "bench")


def score(text: str, line: int, columns: Sequence[str]) -> list[str]:
    """The record lines of some rows; of none, none."""
    if not text:
        return []
    outcome = _evaluator.evaluate(Batch("rows.csv", line, text.encode(), tuple(columns)), _params)
    return [found.decode() for found in outcome.lines]


def client(serves: Callable[[], bool], work: Callable[[list[Job]], Iterable[Sequence[str]]]) -> None:
    """Run ``work`` once ``serves`` is true: it gives the lines of each job, in any order. Arguments: a CSV and how many
    of its rows are a job.
    """
    path, size = Path(sys.argv[1]), int(sys.argv[2])
    with path.open("rb") as stream:
        cutter = Cutter(stream, "csv", path.name, (), size=size)
        columns = list(cutter.columns)
        jobs = [(read_span(path, span).decode(), span.first_line, columns) for span in cutter.spans()]
    while not serves():
        time.sleep(0.05)
    began = time.perf_counter()
    lines = sorted(line for found in work(jobs) for line in found)
    seconds = time.perf_counter() - began
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    print(json.dumps({"seconds": seconds, "lines": len(lines), "digest": digest}))
