"""Celery: a task a job, and its result backend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from celery import Celery

from tests.bench.rivals.queues.work import URL, Job, client, score

app = Celery("rival", broker=URL, backend=URL)
app.conf.update(worker_prefetch_multiplier=4, task_serializer="json", accept_content=["json"])
task = app.task(name="rival.score")(score)


def serves() -> bool:
    """Whether a worker answers."""
    return bool(app.control.ping(timeout=0.5))


def work(jobs: list[Job]) -> Iterable[Sequence[str]]:
    """One message a job."""
    results = [task.delay(*job) for job in jobs]
    return [result.get(timeout=600) for result in results]


if __name__ == "__main__":
    client(serves, work)
