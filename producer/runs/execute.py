"""Carrying a job out: on an embedded server, a given one, or here; and leaving its folder as it should be."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from evalq.evalcore.errors import (
    BrokerUnreachable,
    Cancelled,
    ConfigError,
    Driven,
    EvalqError,
    InputError,
    Interrupted,
    NothingEvaluated,
    Paused,
    ServerRefused,
    StorageError,
    UsageError,
    WorkersLost,
)
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.life import RunState, may_follow
from evalq.evalcore.model.manifest import Seal
from evalq.producer.folder.job import Job
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.monitor.progress import RunStatus
from evalq.producer.monitor.reporter import Reporter
from evalq.producer.monitor.unserved import Unserved
from evalq.producer.outputs import write_final
from evalq.producer.runs.collector import Collector
from evalq.producer.runs.record_history import remember
from evalq.producer.runs.share import share
from evalq.workers.connections import server_options
from evalq.workers.settings import Settings

if TYPE_CHECKING:
    from evalq.producer.local.children import Children
    from evalq.producer.runs.driver import RunDriver
    from evalq.workers.ledger.runs import RunLedger

__all__ = [
    "Backend",
    "carry_out",
    "carry_out_here",
    "driving",
    "launch",
    "left",
    "refuse_over",
    "resumable",
    "resume",
    "shared_place",
]


CALLS_HERE = 50
"""Live calls in flight of a command that calls by itself, unless it is told how many or a target takes more at once."""
CALLS_MOST = 10_000


class Backend(msgspec.Struct, frozen=True):
    """Where a job is computed: here (``inline``), or over ``settings.broker``, embedded when that is empty.

    ``workers`` local pool processes are started; None means one a core with an embedded server, none otherwise.
    """

    settings: Settings
    inline: bool = False
    workers: int | None = None
    served: bool = False
    """Local pool processes were started for it."""
    children: Children | None = None
    """All processes that were started for it, where any were."""

    def check(self) -> None:
        """Raise WorkersLost, or ConfigError, when a process that was started for it has been given up."""
        if self.children is not None:
            self.children.check()

    named: Settings | None = None
    """What its user named, where a server or workers were started for it."""

    def resume(self, folder: RunFolder) -> str:
        """The command that resumes the run in ``folder`` at the place that a user would name."""
        named = self.named or self.settings
        here = named.targets and (named.calls or not named.broker)
        targets = f"--targets {shlex.quote(named.targets)}" if here else ""
        words = ["evalq resume", str(folder.path), self.server, targets, "--inline" if self.inline else ""]
        return " ".join(filter(None, words))

    @property
    def server(self) -> str:
        """The options that name its server, for commands of other processes; empty for an embedded one."""
        return server_options(self.named or self.settings)

    def resumable(self, error: EvalqError, folder: RunFolder) -> EvalqError:
        """``error``, which says how the run in ``folder`` is resumed, too."""
        return type(error)(f"{str(error).rstrip('.')}; resume with: {self.resume(folder)}")


def carry_out(job: Job, place: Backend, reporter: Reporter) -> dict[str, Json]:
    """Drive a job to its report and write all of its files. Returns the report.

    Raises what driving raises, and StorageError when the folder cannot be written. Of a run that this process began
    faulty input leaves no folder; anything else leaves one that can be resumed.
    """
    with driving(job.folder, place):
        return carry_out_here(job, place, reporter, place)


def resume(folder: RunFolder, place: Backend, reporter: Reporter) -> tuple[Job, dict[str, Json]]:
    """Drive the run begun in ``folder`` to its report: `carry_out` for one that was left. Returns its job, too.

    It is read only when nobody else can write there any more. Raises Driven, what `Job.load` raises, and UsageError
    for a run that is over.
    """
    with driving(folder, place):
        refuse_over(folder)
        job = Job.load(folder)
        reporter.event("launch", run=job.run, folder=str(folder.path))
        return job, carry_out_here(job, place, reporter, place)


@contextlib.contextmanager
def driving(folder: RunFolder, place: Backend) -> Iterator[None]:
    """Hold ``folder`` for the length of a block. Raises Driven, and StorageError where it cannot be written."""
    try:
        with folder.driving() as mine:
            if not mine:
                raise Driven(str(folder.path), folder.driver() or "another process")
            yield
    except OSError as error:
        raise StorageError.of(error, folder.path, f"resume with: {place.resume(folder)}") from error


def refuse_over(folder: RunFolder) -> None:
    """Raise for a run that nothing can follow: UsageError for one with its report, Cancelled."""
    state = folder.info().state
    if state == "done":
        raise UsageError(f"{folder.path}: this run is done; {folder.next_step(state)}")
    if state == "cancelled":
        raise Cancelled(f"{folder.path}: this run was cancelled for good; {folder.next_step(state)}")


def carry_out_here(job: Job, place: Backend, reporter: Reporter, asked: Backend) -> dict[str, Json]:
    """`carry_out` for whoever holds the folder already; ``asked`` is the place a user would name to resume it."""
    began = time.monotonic()
    if place.inline:
        job.folder.note(state="open", server=None)  # else noted together with the ledger
    collector = Collector(job)
    reporter.detail(f"{job.run}: {len(job.sources)} input(s), {job.total_bytes:,} bytes, {collector.next} chunks held")
    try:
        standing = _compute(job, collector, place, reporter)
        report = collector.finish(_sealed(job))
        seconds = round(time.monotonic() - began, 3)
        reporter.detail(_told(standing, seconds))
        # Before the run is noted as done: after a crash in between it is finished, and so recorded, again.
        if missing := remember(job.folder, job.evaluator, report, seconds, place.settings):
            reporter.say(missing)
        if not place.inline and (missing := share(job.run, report, place.settings)):
            reporter.say(missing)
        write_final(job, report, {"seconds": seconds, "progress": msgspec.to_builtins(standing.progress)})
    except (InputError, NothingEvaluated):
        _leave(job, collector, "failed")
        job.folder.discard()  # one that was begun by another command stays, and a report does
        raise
    except (KeyboardInterrupt, Paused) as error:
        _leave(job, collector, "paused" if isinstance(error, Paused) else "interrupted")
        raise Interrupted(asked.resume(job.folder)) from None
    except Cancelled as error:
        _leave(job, collector, "cancelled")
        raise Cancelled(f"{error}; what was computed is in {job.folder.path}") from None
    except Driven:
        _leave(job, collector, job.folder.info().state)
        raise
    except (BrokerUnreachable, ServerRefused, WorkersLost) as error:
        _leave(job, collector, "stopped")
        raise asked.resumable(error, job.folder) from error
    except BaseException:
        _leave(job, collector, "stopped")
        raise
    return report


def _leave(job: Job, collector: Collector, state: RunState) -> None:
    """Close an unfinished run's files and say in run.json how it stands, as far as the disk lets us."""
    with contextlib.suppress(OSError):
        collector.close()
    left(job.folder, state)


