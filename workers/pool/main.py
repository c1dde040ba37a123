"""Running a worker: Celery with the options that keep the ledger's promises, a heartbeat, and the reconciler."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import redis
from billiard.exceptions import RestartFreqExceeded, WorkerLostError
from celery.concurrency.prefork import TaskPool
from celery.exceptions import CPendingDeprecationWarning, SecurityWarning
from celery.signals import worker_process_init, worker_process_shutdown, worker_ready
from celery.worker import state

from evalq.evalcore.contract import plugins
from evalq.evalcore.errors import BrokerUnreachable, ConfigError, EvalqError, InfrastructureError, StorageError
from evalq.evalcore.naming import is_text
from evalq.evalcore.version import code_version
from evalq.workers import tracing
from evalq.workers.broker.message import TASK, Hint
from evalq.workers.broker.publisher import Broker
from evalq.workers.broker.transport import make_app
from evalq.workers.callers.supervisor import calling_beside
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.ledger.scripts import preload_scripts, server_micros
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.pool.celery_tools import BoundedEvents, TaskTitles, consumer_class, request_class
from evalq.workers.pool.chunk_runner import ChunkRunner
from evalq.workers.pool.isolation import ChunkLimits
from evalq.workers.processes.identity import host, log_to_stderr, unique_name
from evalq.workers.processes.system import fork_lock, leave_group
from evalq.workers.ready import HealthFile, print_ready
from evalq.workers.recovery.finaliser import Finalisers
from evalq.workers.recovery.reconciler import Reconciler, may_tend, stop_tending
from evalq.workers.recovery.unattended import UnattendedSweeps
from evalq.workers.servers.connections import AGAIN_SECONDS, Complaint, connect, refuse_unusable
from evalq.workers.servers.errors import SERVER_ERRORS, explained
from evalq.workers.settings import TIMINGS, Settings, Timings

log = logging.getLogger("evalq.worker")

# Other workers ask for the lock at each heartbeat: one of them gets it within this many.
_YIELD_BEATS = 4
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
"""Signals that ask a worker to end."""


def run_worker(
    settings: Settings, loglevel: str = "WARNING", preload: Sequence[str] = (), *, quiet: bool = False
) -> int:
    """Serve the queues of this code version until a signal stops the worker; returns an exit code.

    After SIGTERM, SIGINT, SIGQUIT or SIGHUP, running chunks and calls may end within ``soft_shutdown_seconds``; the
    worker gives the rest back. For SIGTERM, the environment must have REMAP_SIGTERM=SIGQUIT before this module is
    imported: billiard reads it then. Evaluators in ``preload`` are loaded before the pool forks. Unless ``quiet``, the
    worker prints when it is ready. Raises ConfigError if the path of a root is not UTF-8.
    """
    _roots(settings)
    _check_semaphores()
    _ignore_warnings()
    name = unique_name()
    log_to_stderr(loglevel)
    for handler in logging.getLogger().handlers:
        handler.addFilter(Reconnecting())
        handler.addFilter(without_traceback)
    for library in ("OPENBLAS", "OMP", "MKL"):  # the pool uses all cores; further threads only cost memory
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    preload_scripts()
    for evaluator in preload:
        plugins.get(evaluator)
    # A quiet worker belongs to a command and shares its process group with its guard. A record that kills its process
    # group must reach neither.
    app = _app(settings, name, alone=quiet)
    # A pool process ends without Python's own shutdown, which would send the remaining spans.
    worker_process_shutdown.connect(_flush)
    if not quiet:
        worker_ready.connect(lambda **_: print_ready(settings, name), weak=False)
    attendant = Attendant(settings, name)
    # Before the first chunk: the heartbeat shows later whether a process died alone or with its worker.
    attendant.arrive()
    threading.Thread(target=attendant.attend, name="evalq-attendant", daemon=True).start()
    with calling_beside(settings, loglevel) as end_calls, contextlib.ExitStack() as stack:
        # After the end of the pool: chunks that end in time still hold their leases.
        stack.callback(attendant.leave)
        worker = _worker(app, settings, name, loglevel)
        _end_softly(worker, end_calls)
        worker.start()
        return _exit_code(worker)


class _CeleryPool(TaskPool):  # type: ignore[misc]  # Celery is untyped
    """Celery's pool, except that a signal may end its processes before the worker checks that they started.

    A worker checks once, right after it is ready. If a signal came first, its orderly end counts.
    """

    def did_start_ok(self) -> bool:
        """Whether its processes started; True if they have ended since."""
        return self._pool is None or bool(super().did_start_ok())


def _worker(app: Any, settings: Settings, name: str, loglevel: str) -> Any:
    """Celery's own worker, not started yet."""
    worker = app.Worker(
        hostname=f"evalq@{name}",
        pool=_CeleryPool,
        consumer_cls=consumer_class(settings),
        concurrency=settings.processes,
        # Hand a message only to a free process, not into the pipe of one that is busy with a long chunk.
        optimization="fair",
        # evalq knows workers by their heartbeats in the ledger. Celery's are for its own tools.
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=not settings.celery_events,
        loglevel=loglevel,
        quiet=True,
    )
    # Otherwise Celery asks its pool, also after the pool has ended: an error, and exit code 1.
    worker.max_concurrency = settings.processes
    # Again: Celery has turned its own warnings on with its log.
    _ignore_warnings()
    return worker


