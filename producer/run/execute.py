"""Carrying out a job from its plan to its files: on an embedded or a given server, or in this process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from evalq.evalcore.errors import (
    AlreadyRunning,
    BrokerUnreachable,
    Cancelled,
    InputError,
    Interrupted,
    NothingEvaluated,
    Paused,
    ServerRefused,
    UsageError,
    WorkersLost,
)
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.life import RunState
from evalq.evalcore.model.manifest import Seal
from evalq.evalcore.views.markdown import plural
from evalq.producer.folder.job import Job
from evalq.producer.folder.journal import Replanned
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.monitor.no_workers import Unserved
from evalq.producer.monitor.progress import Reporter, ShownProgress, Watcher
from evalq.producer.outputs import write_final
from evalq.producer.run.backend import Backend, hold_folder, note_state, raise_interrupted, refuse_ended, shared_backend
from evalq.producer.run.chunks import Collector
from evalq.producer.run.publication import count_drift, publish_cases, publish_report, recent_text, record_in_history
from evalq.producer.servers import Servers
from evalq.workers import tracing

if TYPE_CHECKING:
    from evalq.producer.driving.driver import Driver
    from evalq.producer.local.forks import Forks
    from evalq.producer.run.chunks import Planner
    from evalq.workers.ledger.progress import RunStatus
    from evalq.workers.ledger.runs import RunLedger
    from evalq.workers.ledger.scripts import Scripts
    from evalq.workers.settings import Settings


T = TypeVar("T")


def carry_out(job: Job, backend: Backend, reporter: Reporter) -> dict[str, Json]:
    """Drive a job to its report and write all of its files. Returns the report.

    Raises what driving raises, and StorageError if the folder cannot be written. Faulty input removes the folder of a
    run that this process began; after other errors the run can be resumed.
    """
    with hold_folder(job.folder, backend):
        return _drive_replanned(job, reporter, lambda job: carry_out_here(job, backend, reporter, backend))[1]


def resume(folder: RunFolder, backend: Backend, reporter: Reporter) -> tuple[Job, dict[str, Json]]:
    """Drive the run begun in ``folder`` to its report, like `carry_out`. Returns its job, too.

    The folder is read only once no other process can write there. Raises AlreadyRunning, what `Job.load` raises, and
    UsageError if the run is over.
    """
    with hold_folder(folder, backend):
        refuse_ended(folder)
        job = Job.load(folder)
        reporter.event("launch", run=job.run, folder=str(folder.path))
        return _drive_replanned(job, reporter, lambda job: carry_out_here(job, backend, reporter, backend))


def _drive_replanned(job: Job, reporter: Reporter, drive: Callable[[Job], T]) -> tuple[Job, T]:
    """``drive`` a job; if another folder began the run, take over its plan and drive again."""
    while True:
        try:
            return job, drive(job)
        except Replanned as replanned:
            reporter.warn(str(replanned))
            job = Job.load(job.folder)


def carry_out_here(job: Job, backend: Backend, reporter: Reporter, asked: Backend) -> dict[str, Json]:
    """`carry_out` for a caller that holds the folder; ``asked`` is the backend that a user names to resume it."""
    began = time.monotonic()
    if not backend.settings.broker:
        job.folder.note(state="open", server=None)  # else noted together with the ledger
    collector = Collector(job)
    reporter.detail(
        f"{job.run}: {plural(len(job.sources), 'input')}, {job.total_bytes:,} bytes, "
        f"{plural(collector.next, 'chunk')} already answered"
    )
    with _leaving(job, collector, asked):
        status = _compute(job, collector, backend, reporter)
        report = collector.finish(_sealed(job))
        seconds = round(time.monotonic() - began, 3)
        reporter.detail(_summary_line(status, seconds))
        # Before the run is noted as done: after a crash in between, it is finished and recorded again.
        for missing in _record(job, report, seconds, backend.settings):
            reporter.say(missing)
        history = recent_text(job.folder, job.evaluator, backend.settings) if backend.settings.broker else ""
        facts = {"seconds": seconds, "progress": msgspec.to_builtins(status.progress)}
        write_final(job, report, facts, history, collector.written)
    return report


@contextlib.contextmanager
def _leaving(job: Job, collector: Collector, asked: Backend) -> Iterator[None]:
    """If the block raises, close the unfinished run's files and note its state in the folder.

    If the run can be resumed, the error says how, at ``asked``.
    """
    try:
        yield
    except (InputError, NothingEvaluated):
        _leave(job, collector, "failed")
        job.folder.discard()  # only if this process began it, and without a report
        raise
    except KeyboardInterrupt:
        raise_interrupted(job.folder, asked, partial(_leave, job, collector))
    except Paused:
        _leave(job, collector, "paused")
        raise Interrupted(asked.resume(job.folder)) from None
    except Cancelled as error:
        _leave(job, collector, "cancelled")
        raise Cancelled(f"{error}; its results so far are in {job.folder.path}") from None
    except AlreadyRunning:
        # Another process drives it, and notes its state.
        _leave(job, collector, job.folder.info().state)
        raise
    except (BrokerUnreachable, ServerRefused, WorkersLost) as error:
        _leave(job, collector, "stopped")
        raise asked.resumable(error, job.folder) from error
    except BaseException:
        _leave(job, collector, "stopped")
        raise


def _record(job: Job, report: dict[str, Json], seconds: float, settings: Settings) -> Iterator[str]:
    """Store a finished run on its user's server; yields the reasons why parts could not be stored."""
    with Servers(settings) as servers:
        missing = (
            record_in_history(job.folder, job.evaluator, report, seconds, servers),
            count_drift(job.folder, job.evaluator, report, servers),
            # The report last: processes that fetch it look for the cases beside it.
            publish_cases(job.folder, job.evaluator, report, servers),
            publish_report(job.run, report, servers),
        )
    yield from filter(None, missing)


