"""The Celery application: exactly one task, settings that lose nothing quietly, and queues by code version."""

from __future__ import annotations

from typing import Any

from celery import Celery
from kombu.entity import Exchange, Queue
from kombu.transport import TRANSPORT_ALIASES

from evalq.evalcore.model.manifest import QUEUE_CLASSES, queue_name
from evalq.evalcore.version import code_version
from evalq.workers.broker.transport import Transport
from evalq.workers.connections import KEEPALIVE, SCHEME, celery_url, is_redis
from evalq.workers.settings import Settings

__all__ = ["make_app", "queue_of"]


def make_app(settings: Settings) -> Celery:
    """A Celery application for these settings, without any task: a producer only sends to TASK."""
    TRANSPORT_ALIASES[SCHEME] = f"{Transport.__module__}:{Transport.__qualname__}"
    # No fixups: the one for Django would put the current folder on the path of imports.
    app = Celery("evalq", set_as_current=False, fixups=())
    app.conf.update(_configuration(settings))
    return app


def queue_of(name: str) -> Queue:
    """The queue of that name, also one that only workers of other code consume."""
    # The default exchange needs no binding, so a server that lost everything needs no new declaration.
    return Queue(name, Exchange(""), routing_key=name)


def _configuration(settings: Settings) -> dict[str, Any]:
    queues = [queue_of(queue_name(name, code_version())) for name in QUEUE_CLASSES]
    return {
        "broker_url": celery_url(settings.broker),
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_connection_timeout": settings.connect_seconds,
        "broker_transport_options": _transport(settings) if is_redis(settings.broker) else {},
        "task_serializer": "json",
        "accept_content": ["json"],
        "result_accept_content": ["json"],
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        "result_backend": None,
        "task_queues": queues,
        "task_default_queue": queues[-1].name,
        "task_create_missing_queues": False,
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "worker_prefetch_multiplier": 1,
        "worker_disable_prefetch": True,
        "worker_max_tasks_per_child": settings.tasks_per_child,
        "worker_soft_shutdown_timeout": settings.soft_shutdown_seconds,
        "worker_enable_remote_control": False,
        "worker_send_task_events": False,
        "task_send_sent_event": False,
        "worker_hijack_root_logger": False,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
    }


def _transport(settings: Settings) -> dict[str, Any]:
    options: dict[str, Any] = {
        "socket_timeout": settings.answer_seconds,
        "socket_connect_timeout": settings.connect_seconds,
        "health_check_interval": 10,
        "visibility_timeout": 300,
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
        "queue_order_strategy": "priority",
    }
    if "+socket://" not in celery_url(settings.broker):
        options |= KEEPALIVE
    return options
