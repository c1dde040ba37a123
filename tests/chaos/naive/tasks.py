"""What one writes first with Celery: a task a chunk, which pushes its rows to Redis and counts them there.

NAIVE_ACKS is "early" (Celery's defaults) or "late" (acks_late and reject_on_worker_lost, as guides advise). The rest
is stock: an hour's visibility timeout, a prefetch of 4 messages a process.
"""

from __future__ import annotations

import os
from pathlib import Path

import redis
from celery import Celery

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.contract.params import validate
from evalq.evalcore.model.manifest import Span, read_span

ROWS, COUNT, DONE = "naive:rows", "naive:count", "naive:done"
_LATE = os.environ.get("NAIVE_ACKS") == "late"

app = Celery("naive", broker=os.environ.get("NAIVE_BROKER", ""))
app.conf.update(
    task_serializer="json",
    accept_content=["json"],
    task_ignore_result=True,
    task_acks_late=_LATE,
    task_reject_on_worker_lost=_LATE,
)

_evaluator = plugins.get("planagent")
_params = validate(_evaluator.Params, {}, "naive")


def deliver(client: redis.Redis, lines: list[bytes]) -> None:
    """A chunk's rows, their number and the chunk, in one transaction."""
    with client.pipeline(transaction=True) as pipe:
        pipe.rpush(ROWS, *lines)
        pipe.incrby(COUNT, len(lines))
        pipe.incr(DONE)
        pipe.execute()


@app.task(name="naive.score")  # type: ignore[untyped-decorator]  # Celery is untyped
def score(path: str, start: int, end: int, first_line: int, records: int, digest: str, columns: list[str]) -> None:
    """Evaluate one chunk with evalq's own kernel."""
    data = read_span(path, Span(start, end, first_line, records, digest))
    outcome = _evaluator.evaluate(Batch(Path(path).name, first_line, data, tuple(columns)), _params)
    deliver(redis.Redis.from_url(app.conf.broker_url), outcome.lines)