def _end_softly(worker: Any, end_calls: Callable[[], None]) -> None:
    """Let each signal in `_ENDING` end the worker in the same way: within ``soft_shutdown_seconds``, with exit code 0.

    With Celery's own handlers, SIGINT waits for chunks for ever and ends with 1; SIGHUP restarts the program.
    """
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    stock = worker.install_platform_tweaks

    def install(worker: Any) -> None:
        stock(worker)
        soft: Any = signal.getsignal(signal.SIGTERM)  # REMAP_SIGTERM: within soft_shutdown_seconds

        def first(number: int, frame: FrameType | None) -> None:
            # Celery's handlers from now on: a second signal cancels running chunks, a third ends at once.
            for other in _ENDING:
                signal.signal(other, soft if other != signal.SIGHUP else signal.SIG_IGN)
            end_calls()
            soft(number, frame)

        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN if nohup and number == signal.SIGHUP else first)

    worker.install_platform_tweaks = install
    # A closing terminal signals the whole group: the worker ends its pool's processes itself.
    worker_process_init.connect(_ignore_hang_up)


def _ignore_hang_up(**_: Any) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _exit_code(worker: Any) -> int:
    """The worker's exit code: Celery's 1 means a policy failure in evalq, and its 0 may be a failure."""
    if worker.exitcode is None and state.should_stop is None and state.should_terminate is None:
        return InfrastructureError.exit_code  # no signal came: Celery ends so with too many open files
    code = int(worker.exitcode or 0)
    return InfrastructureError.exit_code if code == 1 else code


def _check_semaphores() -> None:
    """Raise ConfigError if the pool cannot make semaphores: its own error names neither folder nor remedy."""
    try:
        multiprocessing.Semaphore()
    except OSError as error:
        raise ConfigError(
            f"/dev/shm: a worker's pool cannot make a semaphore there ({error.strerror or error}): "  # noqa: S108 - it is named, not used
            "mount it writable"
        ) from None


def _roots(settings: Settings) -> str:
    """The folders that a worker may read, separated as in PATH. Raises ConfigError."""
    roots = os.pathsep.join(str(Path(root).resolve()) for root in settings.roots or (Path.cwd(),))
    if not is_text(roots):
        which = f"of a root ({roots!r})" if settings.roots else "of the current folder"
        raise ConfigError(f"the path {which} is not text in UTF-8; rename it, or give another --root")
    return roots


def _ignore_warnings() -> None:
    # Celery warns of root because of pickled messages; this application takes JSON only.
    warnings.simplefilter("ignore", SecurityWarning)
    # And of a default to come, whenever it loses its server; `evalq.workers.broker.transport` sets it.
    warnings.simplefilter("ignore", CPendingDeprecationWarning)


def _flush(**_: Any) -> None:
    tracing.flush()


def _app(settings: Settings, name: str, *, alone: bool) -> Any:
    """The application with its task. ``alone``: each pool process has its own process group."""
    app = make_app(settings)
    app.events_cls = BoundedEvents

    def began() -> ChunkRunner:
        if alone:
            leave_group()
        ChunkLimits.of(settings).bound_memory()
        return chunk_runner(settings, name)

    shown = {"Request": request_class(TaskTitles(lambda: settings))} if settings.is_open else {}
    add_task(app, began, **shown)
    return app


