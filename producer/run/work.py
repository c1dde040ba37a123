"""A run as its driver's work. A piece is a chunk; the run is finished when every chunk's answer is collected."""

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
"""During a run, evalq publishes again once the unpublished steps reach this part (1/8) of the window."""
FLEET_SECONDS = 5.0
# A single answer may have many megabytes.
FETCH_STEP = 8
SYNC_STEP = 16
_ALL = 1 << 62


class RunWork:
    """One job over a ledger and a broker, for a `Driver`."""

    idle_seconds = 0.02
    not_stopped = "workers may compute what was published"

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
        """Make the work; ``begun`` is the planner, if this process began the job.

        ``ledger`` is a driver's ledger. ``settings`` are those of the ledger and the broker. ``retry`` takes the steps.
        """
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
        """The progress of the run at the last poll."""
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
        """Become its driver in a new epoch, whatever its state."""
        return self.ownership.open()

    def restore(self) -> None:
        """Tell the ledger the whole plan, and which answers the folder has."""
        self.ownership.restore()

    def overtaken(self) -> bool:
        """Whether a later epoch than this driver's has begun."""
        return self.ownership.overtaken()

    # -- one step after another -------------------------------------------------------------------------

    def step(self) -> bool:
        """Plan, publish and collect a little; False if there was nothing to do."""
        # Plan two windows ahead: evalq plans the next window while workers compute this one.
        planned = self._unless_full(partial(self.ownership.plan.extend, ahead=2 * self._settings.window))
        collected = self._intake.take()
        if collected:
            self._retry.over()  # also if a full server has no room: collecting makes room
        # Only planning and collecting make work or room for the window here. The next poll finds all other changes.
        moved = planned or collected
        self._unpublished += moved
        if self._unpublished and self._publishes(moved):
            self._unless_full(self._publisher.publish)
            self._unpublished = 0
        return moved

    def _publishes(self, moved: bool) -> bool:
        """Whether to publish now. If workers may be waiting, publish at once; else put a few steps' chunks together.

        A step frees one chunk or a few. One message costs as much to publish as several.
        """
        started = len(self._job.manifest.chunks) > self._settings.window
        return not moved or not started or self._unpublished * STEPS_SHARE >= self._settings.window

    def poll(self) -> RunStatus | None:
        """Let the reconciler look at the run and repair it; return the status that it saw."""
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

    def _show(self, status: RunStatus) -> None:
        if time.monotonic() - self._fleet_at >= FLEET_SECONDS:
            self._fleet_at = time.monotonic()
            with contextlib.suppress(redis.ResponseError, BrokerUnreachable, ServerRefused):  # this is only for display
                elsewhere = self._broker.lengths if self._settings.ledger_apart else None
                fleet = fleet_of(read_snapshot(self.ledger.client, self._settings, elsewhere))
                self._status = msgspec.structs.replace(self._status, fleet=fleet)
        workers, others, lacking = serving(self._job, self.ledger)
        self._status = msgspec.structs.replace(
            self._status,
            progress=status.progress,
            workers=workers,
            others=others,
            lacking=lacking,
            trouble=status.trouble,
        )
        self.folder.note(progress=msgspec.to_builtins(status.progress))

    def conclude(self) -> bool:
        """Let the last answers leave the ledger, and close the run there."""
        # `take` syncs only when there are enough answers. Without this step, the last few would stay in the ledger.
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
        """Plan more. Once the plan is complete, publish the first window and check that workers can read the input.

        Raises UsageError if they cannot, and the input is too large to leave in the ledger.
        """
        plan = self.ownership.plan
        # Plan to the end: workers publish planned chunks, but they plan nothing.
        if not plan.sealed:
            return plan.extend(ahead=_ALL)
        try:
            if not self._publisher.leave_small():
                # Publish before judging the input: only a worker that takes a chunk shows whether it can read it.
                self._publisher.publish()
                self._publisher.leave_input()
        except Cancelled:
            raise
        except Incomplete:
            return False
        self.published = True
        return True

    def detach(self) -> None:
        """Give the ledger everything that finalising needs."""
        target, tags = target_of(self.folder), tags_of(self.folder)
        facts = Detached(server_seconds(self.ledger.client), target, tags, self.folder.info().name)
        Reports(self.ledger, self.ledger.settings).detach(self.run, facts)

    def closing(self, error: BaseException) -> Closing | None:
        """Close the run for faulty input and for Ctrl-C, so that nobody publishes or computes any more.

        A resume reopens the run.
        """
        if not isinstance(error, InputError | KeyboardInterrupt):
            return None
        return Closing("failed" if isinstance(error, InputError) else "paused", str(error).partition("\n")[0])

    def closed(self, error: BaseException) -> None:
        """Do nothing: the answers that workers still compute stay in the ledger."""


