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
from celery.worker.consumer import Consumer

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

# Other workers ask for the lock at each beat: one of them has it within this many.
_YIELD_BEATS = 4
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
"""What asks a worker to end."""


def run_worker(
    settings: Settings, loglevel: str = "WARNING", preload: Sequence[str] = (), *, quiet: bool = False
) -> int:
    """Serve the queues of this code version until told to stop; returns an exit code.

    SIGTERM, SIGINT, SIGQUIT and SIGHUP let running chunks and calls end within ``soft_shutdown_seconds`` and give the
    rest back. For SIGTERM,
    REMAP_SIGTERM=SIGQUIT must stand in the environment before this module is imported: billiard reads it then.
    Evaluators in ``preload`` are loaded before the pool forks. Unless ``quiet``, it says when it is ready.
    Raises ConfigError where a folder that it may read has a path that nobody can be told.
    """
    _roots(settings)
    _have_semaphores()
    _ignore_warnings()
    name = unique_name()
    log_to_stderr(loglevel)
    for handler in logging.getLogger().handlers:
        handler.addFilter(Reconnecting())
        handler.addFilter(without_traceback)
    for library in ("OPENBLAS", "OMP", "MKL"):  # the pool has the cores; threads of their own only cost memory
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    preload_scripts()
    for evaluator in preload:
        plugins.get(evaluator)
    # A quiet worker is a command's own. It shares its group with the guard that starts it again, and not for ever: what
    # a record does to its group must reach neither.
    app = _app(settings, name, alone=quiet)
    # A pool process ends without Python's own end, which would send what is left.
    worker_process_shutdown.connect(_flush)
    if not quiet:
        worker_ready.connect(lambda **_: print_ready(settings, name), weak=False)
    attendant = _Attendant(settings, name)
    # Before the first chunk: whether a process died alone or with its worker is read from the worker's heartbeat.
    attendant.arrive()
    threading.Thread(target=attendant.attend, name="evalq-attendant", daemon=True).start()
    with calling_beside(settings, loglevel) as end_calls, contextlib.ExitStack() as stack:
        # When the pool has ended: chunks that end within the time to do so still hold their leases.
        stack.callback(attendant.leave)
        worker = _worker(app, settings, name, loglevel)
        _end_softly(worker, end_calls)
        worker.start()
        return _exit_code(worker)


class _Consumer(Consumer):  # type: ignore[misc]  # Celery is untyped
    """Celery's, without the step that makes exchanges and queues `celery_delayed_*` wherever a queue is a quorum queue.

    They are shared by all applications of a virtual host, and evalq delays no message.
    """

    class Blueprint(Consumer.Blueprint):  # type: ignore[misc]  # Celery is untyped
        default_steps = tuple(
            step for step in Consumer.Blueprint.default_steps if not step.endswith(":DelayedDelivery")
        )


class _CeleryPool(TaskPool):  # type: ignore[misc]  # Celery is untyped
    """Celery's, which a worker may still ask about its processes when a signal has just ended them.

    A worker asks once, right after it is ready. The signal's own answer, a good end, is the one that counts.
    """

    def did_start_ok(self) -> bool:
        """Whether its processes started; True where they have ended since."""
        return self._pool is None or bool(super().did_start_ok())


def _worker(app: Any, settings: Settings, name: str, loglevel: str) -> Any:
    """Celery's own worker, not started yet."""
    worker = app.Worker(
        hostname=f"evalq@{name}",
        pool=_CeleryPool,
        consumer_cls=_Consumer,
        concurrency=settings.processes,
        # Hand a message only to a free process, not into the pipe of one that is busy with a long chunk.
        optimization="fair",
        # Workers are known by their heartbeats in the ledger, so none of Celery's is needed.
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        loglevel=loglevel,
        quiet=True,
    )
    # Else Celery asks its pool, and once more when that has ended and itself is about to: an error, and exit 1.
    worker.max_concurrency = settings.processes
    # Again: with its log, Celery has set up that its own warnings are shown.
    _ignore_warnings()
    return worker


