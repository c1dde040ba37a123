"""kombu's transports, changed to survive foreign messages and server outages, and the Celery application.

Three faults of kombu's Redis transport are corrected here:

- It stores unacknowledged messages under names that all Celery applications of a database share, so a worker could
  requeue or delete another application's messages. Here all keys are evalq's own (`evalq.workers.names`).
- It parses every item of a queue in the worker's main process, and an item that it cannot parse ends the worker. Here
  each item is checked as it arrives, its size first. An item that is not a hint is dropped with a warning in the log.
- If an acknowledgement fails because the server is away, it counts the message as unacknowledged for ever. A worker
  with a prefetch limit of one per process then never takes a message again. It waits on no connection either, so it
  does not notice the loss of one. Here the slot is freed. The server keeps the message and delivers it again after the
  visibility timeout; the worker then skips it.
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
from evalq.workers.broker.message import MAX_HINT_BYTES, rewritten, rewritten_broadcast
from evalq.workers.names import QUEUES, TRANSPORT
from evalq.workers.servers.connections import arguments
from evalq.workers.settings import Settings

log = logging.getLogger("evalq.worker")


class QoS(stock.QoS):
    """The delivered messages, which kombu stores in a hash until they are acknowledged."""

    def restore_visible(self, start: int = 0, num: int = 10, interval: int = 10) -> None:
        """Requeue messages of dead workers at each call. kombu 5.6 cannot be configured to, and skips nine of ten."""
        super().restore_visible(start, num, 1)  # type: ignore[no-untyped-call]  # kombu's

    def restore_by_tag(self, tag: Any, client: Any = None, leftmost: bool = False) -> None:
        """Requeue an unacknowledged message. Drop one that cannot be read, instead of retrying for ever."""
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
        """Acknowledge a message, and free its slot even if that fails."""
        try:
            super().ack(delivery_tag)  # type: ignore[no-untyped-call]  # kombu's
        except Exception:
            self._quick_ack(delivery_tag)
            raise

    def reject(self, delivery_tag: Any, requeue: bool = False) -> None:
        """Requeue or discard a message, and free its slot even if that fails."""
        try:
            super().reject(delivery_tag, requeue=requeue)  # type: ignore[no-untyped-call]  # kombu's
        except Exception:
            self._quick_ack(delivery_tag)
            raise


class ToolsChannel(stock.Channel):
    """kombu's channel to the server of the settings, for Celery's own commands: its names are Celery's."""

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        """The ledger's connection arguments, but kombu's connection class, which reports disconnects to its poller."""
        options = self.connection.client.transport_options
        given = arguments(options["server"], options["answer_seconds"], options["connect_seconds"])
        self.connection_class = given["connection_class"]
        made = super()._connparams(asynchronous)  # type: ignore[no-untyped-call]  # kombu's
        return given | {"connection_class": made["connection_class"], "max_connections": self.max_connections}


class Channel(ToolsChannel):
    """A channel that delivers only hints, and uses only keys and names of evalq's."""

    QoS = QoS
    unacked_key = TRANSPORT.unacked
    unacked_index_key = TRANSPORT.unacked_index
    unacked_mutex_key = TRANSPORT.unacked_mutex
    keyprefix_queue = TRANSPORT.binding
    keyprefix_binding_permanent = TRANSPORT.binding_permanent
    keyprefix_binding_deadlines = TRANSPORT.binding_deadlines
    fanout_prefix: Any = TRANSPORT.channel
    _cached_client: Any = None

    def _create_client(self, asynchronous: bool = False) -> Any:
        # kombu requests a client for each delivery and acknowledgement. Making one copies a table of hundreds of
        # callbacks, which takes longer than its use. Its only state is the pool, which kombu replaces to reconnect.
        cached = self._cached_client
        if not asynchronous and cached is not None and cached.connection_pool is self.pool:
            return cached
        client = super()._create_client(asynchronous)  # type: ignore[no-untyped-call]  # kombu's
        client.set_response_callback("BRPOP", self._only_hints)
        if not asynchronous:
            self._cached_client = client
        return client

    def _do_restore_message(
        self, payload: Any, exchange: Any, routing_key: Any, pipe: Any, leftmost: bool = False
    ) -> None:
        """Requeue a message. Raises ValueError for one that is not evalq's."""
        if exchange or not str(routing_key).startswith(QUEUES):  # a forged entry in the hash
            raise ValueError(f"{routing_key!r} is no queue of evalq's")
        super()._do_restore_message(payload, exchange, routing_key, pipe, leftmost)  # type: ignore[no-untyped-call]  # kombu's

    def _only_hints(self, answer: Any, **options: Any) -> tuple[bytes, bytes] | None:
        """BRPOP's reply with a new envelope for the item; None, as for a timeout, if the item is not a hint."""
        if not answer:
            return None
        queue, item = answer
        name = queue.decode().rsplit(self.sep, 1)[0]
        try:
            return queue, rewritten(item, name)
        except WireError as error:
            log.warning("a message that evalq did not write was dropped from %s: %s", name, error)
            return None