def chunk_runner(settings: Settings, name: str) -> ChunkRunner:
    """A runner of this process, with a connection of its own, for the worker ``name``."""
    return ChunkRunner(RunLedger(connect(settings.ledger_address, settings), settings), settings, name)


def add_task(
    app: Any,
    began: Callable[[], ChunkRunner],
    around: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    **options: Any,
) -> None:
    """Add evalq's task to a Celery application.

    ``began`` makes the runner of a pool process after its fork: processes must not share the parent's connection, and a
    memory bound counts from the present use of the process. Each chunk is computed inside ``around()``.
    """
    runners: dict[int, ChunkRunner] = {}

    def runner() -> ChunkRunner:
        pid = os.getpid()
        if pid not in runners:
            runners.clear()
            runners[pid] = began()
        return runners[pid]

    @app.task(name=TASK, acks_late=True, ignore_result=True, **options)  # type: ignore[untyped-decorator]  # Celery is untyped
    def evaluate(run: object, seq: object, epoch: object) -> None:
        try:  # a broker other than Redis delivers without `evalq.workers.broker.transport`
            hint = msgspec.convert([run, seq, epoch], Hint)
        except msgspec.ValidationError as error:
            log.warning("a message that evalq did not write was dropped: %s", error)
            return
        try:
            with around():
                mine = runner()
                mine.evaluate(hint.run, hint.seq, hint.epoch)
        except Exception:
            # Do not let Celery report it: a traceback longer than a pipe's buffer reaches its main process in parts,
            # and if that loses the broker between two parts, it reads on in the middle and ends. The chunk is published
            # again in either case.
            log.exception("chunk %s of run %s is left for later", hint.seq, hint.run)
            return
        if mine.rest:
            time.sleep(mine.rest)  # before the message is acknowledged, so that this process takes no other


class Attendant:
    """Runs beside the pool, in the main process: sends heartbeats, and tends runs without a producer."""

    def __init__(self, settings: Settings, name: str, timings: Timings = TIMINGS) -> None:
        self._settings = settings
        self._name = name
        self._timings = timings
        self._complaint = Complaint(log, f"the ledger at {settings.ledger_address}")
        self._health = HealthFile(settings)
        self._stop = threading.Event()
        self._beating = threading.Lock()
        self._since, self._clock_ahead = 0, 0.0

    def attend(self) -> None:
        """Send heartbeats and tend runs until `leave`; waits for a lost server."""
        while not self._stop.is_set():
            try:
                self._serve()
            except (redis.RedisError, EvalqError, OSError) as error:
                self._health.write("away")
                self._complaint.report(error)
                self._stop.wait(self._timings.beat)
            except Exception:  # a bug in tending must not end the heartbeats
                log.exception("tending runs failed; trying again")
                self._stop.wait(self._timings.beat)

    def arrive(self) -> None:
        """Send the first heartbeat, before the worker takes its first chunk.

        Workers and their server are often started together, so wait for a server that is loading, and for one that does
        not answer for ``patience_seconds``. Raises BrokerUnreachable after that, ServerRefused.
        """
        deadline = time.monotonic() + self._settings.patience_seconds
        while True:
            self._health.write("away")
            try:
                self._arrive()
            except (redis.RedisError, BrokerUnreachable) as error:
                if not isinstance(explained(error, "the ledger"), BrokerUnreachable):
                    raise
                if isinstance(error, BrokerUnreachable) and time.monotonic() >= deadline:
                    raise
                self._complaint.report(error)
                self._stop.wait(self._timings.beat)
            else:
                self._complaint.over()
                return

    def _arrive(self) -> None:
        if self._settings.ledger_apart:  # otherwise Celery would retry it for ever
            refuse_unusable(self._settings.broker_address, self._settings)
        client = connect(self._settings.ledger_address, self._settings)
        now = server_micros(client)
        self._since = now // 1000
        self._clock_ahead = round(time.time() - now / 1_000_000, 3)
        Heartbeats(client).beat(self._name, self._facts(), self._timings.life)
        client.close()

    def leave(self) -> None:
        """Stop, take this worker off the list, and give back its leases."""
        with self._beating:  # a heartbeat under way would put it on the list again
            self._stop.set()
        self._health.remove()
        with contextlib.suppress(redis.RedisError, EvalqError, OSError):
            client = connect(self._settings.ledger_address, self._settings)
            Heartbeats(client).leave(self._name)
            RunLedger(client, self._settings).give_back(self._name)

    def _serve(self) -> None:
        with fork_lock():
            client = connect(self._settings.ledger_address, self._settings)
            ledger, heartbeats = RunLedger(client, self._settings), Heartbeats(client)
            # Before connecting to the queues: their server may be away for longer than a heartbeat lasts.
            self._beat(heartbeats)
            broker = Broker(self._settings)
            reconciler, finalisers = Reconciler(ledger, broker), Finalisers(self._settings, ledger, self._name)
            left = UnattendedSweeps(SweepLedger(client, self._settings), self._settings)
        resting = 0
        try:
            while not self._stop.wait(self._timings.beat):
                with fork_lock():
                    self._beat(heartbeats)
                    self._complaint.over()
                    # At each heartbeat, also if another worker tends: only this one can report how its process ended.
                    finalisers.idle()
                    resting -= 1
                    # For two heartbeats, so that a late one does not lose the lock.
                    if resting > 0 or not may_tend(client, self._name, 2 * self._timings.beat):
                        continue
                    finalisers.start(left.over(), reconciler.tend_all())
                    if finalisers.yields:  # another worker may be able to finish what this one could not
                        stop_tending(client, self._name)
                        resting = _YIELD_BEATS
        finally:
            finalisers.close()
            broker.close()
            client.close()

    def _beat(self, heartbeats: Heartbeats) -> None:
        with self._beating:
            if not self._stop.is_set():
                heartbeats.beat(self._name, self._facts(), self._timings.life)
                self._health.write("heard")

    def _facts(self) -> dict[str, str | int]:
        return {
            "host": host(),
            "pid": os.getpid(),
            "code": code_version(),
            "concurrency": self._settings.processes,
            "since": self._since,
            "clock_ahead": str(self._clock_ahead),
            "evaluators": msgspec.json.encode(plugins.packages()).decode(),
            "roots": _roots(self._settings),
        }


