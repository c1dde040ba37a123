"""kombu's Redis transport with keys of evalq's own, made to survive what others put into its queues, and servers that
come and go.

kombu keeps unacknowledged messages under names that every Celery application of a database shares: a worker would put
back, or forget, what another application's worker has at hand. Here all keys are evalq's (`evalq.workers.names`).

kombu parses whatever lies in a queue, in the worker's main process, and ends the worker over what it cannot parse.
Here an item is checked as it leaves the connection, size first; what is no hint is dropped with a line in the log.

And kombu counts a message whose acknowledgement failed, since the server was away, as unacknowledged for ever. A worker
that may have one message a process takes nothing again then; and as it waits on no connection either, it does not
notice that it lost one. Here the room is given back. The message stays with the server, comes again after the
visibility timeout, and is skipped then.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from typing import Any

import redis
from amqp.exceptions import PreconditionFailed, RecoverableConnectionError
from celery import Celery
from celery.loaders.app import AppLoader
from kombu.entity import Exchange, Queue
from kombu.transport import TRANSPORT_ALIASES, pyamqp
from kombu.transport import redis as stock

from evalq.evalcore.errors import WireError
from evalq.evalcore.model.manifest import QUEUE_CLASSES, queue_name
from evalq.evalcore.version import code_version
from evalq.workers.address import Address
from evalq.workers.broker.message import MAX_HINT_BYTES, rewritten
from evalq.workers.names import QUEUES, TRANSPORT
from evalq.workers.servers.connections import arguments
from evalq.workers.settings import Settings

log = logging.getLogger("evalq.worker")


class QoS(stock.QoS):
    """Messages that are out, which kombu keeps in a hash until they are acknowledged."""

    def restore_by_tag(self, tag: Any, client: Any = None, leftmost: bool = False) -> None:
        """Put an unacknowledged message back into its queue; what cannot be read is forgotten, not tried for ever."""
        with self.channel.conn_or_acquire(client) as connection:
            size = connection.hstrlen(self.unacked_key, tag)
        try:
            if size > 2 * MAX_HINT_BYTES:
                raise ValueError(f"{size} bytes")
            super().restore_by_tag(tag, client=client, leftmost=leftmost)  # type: ignore[no-untyped-call]  # kombu's
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            log.warning("an unacknowledged message that evalq did not write was dropped: %.200r", error)
            self._remove_from_indices(tag).execute()  # type: ignore[no-untyped-call]  # kombu's

    def ack(self, delivery_tag: Any) -> None:
        """Acknowledge; also when that fails, the message takes no room here any more."""
        try:
            super().ack(delivery_tag)  # type: ignore[no-untyped-call]  # kombu's
        except Exception:
            self._quick_ack(delivery_tag)
            raise

    def reject(self, delivery_tag: Any, requeue: bool = False) -> None:
        """Give a message back or up; also when that fails, it takes no room here any more."""
        try:
            super().reject(delivery_tag, requeue=requeue)  # type: ignore[no-untyped-call]  # kombu's
        except Exception:
            self._quick_ack(delivery_tag)
            raise


class Channel(stock.Channel):
    """A channel to whose consumers only hints come through, with no key or name that is not evalq's."""

    QoS = QoS
    unacked_key = TRANSPORT.unacked
    unacked_index_key = TRANSPORT.unacked_index
    unacked_mutex_key = TRANSPORT.unacked_mutex
    keyprefix_queue = TRANSPORT.binding
    keyprefix_binding_permanent = TRANSPORT.binding_permanent
    keyprefix_binding_deadlines = TRANSPORT.binding_deadlines
    fanout_prefix: Any = TRANSPORT.channel
    _kept: Any = None

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        """What connections are made with: the ledger's own, in kombu's class, which tells its poller of their end."""
        options = self.connection.client.transport_options
        given = arguments(options["server"], options["answer_seconds"], options["connect_seconds"])
        self.connection_class = given["connection_class"]
        made = super()._connparams(asynchronous)  # type: ignore[no-untyped-call]  # kombu's
        return given | {"connection_class": made["connection_class"], "max_connections": self.max_connections}

    def _create_client(self, asynchronous: bool = False) -> Any:
        # kombu asks for one as each message comes and is acknowledged, and to make one takes longer than to use it: a
        # table of hundreds of callbacks is copied. It has no state but its pool, which kombu replaces after a loss.
        kept = self._kept
        if not asynchronous and kept is not None and kept.connection_pool is self.pool:
            return kept
        client = super()._create_client(asynchronous)  # type: ignore[no-untyped-call]  # kombu's
        client.set_response_callback("BRPOP", self._only_hints)
        if not asynchronous:
            self._kept = client
        return client

    def _do_restore_message(
        self, payload: Any, exchange: Any, routing_key: Any, pipe: Any, leftmost: bool = False
    ) -> None:
        """Put a message back into its queue. Raises ValueError for one that is not evalq's."""
        if exchange or not str(routing_key).startswith(QUEUES):  # the record of it was forged
            raise ValueError(f"{routing_key!r} is no queue of evalq's")
        super()._do_restore_message(payload, exchange, routing_key, pipe, leftmost)  # type: ignore[no-untyped-call]  # kombu's

    def _only_hints(self, answer: Any, **options: Any) -> tuple[bytes, bytes] | None:
        """BRPOP's answer with the item's envelope written anew; for an item that is no hint, as if none had come."""
        if not answer:
            return None
        queue, item = answer
        name = queue.decode().rsplit(self.sep, 1)[0]
        try:
            return queue, rewritten(item, name)
        except WireError as error:
            log.warning("a message that evalq did not write was dropped from %s: %s", name, error)
            return None


