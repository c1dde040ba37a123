"""The Celery application: exactly one task, settings that lose nothing quietly, and queues by code version."""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.loaders.app import AppLoader
from kombu.entity import Exchange, Queue
from kombu.transport import TRANSPORT_ALIASES

from evalq.evalcore.model.manifest import QUEUE_CLASSES, queue_name
from evalq.evalcore.version import code_version
from evalq.workers.broker.transport import SCHEMES, shown_url
from evalq.workers.settings import Settings

__all__ = ["make_app", "queue_of"]


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
        "broker_url": shown_url(settings.broker_address),
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