def left(folder: RunFolder, state: RunState) -> None:
    """Say in run.json how a run was left, as far as the disk lets us; one that was not taken up is as it was."""
    with contextlib.suppress(OSError, EvalqError):
        if may_follow(state, folder.info().state):
            folder.note(state=state)


@contextlib.contextmanager
def shared_place(
    place: Backend, roots: Sequence[Path], *evaluators: str, reporter: Reporter, calls: bool = False
) -> Iterator[Backend]:
    """``place`` for several jobs in turn: what would be started for each of them is started once.

    Local workers load ``evaluators`` before they divide into processes. With ``calls``, live calls are made too: by the
    fleet, or here where there is none or the settings have calls and a targets file.
    """
    from evalq.producer.local.children import Children
    from evalq.producer.local.embedded import embedded_server, local_workers

    if place.inline:
        yield place
        return
    with contextlib.ExitStack() as stack:
        settings, count = place.settings, place.workers
        here = calls and bool(settings.calls or not settings.broker)
        if here and not settings.targets:
            raise ConfigError("calling from here needs a targets file: --targets FILE (or --broker URL of a fleet)")
        if here:
            from evalq.workers.targets import load_targets

            targets = load_targets(settings.targets)  # faults are told here: the process that calls would be restarted
            default = max(CALLS_HERE, *(named.target.max_concurrency or 0 for named in targets.values()))
        settings = settings.model_copy(update={"calls": (settings.calls or min(default, CALLS_MOST)) if here else 0})
        children = place.children or Children(reporter.restarted)
        if not settings.broker:
            url = stack.enter_context(embedded_server(children))
            settings = settings.model_copy(update={"broker": url, "ledger": ""})
            count = count or os.cpu_count() or 1
        if count or here:
            stack.enter_context(local_workers(settings, count or 0, roots, evaluators, children))
            place = msgspec.structs.replace(place, children=children, served=bool(count))
        yield Backend(
            settings.model_copy(update={"calls": 0}),
            children=place.children,
            served=place.served,
            named=place.named or place.settings,
        )