class RedisTransport(stock.Transport):
    """To the Redis or Valkey of ``transport_options["server"]``."""

    Channel = Channel
    # A server that is full, or cannot write to its disk, refuses kombu its bookkeeping: no reason to end.
    connection_errors = (*stock.Transport.connection_errors, redis.ResponseError)


class _HeldTooLong(RecoverableConnectionError):  # type: ignore[misc]  # amqp is untyped
    """RabbitMQ closed the channel, since a message was not acknowledged within its `consumer_timeout`."""


class _RabbitChannel(pyamqp.Channel):
    """A channel whose end by `consumer_timeout` is a lost connection, which a worker makes again.

    A chunk may take longer than that (30 minutes by default). It is computed on: its message comes again, finds the
    chunk leased, and is dropped. To Celery this error is none that passes, and it ends the worker.
    """

    def _on_close(self, reply_code: int, reply_text: str, class_id: int, method_id: int) -> None:
        try:
            super()._on_close(reply_code, reply_text, class_id, method_id)
        except PreconditionFailed as error:
            if (class_id, method_id) != (0, 0):  # it answers a method: a queue has other arguments, say
                raise
            raise _HeldTooLong(f"a chunk takes longer than the broker's consumer_timeout: {reply_text}") from error


class _RabbitConnection(pyamqp.Connection):
    Channel = _RabbitChannel


class RabbitTransport(pyamqp.Transport):
    """To the RabbitMQ of ``transport_options["server"]``."""

    Connection = _RabbitConnection

    def establish_connection(self) -> Any:
        """A connection, made. kombu would have 127.0.0.1 for localhost, which may have IPv6 alone."""
        client: Any = self.client  # a kombu.Connection
        server: Address = client.transport_options["server"]
        connection = self.Connection(
            host=f"{server.host}:{server.port}",
            userid=server.user or "guest",
            password=server.password or "guest",
            login_method="PLAIN",
            virtual_host=server.vhost,
            ssl=_tls(server),
            connect_timeout=client.connect_timeout,
            heartbeat=client.heartbeat,
        )
        connection.client = client
        connection.connect()
        return connection


def _tls(server: Address) -> dict[str, Any] | bool:
    """As py-amqp wants it."""
    if server.tls is None:
        return False
    return {
        "ca_certs": server.tls.ca or None,
        "certfile": server.tls.certificate or None,
        "keyfile": server.tls.key or None,
        "cert_reqs": ssl.CERT_REQUIRED if server.tls.checked else ssl.CERT_NONE,
        "server_hostname": server.host if server.tls.name_checked else None,
    }


SCHEMES: Mapping[str, str] = {
    "evalq-redis": f"{__name__}:{RedisTransport.__qualname__}",
    "evalq-amqp": f"{__name__}:{RabbitTransport.__qualname__}",
}
"""evalq's own transports, by their names in URLs of Celery's; kombu's stay what they are for others in this process."""


def _shown_url(server: Address) -> str:
    """The URL that Celery has: it names the transport and shows a person the server, and nothing is read from it."""
    name = "evalq-amqp" if not server.is_redis else "evalq-redis+socket" if server.path else "evalq-redis"
    return f"{name}://{server.where}"


