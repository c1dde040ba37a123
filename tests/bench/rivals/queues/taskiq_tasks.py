"""taskiq: a task a job, over lists and results in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend

from tests.bench.rivals.queues.work import URL, Job, client, score

broker = ListQueueBroker(URL).with_result_backend(RedisAsyncResultBackend(URL, result_ex_time=600))
task = broker.task(task_name="rival.score")(score)


async def _all(jobs: list[Job]) -> list[Sequence[str]]:
    await broker.startup()
    sent = [await task.kiq(*job) for job in jobs]
    found = [(await job.wait_result(check_interval=0.005, timeout=600)).return_value for job in sent]
    await broker.shutdown()
    return found


def serves() -> bool:
    """Whether a first task was done: this waits for it."""
    return bool(asyncio.run(_all([("", 2, ["a"])])) or True)


def work(jobs: list[Job]) -> Iterable[Sequence[str]]:
    """One message a job."""
    return asyncio.run(_all(jobs))


if __name__ == "__main__":
    client(serves, work)
