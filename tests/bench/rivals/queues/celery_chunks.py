"""Celery's own way to send many small tasks: `chunks`, here of a hundred jobs a message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.bench.rivals.queues.celery_tasks import serves, task
from tests.bench.rivals.queues.work import Job, client


def work(jobs: list[Job]) -> Iterable[Sequence[str]]:
    """A hundred calls a message."""
    results = task.chunks(iter(jobs), 100).apply_async()
    return [lines for several in results.get(timeout=600) for lines in several]


if __name__ == "__main__":
    client(serves, work)
