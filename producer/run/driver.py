"""How a run stands, for whoever watches: the ledger's counters, who serves it, and the fleet."""

from __future__ import annotations

import contextlib
import time
from functools import partial

import msgspec
import redis

from evalq.evalcore.contract.partial import Partial
from evalq.evalcore.errors import (
    AlreadyRunning,
    BrokerUnreachable,
    Cancelled,
    Divergent,
    Incomplete,
    InfrastructureError,
    Paused,
    ServerRefused,
    WireError,
)
from evalq.evalcore.model.manifest import Chunk
from evalq.producer.driving.loop import drive
from evalq.producer.driving.retries import ServerRetry
from evalq.producer.folder.job import Job
from evalq.producer.monitor.fleet import Fleet, fleet_of
from evalq.producer.monitor.progress import RunStatus, Watcher
from evalq.producer.run.chunks import Collector, Planner, evaluate, read
from evalq.producer.run.ownership import Registration
from evalq.producer.run.publisher import HandOver, InputBytes, Publisher, UnlessFull
from evalq.workers import tracing
from evalq.workers.broker.publisher import Broker
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.progress import Progress
from evalq.workers.ledger.progress import RunStatus as LedgerStatus
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.monitor import read_snapshot
from evalq.workers.recovery.reconciler import Reconciler
from evalq.workers.settings import Settings

__all__ = ["RunDriver"]

FLEET_SECONDS = 5.0


class RunProgress:
    """What the last look of a run's driver showed: ``status``, which does not count what was collected."""

    def __init__(self, job: Job, ledger: RunLedger, broker: Broker, settings: Settings) -> None:
        self._job = job
        self._ledger = ledger
        self._broker = broker
        self._settings = settings
        self._fleet_at = 0.0
        self.status = RunStatus(0, 0, job.total_bytes)

    def show(self, look: LedgerStatus) -> None:
        """Take in a look, and with it who lives; the run's progress goes to its folder, too."""
        if time.monotonic() - self._fleet_at >= FLEET_SECONDS:
            self._fleet_at = time.monotonic()
            with contextlib.suppress(redis.ResponseError, BrokerUnreachable, ServerRefused):  # it is only shown
                self.status = msgspec.structs.replace(self.status, fleet=self._fleet())
        header = self._job.header
        workers, others, lacking = Heartbeats(self._ledger.client).serving(header.code_version, header.evaluator)
        self.status = msgspec.structs.replace(
            self.status,
            progress=look.progress,
            workers=workers,
            others=others,
            lacking=lacking,
            trouble=look.trouble,
        )
        self._job.folder.note(progress=msgspec.to_builtins(look.progress))

    def concluded(self, progress: Progress) -> None:
        """Take in the last progress."""
        self.status = msgspec.structs.replace(self.status, progress=progress)

    def _fleet(self) -> Fleet:
        elsewhere = self._broker.lengths if self._settings.ledger_apart else None
        return fleet_of(read_snapshot(self._ledger.client, self._settings, elsewhere))


# Taking answers out of the ledger in chunk order: into the run folder first, then they may leave the ledger.

# A single answer may have many megabytes.
FETCH_STEP = 8
SYNC_STEP = 16


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
            # Of a run that another folder has begun anew, in a server that lost this one, all have: then it is
            # AlreadyRunning.
            self._ledger.append(self._job.run, (), 0)
            raise Divergent(f"run {self._job.run}: chunk {chunk.seq} has another answer here than in the ledger")
        return partial


# Driving a job to its end over a ledger and a broker: plan, publish, collect and reconcile in one loop.

STEPS_SHARE = 8
"""While a run is under way, its window is filled again after as many steps as this part of it has chunks."""