@contextlib.contextmanager
def resumable(folder: RunFolder, place: Backend) -> Iterator[None]:
    """An error of a server, or of the command's own processes, says how the run is resumed."""
    try:
        yield
    except (BrokerUnreachable, ServerRefused, WorkersLost) as error:
        raise place.resumable(error, folder) from error


def launch(given: Job | RunFolder, place: Backend, reporter: Reporter) -> None:
    """Plan and publish a job (or the one begun in a folder) on a given server, and leave it to the workers.

    Raises what driving raises; a run that could not be left is one that can be resumed.
    """
    with driving(given.folder if isinstance(given, Job) else given, place):
        if isinstance(given, RunFolder):
            refuse_over(given)
        job = given if isinstance(given, Job) else Job.load(given)
        collector = Collector(job)
        try:
            with resumable(job.folder, place), _driver(job, collector, place, reporter) as driver:
                driver.hand_over.launch()
                driver.hand_over.detach()
            job.folder.note(state="detached")
        except (InputError, NothingEvaluated):
            _leave(job, collector, "failed")
            job.folder.discard()
            raise
        except KeyboardInterrupt:
            _leave(job, collector, "interrupted")
            raise Interrupted(place.resume(job.folder)) from None
        except BaseException:
            _leave(job, collector, "stopped")
            raise
        collector.close()


def _compute(job: Job, collector: Collector, place: Backend, reporter: Reporter) -> RunStatus:
    """Drive the job with its progress shown; returns the last standing."""
    last = RunStatus(0, 0, job.total_bytes)
    own = place.served or bool(place.workers) or not place.settings.broker
    unserved = Unserved(job.header, place.settings, reporter, own=own)
    with reporter.watching() as watch:

        def seen(standing: RunStatus) -> None:
            nonlocal last
            last = standing
            unserved.see(standing)
            watch(standing)

        if place.inline:
            from evalq.producer.runs.inline import drive_inline

            drive_inline(job, collector, seen)
        else:
            with _driver(job, collector, place, reporter) as driver:
                driver.drive(seen)
                last = driver.standing
    return last


@contextlib.contextmanager
def _driver(job: Job, collector: Collector, place: Backend, reporter: Reporter) -> Iterator[RunDriver]:
    """A driver over the servers and local workers of ``place``; what was started here ends with it."""
    with (
        shared_place(place, job.roots, job.header.evaluator, reporter=reporter) as shared,
        contextlib.ExitStack() as stack,
    ):
        # Imported while the local workers start: Celery takes its time in both.
        from evalq.producer.driving.waiting import Patience
        from evalq.producer.runs.driver import RunDriver
        from evalq.workers.broker.publisher import Broker
        from evalq.workers.ledger.ownership import driver_token
        from evalq.workers.ledger.runs import RunLedger

        settings = shared.settings
        patience = Patience(settings, reporter, shared.check)
        ledger = RunLedger(patience.client(), settings, driver_token())
        broker = Broker(settings)
        stack.callback(broker.close)
        stack.enter_context(patience.telling())
        try:
            driver = RunDriver(job, collector, ledger, broker, settings, patience)
            driver.registration.server = place.server
            yield driver
        except BaseException as error:
            if not patience.once(partial(_let_go, ledger, job.run, error)) and _stops(error):
                reporter.warn("the server does not answer, so workers may compute what was published")
            raise


def _stops(error: BaseException) -> bool:
    """Whether nobody shall publish or compute on: a resume reopens the run."""
    return isinstance(error, InputError | KeyboardInterrupt)


def _let_go(ledger: RunLedger, run: str, error: BaseException) -> None:
    """Leave a run that this process drove to whoever comes next; what another drives since is left as it is."""
    with contextlib.suppress(Driven):
        if _stops(error):
            state: RunState = "failed" if isinstance(error, InputError) else "paused"
            ledger.close(run, state, str(error).partition("\n")[0])
        ledger.hand_over(run)


def _told(standing: RunStatus, seconds: float) -> str:
    """What it took, in one line."""
    progress = standing.progress
    if progress is None:
        return f"{standing.records:,} records in {seconds} s, without a queue"
    return (
        f"{progress.chunks} chunks, {progress.computed} computed, {progress.duplicates} duplicates, "
        f"{progress.reconciled} published again, epoch {progress.epoch}, {seconds} s"
    )


def _sealed(job: Job) -> Seal:
    if job.manifest.seal is None:
        raise AssertionError("a driven job has its seal")
    return job.manifest.seal
