"""A run as its driver's work: a piece is a chunk, and it is finished when every chunk's answer is collected."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial

import msgspec
import redis

from evalq.evalcore.contract.partial import Partial
from evalq.evalcore.errors import (
    BrokerUnreachable,
    Cancelled,
    Divergent,
    Incomplete,
    InfrastructureError,
    InputError,
    ServerRefused,
    WireError,
)
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.manifest import Chunk
from evalq.producer.driving.driver import Acquire, Closing, refuse_halted
from evalq.producer.driving.retries import ServerRetry
from evalq.producer.folder.job import Job
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.monitor.fleet import fleet_of
from evalq.producer.monitor.progress import ShownProgress
from evalq.producer.run.chunks import Collector, Planner, evaluate, read
from evalq.producer.run.ownership import Ownership
from evalq.producer.run.publication import tags_of, target_of
from evalq.producer.run.publisher import Backpressure, InputBytes, Publisher, serving
from evalq.workers import tracing
from evalq.workers.broker.publisher import Broker
from evalq.workers.ledger.detached import Detached, Reports
from evalq.workers.ledger.progress import Progress, RunStatus
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.ledger.scripts import server_seconds
from evalq.workers.monitor import read_snapshot
from evalq.workers.recovery.reconciler import Reconciler
from evalq.workers.settings import Settings

STEPS_SHARE = 8
"""While a run is under way, its window is filled again after as many steps as this part of it has chunks."""
FLEET_SECONDS = 5.0
# A single answer may have many megabytes.
FETCH_STEP = 8
SYNC_STEP = 16
_ALL = 1 << 62


class RunWork:
    """One job over a ledger and a broker, for a `Driver`."""

    idle_seconds = 0.02
    unstopped = "workers may compute what was published"

    def __init__(
        self,
        job: Job,
        collector: Collector,
        ledger: RunLedger,
        broker: Broker,
        settings: Settings,
        retry: ServerRetry,
        begun: Planner | None = None,
    ) -> None:
        """``settings`` are those of ledger (a driver's) and broker; ``retry`` takes the steps. ``begun`` is the planner
        of a job that was begun in this process."""
        self._job = job
        self.ledger = ledger
        self._broker = broker
        self._settings = settings
        self._retry = retry
        self._unless_full = Backpressure(retry)
        self._unpublished = 0
        self._reconciler = Reconciler(ledger, broker)
        self._intake = Intake(job, collector, ledger)
        self.ownership = Ownership(job, collector, ledger, settings, begun)
        self._inputs = InputBytes(job, collector, ledger, broker, self.ownership, settings.blob_bytes)
        self._publisher = Publisher(job, ledger, self.ownership, self._reconciler, self._inputs)
        self._status = ShownProgress(0, 0, job.total_bytes)
        self._fleet_at = 0.0
        self.published = False

    @property
    def run(self) -> str:
        """The run's id."""
        return self._job.run

    @property
    def folder(self) -> RunFolder:
        """Its folder."""
        return self._job.folder

    @property
    def progress(self) -> ShownProgress:
        """How far the run is, as the last poll showed it."""
        taken = self._intake
        return msgspec.structs.replace(self._status, records=taken.records, done_bytes=taken.done_bytes)

    @property
    def finished(self) -> bool:
        """Whether every answer is collected."""
        return self._intake.complete

    def driving(self) -> AbstractContextManager[object]:
        """The run's span in a trace."""
        return tracing.run_span(self.run, begun=self.folder.info().epoch > 0)

    # -- ownership --------------------------------------------------------------------------------------

    def open(self, how: Acquire) -> Mapping[str, Json]:
        """Become its driver, in an epoch of its own, whatever state it is in."""
        return self.ownership.open()

    def restore(self) -> None:
        """Tell the ledger the whole plan, and which answers the folder has."""
        self.ownership.restore()

    def overtaken(self) -> bool:
        """Whether a later epoch than this driver's has begun."""
        return self.ownership.overtaken()

    # -- one step after another -------------------------------------------------------------------------

    def step(self) -> bool:
        """Some planning, publishing and collecting; False when there was nothing to do."""
        # Two windows ahead: the next one is planned while this one is computed.
        planned = self._unless_full(partial(self.ownership.plan.extend, ahead=2 * self._settings.window))
        collected = self._intake.take()
        if collected:
            self._retry.over()  # also where a full server leaves no room for more: this makes some
        # Only these two make room or work for the window; what else can, the next poll finds.
        moved = planned or collected
        self._unpublished += moved
        if self._unpublished and self._publishes(moved):
            self._unless_full(self._publisher.publish)
            self._unpublished = 0
        return moved

    def _publishes(self, moved: bool) -> bool:
        """Whether to publish now: at once where workers may wait for it, else a few steps' chunks together.

        A step frees a chunk or a few, and publishing one message costs as much as publishing several.
        """
        started = len(self._job.manifest.chunks) > self._settings.window
        return not moved or not started or self._unpublished * STEPS_SHARE >= self._settings.window

    def poll(self) -> RunStatus | None:
        """What the reconciler sees, and mends."""
        self._intake.settle()
        try:
            return self._reconciler.tend(self.ownership.header)
        except Incomplete:
            return None  # the server lost the run; the folder has all that was collected

    def lost(self, status: RunStatus) -> bool:
        """Whether the server has lost some of the run."""
        return self.ownership.lost(status)

    def attend(self, status: RunStatus) -> None:
        """Send chunks that workers could not read, and show how it goes."""
        _refuse_ended(self.run, status.progress)
        for seq, reason in status.refused.items():
            if self._publisher.may_supply(seq, reason):
                self._unless_full(partial(self._inputs.supply, seq))
        self._show(status)

    def _show(self, look: RunStatus) -> None:
        if time.monotonic() - self._fleet_at >= FLEET_SECONDS:
            self._fleet_at = time.monotonic()
            with contextlib.suppress(redis.ResponseError, BrokerUnreachable, ServerRefused):  # it is only shown
                elsewhere = self._broker.lengths if self._settings.ledger_apart else None
                fleet = fleet_of(read_snapshot(self.ledger.client, self._settings, elsewhere))
                self._status = msgspec.structs.replace(self._status, fleet=fleet)
        workers, others, lacking = serving(self._job, self.ledger)
        self._status = msgspec.structs.replace(
            self._status,
            progress=look.progress,
            workers=workers,
            others=others,
            lacking=lacking,
            trouble=look.trouble,
        )
        self.folder.note(progress=msgspec.to_builtins(look.progress))

    def conclude(self) -> bool:
        """Let the last answers leave the ledger, and close the run there."""
        # Answers that are too few for `take` to sync would stay in the ledger as long as nothing more comes.
        self._intake.settle()
        if self.ledger.close(self.run, "done") != "done":
            return False
        try:
            self._status = msgspec.structs.replace(self._status, progress=self.ledger.poll(self.run).progress)
        except Incomplete:
            return False
        return True

    # -- leaving it -------------------------------------------------------------------------------------

    def publish(self) -> bool:
        """Plan some more; once all of it is planned, publish the first window, and see that workers can read the input.

        Raises UsageError when they cannot, and it is too much to be left in the ledger.
        """
        plan = self.ownership.plan
        # To its end: workers publish what is planned, and plan nothing.
        if not plan.sealed:
            return plan.extend(ahead=_ALL)
        try:
            # Before the input is judged: only a worker that takes a chunk shows whether it can read it.
            self._publisher.publish()
            self._publisher.leave_input()
        except Cancelled:
            raise
        except Incomplete:
            return False
        self.published = True
        return True

    def detach(self) -> None:
        """Give the ledger what finalising needs."""
        target, tags = target_of(self.folder), tags_of(self.folder)
        facts = Detached(server_seconds(self.ledger.client), target, tags, self.folder.info().name)
        Reports(self.ledger, self.ledger.settings).detach(self.run, facts)

    def closing(self, error: BaseException) -> Closing | None:
        """Faulty input and Ctrl-C end it for all: nobody shall publish or compute on. A resume reopens the run."""
        if not isinstance(error, InputError | KeyboardInterrupt):
            return None
        return Closing("failed" if isinstance(error, InputError) else "paused", str(error).partition("\n")[0])

    def closed(self, error: BaseException) -> None:
        """Nothing: what workers compute meanwhile stays in the ledger."""


def _refuse_ended(run: str, progress: Progress) -> None:
    """Raise what ended the run elsewhere than here, where that is so."""
    # First, whatever the state: that two answers differ is also noted of a run that was over.
    if progress.divergent:
        raise Divergent(f"run {run} {progress.reason}; both answers are kept in the ledger")
    if progress.state == "failed":
        raise InfrastructureError(f"run {run} failed: {progress.reason}")
    refuse_halted(run, progress.state, progress.reason)


class Intake:
    """Gives a job's ``collector`` what is committed in ``ledger``; ``records`` and ``done_bytes`` were taken so far."""

    def __init__(self, job: Job, collector: Collector, ledger: RunLedger) -> None:
        self._job = job
        self._collector = collector
        self._ledger = ledger
        self._settled = collector.next
        self.records = self.done_bytes = 0

    @property
    def complete(self) -> bool:
        """Whether the plan has its end, and every answer is collected."""
        seal = self._job.manifest.seal
        return seal is not None and self._collector.next >= seal.chunks

    def take(self) -> bool:
        """Take what is committed next in order; it leaves the ledger once it is safe in the folder.

        False when there was nothing. Raises Divergent.
        """
        first, chunks = self._collector.next, self._job.manifest.chunks
        wanted = range(first, min(first + FETCH_STEP, len(chunks)))
        for seq, fetched in zip(wanted, self._ledger.collect(self._job.run, wanted), strict=True):
            # A retry keeps answers in the folder that the ledger may not have any more.
            answer = self._collector.kept(seq) or fetched
            if answer is None:
                break
            self._add(chunks[seq], answer)
        self.settle(least=SYNC_STEP)
        return self._collector.next > first

    def settle(self, least: int = 1) -> None:
        """Sync what was collected to disk, and let it leave the ledger: where it is so many answers, ``least``."""
        done = range(self._settled, self._collector.next)
        if len(done) >= least:
            self._collector.sync()
            # Only after the sync: until then a crash of this machine would take the only copy along.
            self._ledger.trim(self._job.run, done)
            # Last: where the server went away, the step is taken again, and trims the same ones.
            self._settled = self._collector.next

    def _add(self, chunk: Chunk, partial: Partial) -> None:
        try:
            self._collector.add(chunk, partial if partial.data else self._again(chunk, partial.digest))
        except WireError:  # damaged in the ledger: computed here, it still has to have the digest that was committed
            self._collector.add(chunk, self._again(chunk, partial.digest))
        self.records += chunk.records
        self.done_bytes += chunk.end - chunk.start

    def _again(self, chunk: Chunk, expected: str) -> Partial:
        """An answer that another producer of this run has taken out of the ledger, computed here.

        Raises Divergent, and AlreadyRunning where the ledger's run is another's by now.
        """
        partial = evaluate(self._job, chunk, read(self._job, chunk))
        if partial.digest != expected:
            # Of a run that another folder has begun anew, in a server that lost this one, all have: then it
            # is AlreadyRunning.
            self._ledger.append(self._job.run, (), 0)
            raise Divergent(f"run {self._job.run}: chunk {chunk.seq} has another answer here than in the ledger")
        return partial