def _end_softly(worker: Any, end_calls: Callable[[], None]) -> None:
    """Have each signal that asks a worker to end do so alike: within the time for it, with exit code 0.

    By Celery's own handlers SIGINT waits for chunks without an end, and ends with 1; SIGHUP starts the program again.
    """
    stays = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # it was started by nohup
    stock = worker.install_platform_tweaks

    def install(worker: Any) -> None:
        stock(worker)
        soft: Any = signal.getsignal(signal.SIGTERM)  # REMAP_SIGTERM: within soft_shutdown_seconds

        def first(number: int, frame: FrameType | None) -> None:
            # Celery's own from now on: by a second one it cancels what runs, by a third it ends at once.
            for other in _ENDING:
                signal.signal(other, soft if other != signal.SIGHUP else signal.SIG_IGN)
            end_calls()
            soft(number, frame)

        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN if stays and number == signal.SIGHUP else first)

    worker.install_platform_tweaks = install
    # A terminal that closes tells the whole group: the pool's processes end when the worker has them end.
    worker_process_init.connect(_ignore_hang_up)


def _ignore_hang_up(**_: Any) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _exit_code(worker: Any) -> int:
    """Celery's 1 for what it could not survive is a policy's answer here, and its 0 for giving up is no good end."""
    if worker.exitcode is None and state.should_stop is None and state.should_terminate is None:
        return InfrastructureError.exit_code  # nobody told it to end: it does so where too many files are open
    code = int(worker.exitcode or 0)
    return InfrastructureError.exit_code if code == 1 else code


def _have_semaphores() -> None:
    """Raise ConfigError where the pool could make none: its own error names neither folder nor remedy."""
    try:
        multiprocessing.Semaphore()
    except OSError as error:
        raise ConfigError(
            f"/dev/shm: no semaphore can be made there ({error.strerror or error}), which a worker's pool needs: "  # noqa: S108 - it is named, not used
            "mount it writable"
        ) from None


def _roots(settings: Settings) -> str:
    """The folders that a worker may read, as it tells of them. Raises ConfigError."""
    told = os.pathsep.join(str(Path(root).resolve()) for root in settings.roots or (Path.cwd(),))
    if not is_text(told):
        which = f"of a root ({told!r})" if settings.roots else "of the current folder"
        raise ConfigError(f"the path {which} is not text in UTF-8; rename it, or give another --root")
    return told


def _ignore_warnings() -> None:
    # Celery warns of root because of pickled messages; this application takes JSON only.
    warnings.simplefilter("ignore", SecurityWarning)
    # And of a default to come, whenever it loses its server; `evalq.workers.broker.transport` sets it.
    warnings.simplefilter("ignore", CPendingDeprecationWarning)


def _flush(**_: Any) -> None:
    tracing.flush()


def _app(settings: Settings, name: str, *, alone: bool) -> Any:
    """The application with its task; each pool process opens its own connection to the ledger.

    ``alone``: each has a process group of its own, too.
    """
    app = make_app(settings)
    here: dict[int, ChunkRunner] = {}

    def worker() -> ChunkRunner:
        pid = os.getpid()
        if pid not in here:
            # After a fork: two processes must not share the parent's connection, and the memory bound counts from what
            # this process starts with.
            here.clear()
            if alone:
                leave_group()
            ChunkLimits.of(settings).bound_memory()
            here[pid] = ChunkRunner(RunLedger(connect(settings.ledger_address, settings), settings), settings, name)
        return here[pid]

    @app.task(name=TASK, acks_late=True, ignore_result=True)  # type: ignore[untyped-decorator]  # Celery is untyped
    def evaluate(run: object, seq: object, epoch: object) -> None:
        try:  # a broker other than Redis delivers without `evalq.workers.broker.transport`
            hint = msgspec.convert([run, seq, epoch], Hint)
        except msgspec.ValidationError as error:
            log.warning("a message that evalq did not write was dropped: %s", error)
            return
        try:
            mine = worker()
            mine.evaluate(hint.run, hint.seq, hint.epoch)
        except Exception:
            # Not Celery's to report: its main process would be sent more traceback than a pipe takes at once, and when
            # that loses the broker it forgets what it has read of an answer by half, goes on in the middle, and ends.
            # The chunk is published again in either case.
            log.exception("chunk %s of run %s is left for later", hint.seq, hint.run)
            return
        if mine.rest:
            time.sleep(mine.rest)  # before the message is acknowledged: until then no other is taken

    return app


