"""Huey: a task a job, its results in Redis."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from huey import RedisHuey

from tests.bench.rivals.queues.work import URL, Job, client, score

huey = RedisHuey("rival", url=URL)
task = huey.task()(score)
_first: list[Any] = []


def serves() -> bool:
    """Whether a first task, which nothing is to be done in, was done."""
    if not _first:
        _first.append(task("", 2, ["a"]))
    return _first[0].get() is not None


def work(jobs: list[Job]) -> Iterable[Sequence[str]]:
    """One message a job."""
    for result in [task(*job) for job in jobs]:
        while (lines := result.get()) is None:
            time.sleep(0.005)
        yield lines


if __name__ == "__main__":
    client(serves, work)