class RunDriver:
    """One job over a ledger and a broker, until every chunk is collected: a `Driver` for the loop."""

    idle_seconds = 0.02

    def __init__(
        self,
        job: Job,
        collector: Collector,
        ledger: RunLedger,
        broker: Broker,
        settings: Settings,
        patience: ServerRetry,
        begun: Planner | None = None,
    ) -> None:
        """``settings`` are those of ledger (a driver's) and broker; ``patience`` takes the steps. ``begun`` is the
        planner of a job that was begun in this process."""
        self._job = job
        self._settings = settings
        self._patience = patience
        self._unless_full = UnlessFull(patience)
        self._unpublished = 0
        self._reconciler = Reconciler(ledger, broker)
        self._intake = Intake(job, collector, ledger)
        self._standing = RunProgress(job, ledger, broker, settings)
        self.registration = to = Registration(job, collector, ledger, settings, begun)
        self._inputs = InputBytes(job, collector, ledger, broker, to, settings.blob_bytes)
        self._publisher = Publisher(job, ledger, to, self._reconciler, self._inputs)
        self.hand_over = HandOver(job, ledger, to, self._publisher, self._inputs, patience)

    def drive(self, watch: Watcher) -> None:
        """Until all is collected. A lost server is waited for; what cannot be waited for is raised.

        Raises InputError, InputChanged, Divergent, Paused and Incomplete (cancelled) elsewhere, InfrastructureError,
        ConfigError for another run under this id, AlreadyRunning while another process drives it, BrokerUnreachable
        when the server stays away for ``patience_seconds``.
        """
        with tracing.run_span(self._job.run, begun=self._job.folder.info().epoch > 0):
            drive(self, self._patience, self._settings.poll_seconds, watch)

    @property
    def standing(self) -> RunStatus:
        """How far the run is, as the last look showed it."""
        taken = self._intake
        return msgspec.structs.replace(self._standing.status, records=taken.records, done_bytes=taken.done_bytes)

    @property
    def finished(self) -> bool:
        """Whether every answer is collected."""
        return self._intake.complete

    def establish(self) -> bool:
        """Write the run into the ledger as its driver, new or again from the folder."""
        return self.registration.establish()

    def establish_again(self, driven: AlreadyRunning) -> bool:
        """Write it there again for a server that fell behind; where a later driver is known, raise ``driven``."""
        return self.registration.establish_again(driven)

    def step(self) -> bool:
        """Some planning, publishing and collecting; False when there was nothing to do."""
        # Two windows ahead: the next one is planned while this one is computed.
        planned = self._unless_full(partial(self.registration.plan.extend, ahead=2 * self._settings.window))
        collected = self._intake.take()
        if collected:
            self._patience.over()  # also where a full server leaves no room for more: this makes some
        # Only these two make room or work for the window; what else can, the next look finds.
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

    def look(self) -> bool:
        """The reconciler's look, and this producer's part in what it shows."""
        self._intake.settle()
        try:
            look = self._reconciler.tend(self.registration.header)
        except Incomplete:
            return self.establish()  # the server lost the run; the folder has all that was collected
        # Before the state is believed: an older server may tell of a pause that is over.
        if self.registration.lost(look):
            return self.establish()
        _refuse_ended(self._job.run, look.progress)
        for seq, reason in look.refused.items():
            if self._publisher.may_supply(seq, reason):
                self._unless_full(partial(self._inputs.supply, seq))
        self._standing.show(look)
        return True

    def conclude(self) -> bool:
        """Let the last answers leave the ledger, and close the run there."""
        # Answers that are too few for `take` to sync would stay in the ledger as long as nothing more comes.
        self._intake.settle()
        self._standing.concluded(self.registration.conclude())
        return True


def _refuse_ended(run: str, progress: Progress) -> None:
    """Raise what ended the run elsewhere than here, where that is so."""
    # First, whatever the state: that two answers differ is also noted of a run that was over.
    if progress.divergent:
        raise Divergent(f"run {run} {progress.reason}; both answers are kept in the ledger")
    if progress.state == "failed":
        raise InfrastructureError(f"run {run} failed: {progress.reason}")
    if progress.state == "paused":
        raise Paused(f"run {run} was paused")
    if progress.state == "cancelled":
        raise Cancelled(f"run {run} was cancelled {progress.reason}".rstrip())
