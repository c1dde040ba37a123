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

from evalcore.canonical import Json
from evalcore.errors import (
    BrokerUnreachable,
    ConfigError,
    Driven,
    InputError,
    Interrupted,
    NothingEvaluated,
    Paused,
    ServerRefused,
    StorageError,
    UsageError,
    WorkersLost,
)
from evalcore.plan import Seal
from producer.collect import Collector
from producer.job import Job
from producer.outputs import write_final
from producer.progress import Reporter
from producer.remember import remember
from producer.share import share
from producer.standing import Standing
from producer.unserved import Unserved
from workers.settings import Settings

if TYPE_CHECKING:
    from producer.children import Children
    from producer.drive import Driver
    from producer.live.sweep import Sweep
    from workers.ledger import Ledger

__all__ = ["Place", "carry_out", "carry_out_here", "launch", "resumable", "shared_place"]


CALLS_HERE = 50
"""Live calls in flight of a command that calls by itself, unless it is told how many or a target takes more at once."""
CALLS_MOST = 10_000


class Place(msgspec.Struct, frozen=True):
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

    def resume(self, run: Job | Sweep) -> str:
        """The command that goes on with ``run`` at the place that a user would name."""
        named = self.named or self.settings
        broker = " --broker URL" if named.broker else ""
        here = named.targets and (named.calls or not named.broker)
        targets = f" --targets {shlex.quote(named.targets)}" if here else ""
        return f"evalq resume {run.folder.path}{broker}{targets}" + (" --inline" if self.inline else "")


def carry_out(job: Job, place: Place, reporter: Reporter) -> dict[str, Json]:
    """Drive a job to its report and write all of its files. Returns the report.

    Raises what driving raises, and StorageError when the folder cannot be written. Faulty input leaves no folder
    behind (but that of an earlier report); anything else leaves one that can be resumed.
    """
    try:
        with job.folder.driving() as mine:
            if not mine:
                how = "see it with: evalq watch"
                raise UsageError(f"{job.folder.path}: another evalq process is driving this run; {how}")
            return carry_out_here(job, place, reporter, place)
    except OSError as error:
        raise StorageError.of(error, job.folder.path, f"go on with: {place.resume(job)}") from error


def carry_out_here(job: Job, place: Place, reporter: Reporter, asked: Place) -> dict[str, Json]:
    """`carry_out` for whoever holds the folder already; ``asked`` is the place a user would name to go on with it."""
    began = time.monotonic()
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
        _leave(job, collector, "stopped")
        if not job.folder.reported:  # a retry that fails leaves the report that there is
            job.folder.discard()
        raise
    except (KeyboardInterrupt, Paused) as error:
        _leave(job, collector, "paused" if isinstance(error, Paused) else "interrupted")
        raise Interrupted(asked.resume(job)) from None
    except (BrokerUnreachable, ServerRefused, WorkersLost) as error:
        _leave(job, collector, "stopped")
        raise type(error)(f"{error}; resume with: {asked.resume(job)}") from error
    except BaseException:
        _leave(job, collector, "stopped")
        raise
    return report


def _leave(job: Job, collector: Collector, state: str) -> None:
    """Close an unfinished run's files and say in run.json how it stands, as far as the disk lets us."""
    with contextlib.suppress(OSError):
        collector.close()
    with contextlib.suppress(OSError):
        job.folder.note(state=state)


@contextlib.contextmanager
def shared_place(
    place: Place, roots: Sequence[Path], *evaluators: str, reporter: Reporter, calls: bool = False
) -> Iterator[Place]:
    """``place`` for several jobs in turn: what would be started for each of them is started once.

    Local workers load ``evaluators`` before they divide into processes. With ``calls``, live calls are made too: by the
    fleet, or here where there is none or the settings have calls and a targets file.
    """
    from producer.children import Children
    from producer.embedded import embedded_server, local_workers

    if place.inline:
        yield place
        return
    with contextlib.ExitStack() as stack:
        settings, count = place.settings, place.workers
        here = calls and bool(settings.calls or not settings.broker)
        if here and not settings.targets:
            raise ConfigError("calling from here needs a targets file: --targets FILE (or --broker URL of a fleet)")
        if here:
            from workers.targets import load_targets

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
        yield Place(
            settings.model_copy(update={"calls": 0}),
            children=place.children,
            served=place.served,
            named=place.named or place.settings,
        )


@contextlib.contextmanager
def resumable(run: Job | Sweep, place: Place) -> Iterator[None]:
    """An error of a server, or of the command's own processes, says how the run is resumed."""
    try:
        yield
    except (BrokerUnreachable, ServerRefused, WorkersLost) as error:
        raise type(error)(f"{error}; resume with: {place.resume(run)}") from error


def launch(job: Job, place: Place, reporter: Reporter) -> None:
    """Plan and publish a job on a given server, and leave it to the workers."""
    try:
        with resumable(job, place), _driver(job, Collector(job), place, reporter) as driver:
            driver.launch()
            driver.detach()
        job.folder.note(state="detached")
    except OSError as error:
        raise StorageError.of(error, job.folder.path, f"go on with: {place.resume(job)}") from error


def _compute(job: Job, collector: Collector, place: Place, reporter: Reporter) -> Standing:
    """Drive the job with its progress shown; returns the last standing."""
    last = Standing(0, 0, job.total_bytes)
    own = place.served or bool(place.workers) or not place.settings.broker
    unserved = Unserved(job.header, place.settings, reporter, own=own)
    with reporter.watching() as watch:

        def seen(standing: Standing) -> None:
            nonlocal last
            last = standing
            unserved.see(standing)
            watch(standing)

        if place.inline:
            from producer.here import drive_inline

            drive_inline(job, collector, seen)
        else:
            with _driver(job, collector, place, reporter) as driver:
                driver.drive(seen)
                last = driver.standing
    return last


@contextlib.contextmanager
def _driver(job: Job, collector: Collector, place: Place, reporter: Reporter) -> Iterator[Driver]:
    """A driver over the servers and local workers of ``place``; what was started here ends with it."""
    with (
        shared_place(place, job.roots, job.header.evaluator, reporter=reporter) as shared,
        contextlib.ExitStack() as stack,
    ):
        # Imported while the local workers start: Celery takes its time in both.
        from producer.drive import Driver
        from producer.patience import Patience
        from workers.broker import Broker
        from workers.driver import driver_token
        from workers.ledger import Ledger

        settings = shared.settings
        patience = Patience(settings, reporter, shared.check)
        ledger = Ledger(patience.client(), settings, driver_token())
        broker = Broker(settings)
        stack.callback(broker.close)
        stack.enter_context(patience.telling())
        try:
            yield Driver(job, collector, ledger, broker, settings, patience)
        except BaseException as error:
            if not patience.once(partial(_let_go, ledger, job.run, error)) and _stops(error):
                reporter.warn("the server does not answer, so workers may compute what was published")
            raise


def _stops(error: BaseException) -> bool:
    """Whether nobody shall publish or compute on: a resume reopens the run."""
    return isinstance(error, InputError | KeyboardInterrupt)


def _let_go(ledger: Ledger, run: str, error: BaseException) -> None:
    """Leave a run that this process drove to whoever comes next; what another drives since is left as it is."""
    with contextlib.suppress(Driven):
        if _stops(error):
            state = "failed" if isinstance(error, InputError) else "paused"
            ledger.close(run, state, str(error).partition("\n")[0])
        ledger.hand_over(run)


def _told(standing: Standing, seconds: float) -> str:
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