def _leave(job: Job, collector: Collector, state: RunState) -> None:
    """Close an unfinished run's files and note its state in run.json, if the disk allows it."""
    with contextlib.suppress(OSError):
        collector.close()
    note_state(job.folder, state)


def launch(given: Job | RunFolder, backend: Backend, reporter: Reporter) -> None:
    """Plan and publish a job (or the one begun in a folder) on a given server, and leave it to the workers.

    Raises what driving raises; then the run can be resumed.
    """
    with hold_folder(given.folder if isinstance(given, Job) else given, backend):
        if isinstance(given, RunFolder):
            refuse_ended(given)
        job = given if isinstance(given, Job) else Job.load(given)
        _drive_replanned(job, reporter, lambda job: _leave_to_workers(job, backend, reporter))


def _leave_to_workers(job: Job, backend: Backend, reporter: Reporter) -> None:
    from evalq.workers.servers.errors import SERVER_ERRORS

    if any(source.joined for source in job.sources):
        raise UsageError(
            f"{job.folder.named()}: its cases are in a file of this folder, and workers make a report without it; "
            f"go on with it here: {backend.resume(job.folder)}"
        )
    collector = Collector(job)
    with _leaving(job, collector, backend), driver_at(job, collector, backend, reporter) as driver:
        with tracing.run_span(job.run, begun=job.folder.info().epoch > 0):
            driver.launch()
        driver.detach()
        job.folder.note(state="detached")
        with contextlib.suppress(*SERVER_ERRORS, BrokerUnreachable):  # only a warning; the run is detached already
            Unserved(job.header, backend.settings, reporter).report_detached(*_serving(driver.work.ledger, job))
    collector.close()


def _compute(job: Job, collector: Collector, backend: Backend, reporter: Reporter) -> ShownProgress:
    """Drive the job with its progress shown; returns the last status."""
    with (
        shared_backend(backend, job.roots, job.header.evaluator, reporter=reporter) as shared,
        _forks(job, shared) as forks,  # before any thread starts
        reporter.watching() as watch,
    ):
        shown = _Shown(job, backend, reporter, watch)
        if shared.inline:
            from evalq.producer.run.chunks import drive_inline

            drive_inline(job, collector, shown)
        elif shared.later is None or forks is None:
            _drive(job, collector, shared.later.backend() if shared.later else shared, reporter, shown)
        else:
            from evalq.producer.run.local_pool import LocalPool

            pool = LocalPool(job, collector, forks, shared.later, reporter)
            if not pool.drive(shown):
                # From here on, the workers use their cores.
                forks.end()
                # The driver counts from 0 again.
                shown.before = shown.last
                _drive(job, collector, shared.later.backend(), reporter, shown, pool.planner)
    return shown.last


