"""The producer's side of the broker: sending hints, and seeing what still lies in a queue."""

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
    """Sends messages of the form (run, seq, epoch); holds one connection."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._redis: Any = None
        if settings.broker_address.is_redis:
            self._redis = connect(settings.broker_address, settings, settings.answer_seconds)

    def publish(self, queue: str, run: str, epoch: int, seqs: Sequence[int]) -> None:
        """Send a message for each chunk, in one batch; after an error what was sent is uncertain.

        Raises BrokerUnreachable, or ServerRefused.
        """
        if not seqs:
            return
        # The id says what a message is for without opening it, and differs each time it is sent.
        hints = {f"{run}/{seq}/{epoch}/{secrets.token_hex(4)}": Hint(run, seq, epoch) for seq in seqs}
        with self._explained(), tracing.span("publish", run, chunks=len(seqs), first=seqs[0], epoch=epoch):
            if self._redis is not None:
                # What Celery would put there, without importing Celery.
                self._redis.lpush(queue, *(envelope(task_id, hint, queue) for task_id, hint in hints.items()))
            else:
                self._send(queue, hints)

    def _send(self, queue: str, hints: Mapping[str, Hint]) -> None:
        from evalq.workers.broker.transport import queue_of

        with self._app.producer_pool.acquire(block=True) as producer, producer.batch(max_size=256):
            to = queue_of(queue, self._settings)  # an upgraded worker tends runs of older code, too
            for task_id, hint in hints.items():
                # Celery must not retry: nobody knows how much of a failed batch was sent, and unsent chunks are found
                # as lost.
                args = (hint.run, hint.seq, hint.epoch)
                self._app.send_task(TASK, args=args, task_id=task_id, producer=producer, queue=to, retry=False)

    @cached_property
    def _app(self) -> Celery:
        """Celery's application, for a broker that is no Redis."""
        from evalq.workers.broker.transport import make_app

        return make_app(self._settings)

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
            raise explained(error, f"the broker at {self._settings.broker_address}") from error

    def close(self) -> None:
        """Let go of all connections."""
        if "_app" in self.__dict__:
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
    from amqp.exceptions import NotFound

    with contextlib.closing(connection.channel()) as channel:
        try:
            return int(channel.queue_declare(queue, passive=True).message_count)
        except NotFound:
            return 0
