"""The rival: what one writes first with Celery. One message a row, results in the result backend."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from celery import Celery

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.contract.params import validate
from tests.bench.throughput import plan_rows
from tests.integration.harness import wait_until

app = Celery("naive", broker=os.environ["NAIVE_BROKER"], backend=os.environ["NAIVE_BROKER"])
app.conf.update(worker_prefetch_multiplier=4, task_serializer="json", accept_content=["json"])

_evaluator = plugins.get("planagent")
_params = validate(_evaluator.Params, {}, "bench")


@app.task(name="naive.score")  # type: ignore[untyped-decorator]  # Celery is untyped
def score(row: str, columns: list[str]) -> Any:
    """Score one row with evalq's own kernel."""
    outcome = _evaluator.evaluate(Batch("rows.csv", 2, row.encode(), tuple(columns)), _params)
    return outcome.lines[0].decode()


def main() -> None:
    """Enqueue every row of a CSV and wait for every result; print the seconds."""
    columns, rows = plan_rows(Path(sys.argv[1]))
    wait_until(lambda: app.control.ping(timeout=0.5), "the naive worker serves")
    began = time.perf_counter()
    results = [score.delay(row, columns) for row in rows]
    for result in results:
        result.get(timeout=600)
    print(time.perf_counter() - began)


if __name__ == "__main__":
    main()
