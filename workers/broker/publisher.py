"""The producer's client of the broker: it publishes hints, and counts the messages waiting in queues."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from evalq.evalcore.errors import WireError
from evalq.workers import tracing
from evalq.workers.broker.message import TASK, Hint, envelope, read_hint
from evalq.workers.servers.connections import connect
from evalq.workers.servers.errors import SERVER_ERRORS, explained
from evalq.workers.settings import Settings

if TYPE_CHECKING:
    from celery import Celery


class Broker:
    """Publishes hints (run, seq, epoch) over one connection."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._redis: Any = None
        if settings.broker_address.is_redis:
            self._redis = connect(settings.broker_address, settings, settings.answer_seconds)

    def publish(self, queue: str, run: str, epoch: int, seqs: Sequence[int]) -> None:
        """Publish a message for each chunk, in one batch. After an error, some may have been sent.

        Raises BrokerUnreachable or ServerRefused.
        """
        if not seqs:
            return
        # The message id shows the chunk in logs, and is unique for each message.
        hints = {f"{run}/{seq}/{epoch}/{secrets.token_hex(4)}": Hint(run, seq, epoch) for seq in seqs}
        with self._explained(), tracing.span("publish", run, chunks=len(seqs), first=seqs[0], epoch=epoch):
            if self._redis is not None:
                # The same bytes as Celery's, without the time to import Celery.
                self._redis.lpush(queue, *(envelope(task_id, hint, queue) for task_id, hint in hints.items()))
            else:
                self._send(queue, hints)

    def _send(self, queue: str, hints: Mapping[str, Hint]) -> None:
        from evalq.workers.broker.transport import queue_of

        with self._app.producer_pool.acquire(block=True) as producer:
            to = queue_of(queue, self._settings)  # by name, because the queue may be that of another code version
            for task_id, hint in hints.items():
                # No retry by Celery: it is unknown how much of a failed batch was sent, and recovery finds lost chunks.
                args = (hint.run, hint.seq, hint.epoch)
                self._app.send_task(TASK, args=args, task_id=task_id, producer=producer, queue=to, retry=False)

    @cached_property
    def _app(self) -> Celery:
        """The Celery application, for a broker other than Redis."""
        from evalq.workers.broker.transport import make_app

        return make_app(self._settings)

    def waiting(self, queue: str, run: str) -> set[int] | int:
        """The chunks of ``run`` whose messages wait in ``queue``.

        For a broker other than Redis, whose queues cannot be listed: the number of all waiting messages instead.
        Raises BrokerUnreachable or ServerRefused.
        """
        if self._redis is None:
            return self.lengths([queue])[queue]
        with self._explained():
            # The whole list is short: about one window of messages for each run.
            messages = self._redis.lrange(queue, 0, -1)
        return {seq for seq in (_seq_of(message, run) for message in messages) if seq is not None}

    def lengths(self, queues: Iterable[str]) -> dict[str, int]:
        """The number of waiting messages by queue; 0 for a queue that does not exist.

        Raises BrokerUnreachable or ServerRefused.
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
        """Turn errors of the client libraries inside the block into evalq's own."""
        try:
            yield
        except (*SERVER_ERRORS, OSError) as error:
            raise explained(error, f"the broker at {self._settings.broker_address}") from error

    def close(self) -> None:
        """Close all connections."""
        if "_app" in self.__dict__:
            self._app.close()
        if self._redis is not None:
            self._redis.close()


def _seq_of(message: bytes, run: str) -> int | None:
    try:
        _, hint = read_hint(message)
    except WireError:  # the worker that receives it drops it with a warning
        return None
    return hint.seq if hint.run == run else None


def _length(connection: Any, queue: str) -> int:
    # One channel per queue, because RabbitMQ closes a channel if the queue does not exist. Passive, so that the query
    # does not create the queue.
    from amqp.exceptions import NotFound

    with contextlib.closing(connection.channel()) as channel:
        try:
            return int(channel.queue_declare(queue, passive=True).message_count)
        except NotFound:
            return 0