class StockNamedChannel(Channel):
    """The same with kombu's own names for bindings and broadcasts, so that stock clients and tools find them.

    The queues, and messages that are not yet acknowledged, keep evalq's names.
    """

    keyprefix_queue = stock.Channel.keyprefix_queue
    keyprefix_binding_permanent = getattr(stock.Channel, "keyprefix_binding_permanent", "")  # from kombu 5.7 on
    keyprefix_binding_deadlines = getattr(stock.Channel, "keyprefix_binding_deadlines", "")
    fanout_prefix = stock.Channel.fanout_prefix


class OpenChannel(StockNamedChannel):
    """A worker's channel with events or remote control.

    It delivers only broadcasts that are remote-control requests, in a new envelope.
    """

    def _handle_message(self, client: Any, response: Any) -> dict[str, Any]:
        """A message of PUBLISH; without its data, which kombu then skips, if it is not a request."""
        made: dict[str, Any] = super()._handle_message(client, response)  # type: ignore[no-untyped-call]  # kombu's
        if made and isinstance(made.get("data"), bytes):
            try:
                made["data"] = rewritten_broadcast(made["data"])
            except WireError as error:
                log.warning("a broadcast that is not a remote-control request was dropped: %s", error)
                made["data"] = b""
        return made


class ToolsTransport(stock.Transport):
    """The transport of Celery's own commands to the server in ``transport_options["server"]``."""

    Channel = ToolsChannel


class RedisTransport(stock.Transport):
    """The transport to the Redis or Valkey server in ``transport_options["server"]``."""

    Channel: type[Channel] = Channel
    # ResponseError: a server that is out of memory or disk refuses kombu's bookkeeping, which must not end the worker.
    connection_errors = (*stock.Transport.connection_errors, redis.ResponseError)


class OpenRedisTransport(RedisTransport):
    """The same for a worker with events or remote control."""

    Channel = OpenChannel


class _HeldTooLong(RecoverableConnectionError):  # type: ignore[misc]  # amqp is untyped
    """RabbitMQ closed the channel because a message was not acknowledged within its `consumer_timeout`."""


class _RabbitChannel(pyamqp.Channel):
    """A channel that treats its end by `consumer_timeout` as a lost connection, so that the worker reconnects.

    Celery treats this error as permanent and would end the worker. But a chunk may take longer than the timeout (30
    minutes by default). Its computation continues; the redelivered message finds the chunk leased and is dropped.
    """

    def _on_close(self, reply_code: int, reply_text: str, class_id: int, method_id: int) -> None:
        try:
            super()._on_close(reply_code, reply_text, class_id, method_id)
        except PreconditionFailed as error:
            if (class_id, method_id) != (0, 0):  # the error of a method, such as declaring a queue with other arguments
                raise
            raise _HeldTooLong(f"a chunk takes longer than the broker's consumer_timeout: {reply_text}") from error


class _RabbitConnection(pyamqp.Connection):
    Channel = _RabbitChannel


class RabbitTransport(pyamqp.Transport):
    """The transport to the RabbitMQ server in ``transport_options["server"]``."""

    Connection = _RabbitConnection

    def establish_connection(self) -> Any:
        """An open connection. kombu itself would use 127.0.0.1 for localhost, which fails if that has only IPv6."""
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
    """The server's TLS options in the form of py-amqp; False without TLS."""
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
    "evalq-open-redis": f"{__name__}:{OpenRedisTransport.__qualname__}",
    "evalq-tools-redis": f"{__name__}:{ToolsTransport.__qualname__}",
    "evalq-amqp": f"{__name__}:{RabbitTransport.__qualname__}",
}
"""evalq's transports by URL scheme. kombu's own schemes stay unchanged for other code in this process."""


def _shown_url(server: Address, scheme: str) -> str:
    """The URL for Celery's configuration and logs. It selects the transport; nothing else is read from it."""
    name = "evalq-amqp" if not server.is_redis else f"{scheme}+socket" if server.path else scheme
    return f"{name}://{server.where}"


# -- the Celery application: one task, no silent loss of messages, queues by code version -----------


class _Loader(AppLoader):  # type: ignore[misc]  # Celery is untyped
    """Reads no configuration module: CELERY_CONFIG_MODULE names that of another application."""

    def read_configuration(self, env: str = "") -> dict[str, Any]:
        return {}