def _refuse_ended(run: str, progress: Progress) -> None:
    """If the run was ended outside this process, raise the error that says so."""
    # Check this in every state: the ledger notes different answers also for a run that was over.
    if progress.divergent:
        raise Divergent(f"run {run} {progress.reason}; both answers are kept in the ledger")
    if progress.state == "failed":
        raise InfrastructureError(f"run {run} failed: {progress.reason}")
    refuse_halted(run, progress.state, progress.reason)


class Intake:
    """Passes the committed answers in ``ledger`` to the job's ``collector``.

    ``records`` and ``done_bytes`` count what it has passed so far.
    """

    def __init__(self, job: Job, collector: Collector, ledger: RunLedger) -> None:
        self._job = job
        self._collector = collector
        self._ledger = ledger
        self._settled = collector.next
        self.records = self.done_bytes = 0

    @property
    def complete(self) -> bool:
        """Whether the plan is complete and every answer is collected."""
        seal = self._job.manifest.seal
        return seal is not None and self._collector.next >= seal.chunks

    def take(self) -> bool:
        """Take the next committed answers in order. Each leaves the ledger once it is safe in the folder.

        Returns False if there was none. Raises Divergent.
        """
        first, chunks = self._collector.next, self._job.manifest.chunks
        wanted = range(first, min(first + FETCH_STEP, len(chunks)))
        for seq, fetched in zip(wanted, self._ledger.collect(self._job.run, wanted), strict=True):
            # After a retry, the folder may have answers that the ledger no longer has.
            answer = self._collector.kept(seq) or fetched
            if answer is None:
                break
            self._add(chunks[seq], answer)
        self.settle(least=SYNC_STEP)
        return self._collector.next > first

    def settle(self, least: int = 1) -> None:
        """If at least ``least`` answers are collected, sync them to disk and let them leave the ledger."""
        done = range(self._settled, self._collector.next)
        if len(done) >= least:
            self._collector.sync()
            # Trim only after the sync: before it, a crash of this machine would destroy the only copy.
            self._ledger.trim(self._job.run, done)
            # Set this last: if the server goes away, evalq repeats the step and trims the same answers.
            self._settled = self._collector.next

    def _add(self, chunk: Chunk, partial: Partial) -> None:
        try:
            self._collector.add(chunk, partial if partial.data else self._again(chunk, partial.digest))
        except WireError:  # damaged in the ledger: compute it here; it must have the committed digest
            self._collector.add(chunk, self._again(chunk, partial.digest))
        self.records += chunk.records
        self.done_bytes += chunk.end - chunk.start

    def _again(self, chunk: Chunk, expected: str) -> Partial:
        """Compute an answer here that another producer of this run has taken out of the ledger.

        Raises Divergent. Raises AlreadyRunning if the run in the ledger belongs to another process by now.
        """
        partial = evaluate(self._job, chunk, read(self._job, chunk))
        if partial.digest != expected:
            # The server may have lost this run, and another folder may have begun it anew. Then every answer differs,
            # and `append` raises AlreadyRunning.
            self._ledger.append(self._job.run, (), 0)
            raise Divergent(f"run {self._job.run}: chunk {chunk.seq} has another answer here than in the ledger")
        return partial