def _forks(job: Job, backend: Backend) -> AbstractContextManager[Forks | None]:
    """Processes for the beginning of a job; none if a server and workers are started already."""
    if backend.later is None or backend.later.started is not None:
        return contextlib.nullcontext()
    from evalq.producer.run.local_pool import forks_for

    return forks_for(job, backend.settings)


class _Shown:
    """Shows a job's progress: ``last`` is its last status, ``before`` the part done by the local pool."""

    def __init__(self, job: Job, backend: Backend, reporter: Reporter, watch: Watcher) -> None:
        own = backend.served or bool(backend.workers) or not backend.settings.broker
        self._unserved = Unserved(job.header, backend.settings, reporter, own=own)
        self._watch = watch
        self.last = self.before = ShownProgress(0, 0, job.total_bytes)

    def __call__(self, status: ShownProgress) -> None:
        self.note(status)
        self._unserved.observe(self.last)
        self._watch(self.last)

    def note(self, status: ShownProgress) -> None:
        """Take in a status without showing it."""
        records, done = status.records + self.before.records, status.done_bytes + self.before.done_bytes
        self.last = msgspec.structs.replace(status, records=records, done_bytes=done)


def _drive(
    job: Job, collector: Collector, backend: Backend, reporter: Reporter, shown: _Shown, begun: Planner | None = None
) -> None:
    """Drive the job over a queue."""
    with driver_at(job, collector, backend, reporter, shown, begun) as driver:
        driver.drive(shown)
        shown.note(driver.work.progress)


def _summary_line(status: ShownProgress, seconds: float) -> str:
    """The costs of the run in one line."""
    progress = status.progress
    if progress is None:
        return f"{status.records:,} records in {seconds} s, without a queue"
    return (
        f"{progress.chunks} chunks, {progress.computed} computed, {progress.duplicates} duplicates, "
        f"{progress.reconciled} published again, epoch {progress.epoch}, {seconds} s"
    )


def _sealed(job: Job) -> Seal:
    if job.manifest.seal is None:
        raise AssertionError("a driven job has its seal")
    return job.manifest.seal


# -- a driver at the servers and local workers of a backend ----------------------------------------


@contextlib.contextmanager
def driver_at(
    job: Job,
    collector: Collector,
    backend: Backend,
    reporter: Reporter,
    seen: Watcher | None = None,
    begun: Planner | None = None,
) -> Iterator[Driver[RunStatus]]:
    """A driver over the servers and local workers of ``backend``; processes started here end with it.

    ``seen`` is first shown the workers of the server. ``begun`` is the planner of the job's first chunks.
    """
    with (
        shared_backend(backend, job.roots, job.header.evaluator, reporter=reporter) as shared,
        contextlib.ExitStack() as stack,
    ):
        from evalq.producer.driving.retries import ServerRetry
        from evalq.workers.ledger.runs import RunLedger
        from evalq.workers.processes.identity import driver_token

        settings = shared.settings
        retry = ServerRetry(settings, reporter, shared.check)
        ledger = RunLedger(retry.client(), settings, driver_token())
        if seen is not None and not shared.served:
            retry.once(partial(_show_workers, ledger, job, seen))
        # Imported while the local workers start: Celery takes its time in both.
        from evalq.producer.driving.driver import Driver
        from evalq.producer.run.work import RunWork
        from evalq.workers.broker.publisher import Broker

        broker = Broker(settings)
        stack.callback(broker.close)
        stack.enter_context(retry.reporting())
        work = RunWork(job, collector, ledger, broker, settings, retry, begun)
        driver = Driver(work, retry, backend.server)
        with driver.leaving(reporter):
            yield driver


def _show_workers(ledger: RunLedger, job: Job, seen: Watcher) -> None:
    """Show the workers of a server."""
    workers, others, lacking = _serving(ledger, job)
    seen(ShownProgress(0, 0, job.total_bytes, workers=workers, others=others, lacking=lacking))


def _serving(ledger: Scripts, job: Job) -> tuple[int, dict[str, int], bool]:
    from evalq.workers.ledger.heartbeats import Heartbeats

    return Heartbeats(ledger.client).serving(job.header.code_version, job.header.evaluator)