# -- a worker's log: lines instead of tracebacks for lost servers, and no flood of repeated ones ---

_MORE = "raise the limits on open files and processes (ulimit, or the container's), or have fewer (--concurrency)"

_GIVES_UP = "Too many open files. Aborting..."
"""Celery's message, without the error, if its loop gets no file."""


def _limited(error: BaseException | None) -> bool:
    """Whether this worker has reached the system's limit on processes or open files."""
    return isinstance(error, OSError) and error.errno in StorageError.NO_FILES | StorageError.NO_PROCESS


def without_traceback(record: logging.LogRecord) -> bool:
    """A lost pool process or server has no traceback worth showing: a line says what happened."""
    error = record.exc_info[1] if record.exc_info else None
    error = getattr(error, "exc", error)  # billiard raises its own in a wrapper, with the traceback as text
    away = isinstance(error, (BrokerUnreachable, *SERVER_ERRORS))
    if error is not None and away:
        record.msg, record.args = f"{record.getMessage()} ({explained(error, 'the server')})", ()
    if limited := record.getMessage() == _GIVES_UP or (record.name == "celery.worker" and _limited(error)):
        record.msg, record.args = f"{record.getMessage()}; {_MORE}", ()
    if away or limited or isinstance(error, WorkerLostError):
        record.exc_info = record.exc_text = None
    return True


class Reconnecting:
    """A log filter: Celery's lines about its connection appear once, then every AGAIN_SECONDS.

    To a server that answers but takes no writes (a former primary) Celery connects five times a second, and logs each
    time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged: dict[tuple[str, type[BaseException] | None], float] = {}

    def __call__(self, record: logging.LogRecord) -> bool:
        """Whether to show the record; one about the connection becomes a single line."""
        if record.name != "celery.worker.consumer.consumer":
            return True
        if record.exc_info and isinstance(record.exc_info[1], RestartFreqExceeded):
            return False  # a traceback for a wait of a second, after lines with the reason
        record.msg, record.args = " ".join(record.getMessage().split()), ()
        # Keep the error's type: a server that is back and refuses the password gives the same line for another reason.
        error = record.exc_info[0] if record.exc_info else None
        now, line = self._clock(), (record.msg, error)
        self._logged = {known: at for known, at in self._logged.items() if now - at < AGAIN_SECONDS}
        if line in self._logged:
            return False
        self._logged[line] = now
        return True
