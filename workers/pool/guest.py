"""evalq's chunks in the workers of somebody else's Celery application, beside that application's own tasks.

The application keeps its broker, its transport, its settings and its workers. Those that are started with the queue
`evalq` also compute chunks. They send evalq's heartbeats, and tend evalq's runs, as evalq's own workers do.
docs/how-to/own-celery-workers.md says what differs on kombu's own transport.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import redis
from celery.concurrency.prefork import TaskPool
from celery.signals import celeryd_after_setup, worker_process_shutdown, worker_shutdown
from kombu.entity import Exchange, Queue

from evalq.evalcore.errors import ConfigError, EvalqError
from evalq.evalcore.model.manifest import QUEUE_CLASSES, queue_name
from evalq.evalcore.version import code_version
from evalq.workers import tracing
from evalq.workers.address import Address, read_address
from evalq.workers.ledger.scripts import preload_scripts
from evalq.workers.names import QUEUES
from evalq.workers.pool.celery_tools import TaskTitles, request_class
from evalq.workers.pool.chunk_runner import ChunkRunner
from evalq.workers.pool.isolation import ChunkLimits
from evalq.workers.pool.main import Attendant, add_task, chunk_runner
from evalq.workers.processes.identity import unique_name
from evalq.workers.settings import Settings, load_settings

ALIAS = "evalq"
"""What `celery worker -Q` calls evalq's queues: their real names have the code version."""

_NO_LIMIT = 7 * 86_400
"""In seconds, in place of the application's own time limits: evalq has a setting for a chunk's time."""


def install(app: Any, settings: str | None = None, **given: Any) -> None:
    """Let the workers of the Celery application ``app`` serve evalq's queue, if they are started with `-Q evalq`.

        app = Celery("shop", broker="redis://queue.example:6379/0")
        evalq.celery.install(app)

    ``settings`` names a YAML file of evalq's settings, else EVALQ_SETTINGS does; ``given`` are single settings. The
    broker is the application's unless they name it. Nothing is read before a worker starts, so errors end the worker
    and no other process of the application. Raises ConfigError if evalq is in the application already.
    """
    if getattr(app, "evalq", None) is not None:
        raise ConfigError("evalq.celery.install: evalq is in this application already")
    app.evalq = _Guest(app, settings, given)


class _Guest:
    """evalq in one application; in a worker's processes it has the settings and the worker's name."""

    def __init__(self, app: Any, file: str | None, given: dict[str, Any]) -> None:
        self._app = app
        self._file = file
        self._given = given
        self._settings: Settings | None = None
        self._name = ""
        add_task(
            app,
            self._runner,
            self._bounded,
            Request=request_class(TaskTitles(self._chosen)),
            reject_on_worker_lost=True,
            store_errors_even_if_ignored=False,
            track_started=False,
            time_limit=_NO_LIMIT,
            soft_time_limit=_NO_LIMIT,
        )
        celeryd_after_setup.connect(self._begin)

    def _chosen(self) -> Settings:
        if self._settings is None:
            raise ConfigError("this worker does not serve evalq's queue: start it with -Q and evalq among the queues")
        return self._settings

    def _runner(self) -> ChunkRunner:
        return chunk_runner(self._chosen(), self._name)

    @contextlib.contextmanager
    def _bounded(self) -> Iterator[None]:
        """evalq's limit on memory for one chunk; afterwards the process is as the application had it."""
        import resource  # Windows has none, and no pool of forked processes either

        limits, handler = resource.getrlimit(resource.RLIMIT_DATA), signal.getsignal(signal.SIGALRM)
        ChunkLimits.of(self._chosen()).bound_memory()
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, limits)
            signal.signal(signal.SIGALRM, handler)

    def _begin(self, instance: Any, **_: Any) -> None:
        """Take evalq's queues and begin to send heartbeats, in a worker's main process, before its pool forks."""
        queues = instance.app.amqp.queues
        wanted = [name for name in queues.consume_from if name == ALIAS or name.startswith(QUEUES)]
        if instance.app is not self._app or not wanted:
            return
        try:
            self._settings = checked_settings(self._app, instance, load_settings(self._file or _file(), **self._given))
        except EvalqError as error:
            raise SystemExit(f"evalq in this worker: {error}") from None  # Celery logs other exceptions, and goes on
        queues.deselect(wanted)
        for queue in _queues(self._settings):
            queues.select_add(queue)
        self._name = unique_name()
        preload_scripts()
        attendant = Attendant(self._settings, self._name)
        threading.Thread(target=_attend, args=(attendant,), name="evalq-attendant", daemon=True).start()
        worker_shutdown.connect(lambda **_: attendant.leave(), weak=False)
        worker_process_shutdown.connect(_flush)


def _attend(attendant: Attendant) -> None:
    # The application's own tasks do not wait for evalq's ledger.
    with contextlib.suppress(redis.RedisError, EvalqError, OSError):
        attendant.arrive()
    attendant.attend()


def _flush(**_: Any) -> None:
    tracing.flush()


def _file() -> str | None:
    return os.environ.get("EVALQ_SETTINGS") or None


def _queues(settings: Settings) -> Iterable[Queue]:
    names = [queue_name(each, code_version()) for each in QUEUE_CLASSES]
    exchange = Exchange(names[-1], "direct")  # as Celery makes one for evalq's own workers
    return [Queue(name, exchange, routing_key=name, queue_arguments=settings.queue_options or None) for name in names]


def checked_settings(app: Any, worker: Any, settings: Settings) -> Settings:
    """The settings for this worker. Raises ConfigError for an application that cannot serve evalq's queue."""
    conf = app.conf
    if {*map(str, conf.accept_content)} - {"json", "application/json"}:
        raise ConfigError(
            f"accept_content is {sorted(conf.accept_content)}: evalq's queue takes JSON only, since anyone who reaches "
            "the broker may send a pickle. Set accept_content = ['json']"
        )
    if not issubclass(worker.pool_cls, TaskPool) or getattr(worker, "pool_start_method", "fork") != "fork":
        raise ConfigError(
            "chunks need a pool of forked processes, as a record may end its process: start the worker with "
            "--pool prefork, or leave evalq out of -Q"
        )
    if conf.broker_transport_options.get("global_keyprefix"):
        raise ConfigError("broker_transport_options has global_keyprefix, and evalq's queues have no prefix")
    url = conf.broker_read_url or conf.broker_url or ""
    theirs = _address(url)
    if not settings.broker:
        if theirs is None:
            raise ConfigError("evalq cannot read the application's broker_url: name the same server in EVALQ_BROKER")
        settings = settings.model_copy(update={"broker": url})
    elif theirs is not None and theirs.location != settings.broker_address.location:
        raise ConfigError(
            f"the application's broker is {theirs}, and evalq's is {settings.broker_address}: a worker takes all its "
            "messages from one"
        )
    if not settings.ledger_address.is_redis:
        raise ConfigError("evalq's ledger needs Redis or Valkey: name it in EVALQ_LEDGER")
    return settings.model_copy(update={"concurrency": worker.concurrency})


def _address(url: Any) -> Address | None:
    try:
        return read_address(url) if isinstance(url, str) and url else None
    except ConfigError:
        return None