# -- the Celery application: one task, settings that lose nothing quietly, queues by code version ---


class _Loader(AppLoader):  # type: ignore[misc]  # Celery is untyped
    """Reads no module of configuration: CELERY_CONFIG_MODULE names another application's."""

    def read_configuration(self, env: str = "") -> dict[str, Any]:
        return {}


class _App(Celery):  # type: ignore[misc]  # Celery is untyped
    """Celery as its configuration says. Its own reads CELERY_BROKER_URL and others first, which are for another
    application: this one would serve that one's broker.
    """

    # Before the setting, which CELERY_RESULT_BACKEND overrules; there are no results (see `_configuration`).
    backend_cls = "disabled://"

    def _connection(self, url: str, **how: Any) -> Any:
        """Any connection, to consume or to publish by, is to the broker of the settings."""
        return super()._connection(self.conf["broker_url"], **how)


def make_app(settings: Settings) -> Celery:
    """A Celery application for these settings, without any task: a producer only sends to TASK.

    Nothing of it comes from the environment.
    """
    TRANSPORT_ALIASES.update(SCHEMES)
    # No fixups: the one for Django would put the current folder on the path of imports.
    app = _App("evalq", loader=_Loader, set_as_current=False, fixups=())
    app.conf.update(_configuration(settings))
    return app


def queue_of(name: str, settings: Settings) -> Queue:
    """The queue of that name, also one that only workers of other code consume."""
    # The default exchange needs no binding, so a server that lost everything needs no new declaration.
    return Queue(name, Exchange(""), routing_key=name, queue_arguments=settings.queue_options or None)


def _configuration(settings: Settings) -> dict[str, Any]:
    queues = [queue_of(queue_name(name, code_version()), settings) for name in QUEUE_CLASSES]
    return {
        "broker_url": _shown_url(settings.broker_address),
        "broker_connection_retry_on_startup": True,
        # A worker outlives its server, and waits for it as long as that takes.
        "broker_connection_max_retries": None,
        "broker_connection_timeout": settings.connect_seconds,
        "broker_transport_options": _transport(settings),
        "task_serializer": "json",
        # JSON alone: unpickling a message would run whatever its sender wrote.
        "accept_content": ["json"],
        "result_accept_content": ["json"],
        # No result backend: a doubled message would be a doubled result. The ledger has each answer once.
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        "result_backend": None,
        "task_queues": queues,
        "task_default_queue": queues[-1].name,
        # Workers serve the queues of their own code version; what is sent to others names them by `queue_of`.
        "task_create_missing_queues": False,
        # Acknowledged after the commit, and given back when the pool process dies: a message that comes twice costs a
        # claim, a lost one costs the seconds until its chunk is published again.
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        # One message a process: another worker could compute what would only wait in this one's memory.
        "worker_prefetch_multiplier": 1,
        # RabbitMQ's own prefetch is exact; Celery warns at each connection where this is set for it.
        "worker_disable_prefetch": settings.broker_address.is_redis,
        "worker_max_tasks_per_child": settings.tasks_per_child,
        "worker_soft_shutdown_timeout": settings.soft_shutdown_seconds,
        # A second way in besides the hints: whoever reaches the broker could stop or reconfigure workers.
        "worker_enable_remote_control": False,
        "worker_send_task_events": False,
        "task_send_sent_event": False,
        "worker_hijack_root_logger": False,
        # The answer goes to the ledger, which may be there while the broker is not.
        "worker_cancel_long_running_tasks_on_connection_loss": False,
    }


def _transport(settings: Settings) -> dict[str, Any]:
    # Where the server is and how it is asked, read once: kombu would read the URL in its own way.
    reach: dict[str, Any] = {"server": settings.broker_address}
    if not settings.broker_address.is_redis:
        return reach
    return reach | {
        "answer_seconds": settings.answer_seconds,
        "connect_seconds": settings.connect_seconds,
        "health_check_interval": 10,
        # No need for less: the reconciler publishes lost chunks again within seconds, and a message that comes back
        # later finds its chunk committed.
        "visibility_timeout": 300,
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
        # In the order of QUEUE_CLASSES, so that a merge that somebody waits for does not queue behind an overnight
        # sweep.
        "queue_order_strategy": "priority",
    }
