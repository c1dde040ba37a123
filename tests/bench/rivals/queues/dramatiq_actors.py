"""Dramatiq: a message a job, and its result backend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from tests.bench.rivals.queues.work import URL, Job, client, score

broker = RedisBroker(url=URL)
broker.add_middleware(Results(backend=RedisBackend(url=URL)))
dramatiq.set_broker(broker)
actor = dramatiq.actor(score, store_results=True)


def serves() -> bool:
    """Whether a worker has told of itself."""
    return bool(redis.Redis.from_url(URL).zcard("dramatiq:__heartbeats__"))


def work(jobs: list[Job]) -> Iterable[Sequence[str]]:
    """One message a job."""
    messages = [actor.send(*job) for job in jobs]
    return [message.get_result(block=True, timeout=600_000) for message in messages]


if __name__ == "__main__":
    client(serves, work)
