"""RQ: a job a message; its workers do not fork for each, which its docs recommend for short ones."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import redis
import rq

from tests.bench.rivals.queues.work import PROCESSES, URL, Job, client, score

connection = redis.Redis.from_url(URL)


def serves() -> bool:
    """Whether all workers are there."""
    return bool(rq.Worker.count(connection=connection) >= PROCESSES)


def work(jobs: list[Job]) -> Iterable[Sequence[str]]:
    """One message a job, sent together."""
    queue = rq.Queue(connection=connection)
    sent = queue.enqueue_many([rq.Queue.prepare_data(score, args=job, result_ttl=600) for job in jobs])
    for job in sent:
        while (result := job.latest_result()) is None:
            time.sleep(0.01)
        yield result.return_value


if __name__ == "__main__":
    client(serves, work)
