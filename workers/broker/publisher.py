"""The producer's side of the broker: sending hints, and seeing what still lies in a queue."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from amqp.exceptions import NotFound

from evalq.evalcore.errors import WireError
from evalq.workers import tracing
from evalq.workers.broker.app import make_app, queue_of
from evalq.workers.broker.message import TASK, read_hint
from evalq.workers.servers.connections import connect
from evalq.workers.servers.errors import SERVER_ERRORS, explained
from evalq.workers.servers.urls import is_redis, redacted
from evalq.workers.settings import Settings

__all__ = ["Broker"]


class Broker:
    """Sends messages of the form (run, seq, epoch); holds one connection."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._app = make_app(settings)
        self._redis: Any = None
        if is_redis(settings.broker):
            self._redis = connect(settings.broker, settings, settings.answer_seconds)

    def publish(self, queue: str, run: str, epoch: int, seqs: Sequence[int]) -> None:
        """Send a message for each chunk, in one batch; after an error what was sent is uncertain.

        Raises BrokerUnreachable, or ServerRefused.
        """
        if not seqs:
            return
        with (
            self._explained(),
            tracing.span("publish", run, chunks=len(seqs), first=seqs[0], epoch=epoch),
            self._app.producer_pool.acquire(block=True) as producer,
            producer.batch(max_size=256),
        ):
            to = queue_of(queue)  # an upgraded worker tends runs of older code, too
            for seq in seqs:
                # The id says what a message is for without opening it, and differs each time it is sent.
                task_id = f"{run}/{seq}/{epoch}/{secrets.token_hex(4)}"
                # Celery must not retry: nobody knows how much of a failed batch was sent, and unsent chunks are found
                # as lost.
                self._app.send_task(
                    TASK, args=(run, seq, epoch), task_id=task_id, producer=producer, queue=to, retry=False
                )

    def waiting(self, queue: str, run: str) -> set[int] | int:
        """Chunks of ``run`` whose messages lie unread in ``queue``.

        A broker that can't be looked into (not Redis) gives the number of all unread messages instead.
        Raises BrokerUnreachable, or ServerRefused.
        """
        if self._redis is None:
            return self.lengths([queue])[queue]
        with self._explained():
            # The whole list: a queue holds about one window of messages for each run.
            messages = self._redis.lrange(queue, 0, -1)
        return {seq for seq in (_seq_of(message, run) for message in messages) if seq is not None}

    def lengths(self, queues: Iterable[str]) -> dict[str, int]:
        """How many messages lie unread in each queue; one that is not there has none.

        Raises BrokerUnreachable, or ServerRefused.
        """
        with self._explained():
            if self._redis is None:
                with self._app.connection_for_read() as connection:
                    return {name: _length(connection, name) for name in queues}
            pipe = self._redis.pipeline(transaction=False)
            names = list(queues)
            for name in names:
                pipe.llen(name)
            return dict(zip(names, pipe.execute(), strict=True))

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """What the client libraries raise in the block becomes evalq's own."""
        try:
            yield
        except (*SERVER_ERRORS, OSError) as error:
            raise explained(error, f"the broker at {redacted(self._settings.broker)}") from error

    def close(self) -> None:
        """Let go of all connections."""
        self._app.close()
        if self._redis is not None:
            self._redis.close()


def _seq_of(message: bytes, run: str) -> int | None:
    try:
        _, hint = read_hint(message)
    except WireError:  # whoever takes it out drops it, and says so
        return None
    return hint.seq if hint.run == run else None


def _length(connection: Any, queue: str) -> int:
    # One channel for each queue, since RabbitMQ closes it when the queue does not exist. Passive, so that asking does
    # not create the queue.
    with contextlib.closing(connection.channel()) as channel:
        try:
            return int(channel.queue_declare(queue, passive=True).message_count)
        except NotFound:
            return 0