class _Attendant:
    """Beside the pool, in the main process: says that this worker lives, and tends runs whose producer has gone."""

    def __init__(self, settings: Settings, name: str, timings: Timings = TIMINGS) -> None:
        self._settings = settings
        self._name = name
        self._timings = timings
        self._complaint = Complaint(log, f"the ledger at {settings.ledger_address}")
        self._health = HealthFile(settings)
        self._stop = threading.Event()
        self._telling = threading.Lock()
        self._since, self._clock_ahead = 0, 0.0

    def attend(self) -> None:
        """Until `leave`; a lost server is waited for."""
        while not self._stop.is_set():
            try:
                self._serve()
            except (redis.RedisError, EvalqError, OSError) as error:
                self._health.write("away")
                self._complaint.report(error)
                self._stop.wait(self._timings.beat)
            except Exception:  # a bug in tending must not end the signs of life
                log.exception("tending runs failed; trying again")
                self._stop.wait(self._timings.beat)

    def arrive(self) -> None:
        """Say that this worker lives, before it takes its first chunk.

        A server that can do nothing yet is waited for, and one that does not answer for ``patience_seconds``: workers
        and their server are often started together. Raises BrokerUnreachable after that, ServerRefused.
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
        if self._settings.ledger_apart:  # else Celery would try it again and again
            refuse_unusable(self._settings.broker_address, self._settings)
        client = connect(self._settings.ledger_address, self._settings)
        now = server_micros(client)
        self._since = now // 1000
        self._clock_ahead = round(time.time() - now / 1_000_000, 3)
        Heartbeats(client).beat(self._name, self._facts(), self._timings.life)
        client.close()

    def leave(self) -> None:
        """Stop, take this worker off the list, and give back what it held."""
        with self._telling:  # a beat that is under way would put it on the list again
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
            # Before the queues are asked for: they may be away, on another server, for longer than a worker's life.
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
                    # At each beat, also where another worker tends: only this one can report what its own process died
                    # of.
                    finalisers.idle()
                    resting -= 1
                    # For two beats: one that is late does not lose it to another worker.
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
        with self._telling:
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


# -- a worker's log: a line in place of a traceback for what is no bug, and no flood of lasting trouble ---

_MORE = "raise the limits on open files and processes (ulimit, or the container's), or have fewer (--concurrency)"

_GIVES_UP = "Too many open files. Aborting..."
"""What Celery says, without the error, where its loop gets none."""


def _limited(error: BaseException | None) -> bool:
    """Whether the system gives this worker no more processes, or no more files that go with them."""
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
    """A filter of records: what Celery says of its connection is said once, then every AGAIN_SECONDS.

    To a server that answers but takes no writes (a replica that was a primary until now) it connects five times a
    second, and says so each time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said: dict[tuple[str, type[BaseException] | None], float] = {}

    def __call__(self, record: logging.LogRecord) -> bool:
        """Whether the record is to be shown; one of the connection becomes a single line."""
        if record.name != "celery.worker.consumer.consumer":
            return True
        if record.exc_info and isinstance(record.exc_info[1], RestartFreqExceeded):
            return False  # that it waits a second now, with a traceback, after the lines that say why
        record.msg, record.args = " ".join(record.getMessage().split()), ()
        # With what broke the connection: a server that is back and refuses the password is news behind the same words.
        error = record.exc_info[0] if record.exc_info else None
        now, line = self._clock(), (record.msg, error)
        self._said = {said: at for said, at in self._said.items() if now - at < AGAIN_SECONDS}
        if line in self._said:
            return False
        self._said[line] = now
        return True