class _App(Celery):  # type: ignore[misc]  # Celery is untyped
    """Celery, but configured only by evalq's settings.

    The base class gives precedence to variables such as CELERY_BROKER_URL, which are meant for another application.
    """

    # Set here too, because CELERY_RESULT_BACKEND would override the configuration. evalq uses no result backend.
    backend_cls = "disabled://"

    def _connection(self, url: str, **how: Any) -> Any:
        """A connection to the broker of the settings, whatever ``url`` says."""
        return super()._connection(self.conf["broker_url"], **how)


class _ToolsApp(_App):
    """The application of `evalq.celery:app`."""

    @property
    def Worker(self) -> Any:  # noqa: N802 - Celery's name
        raise SystemExit("evalq.celery has no worker. Start one with: evalq worker --broker URL")


def make_app(settings: Settings) -> Celery:
    """A Celery application for these settings, without tasks: a producer only sends to TASK.

    It reads nothing from the environment.
    """
    return _made(_App, _configuration(settings))


def make_tools_app(settings: Settings) -> Celery:
    """The application for Celery's own commands: they look at workers, and start none.

    Its queues are none, and it has Celery's names. It reads nothing from the environment.
    """
    server = settings.broker_address
    return _made(_ToolsApp, _configuration(settings) | {"broker_url": _shown_url(server, "evalq-tools-redis")})


def _made(kind: type[_App], configuration: Mapping[str, Any]) -> Celery:
    TRANSPORT_ALIASES.update(SCHEMES)
    # No fixups: Django's would add the current folder to Python's search path.
    app = kind("evalq", loader=_Loader, set_as_current=False, fixups=())
    app.conf.update(configuration)
    return app


def queue_of(name: str, settings: Settings) -> Queue:
    """The queue ``name``, also one that only workers of another code version consume."""
    # The default exchange needs no binding, so a server that lost its data needs no new declaration.
    return Queue(name, Exchange(""), routing_key=name, queue_arguments=settings.queue_options or None)


def _configuration(settings: Settings) -> dict[str, Any]:
    queues = [queue_of(queue_name(name, code_version()), settings) for name in QUEUE_CLASSES]
    return {
        "broker_url": _shown_url(settings.broker_address, "evalq-open-redis" if settings.is_open else "evalq-redis"),
        "broker_connection_retry_on_startup": True,
        # A worker waits for its server without a limit.
        "broker_connection_max_retries": None,
        "broker_connection_timeout": settings.connect_seconds,
        "broker_transport_options": _transport(settings),
        "task_serializer": "json",
        # Only JSON: unpickling a message would run code of its sender.
        "accept_content": ["json"],
        "result_accept_content": ["json"],
        # No result backend: a message delivered twice would give two results. The ledger stores each answer once.
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        "result_backend": None,
        "task_queues": queues,
        "task_default_queue": queues[-1].name,
        # Workers consume the queues of their own code version. `queue_of` names other queues for publishing.
        "task_create_missing_queues": False,
        # Acknowledge after the commit, and requeue if the pool process dies. A message delivered twice costs one claim;
        # a lost one delays its chunk by seconds, until recovery publishes it again.
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        # One message per process: another worker could compute a chunk that would only wait in this one's memory.
        "worker_prefetch_multiplier": 1,
        # RabbitMQ's own prefetch limit is exact, and with RabbitMQ Celery would warn about this at each connection.
        "worker_disable_prefetch": settings.broker_address.is_redis,
        "worker_max_tasks_per_child": settings.tasks_per_child,
        "worker_soft_shutdown_timeout": settings.soft_shutdown_seconds,
        # Celery's own remote control would let anyone who can reach the broker stop or reconfigure workers. A worker
        # answers the commands in `evalq.workers.pool.celery_tools`, and only if the setting says so.
        "worker_enable_remote_control": settings.remote_control != "off",
        "worker_send_task_events": settings.celery_events,
        "task_send_sent_event": False,
        "worker_hijack_root_logger": False,
        # The result goes to the ledger, which may be reachable while the broker is not.
        "worker_cancel_long_running_tasks_on_connection_loss": False,
    }


def _transport(settings: Settings) -> dict[str, Any]:
    # Pass the parsed address: kombu would parse the URL differently.
    reach: dict[str, Any] = {"server": settings.broker_address}
    if not settings.broker_address.is_redis:
        return reach
    return reach | {
        "answer_seconds": settings.answer_seconds,
        "connect_seconds": settings.connect_seconds,
        "health_check_interval": 10,
        # Long enough: recovery publishes lost chunks again within seconds, and a message that is redelivered later
        # finds its chunk committed.
        "visibility_timeout": 300,
        "unacked_restore_interval": 5,  # from kombu 5.7 on; 10 before
        # Consume in the order of QUEUE_CLASSES, so that a merge check does not wait behind an overnight sweep.
        "queue_order_strategy": "priority",
    }
