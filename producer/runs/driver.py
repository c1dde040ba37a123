"""Driving a job to its end over a ledger and a broker: plan, publish, collect and reconcile in one loop."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice

import msgspec
import redis

from evalq.evalcore.contract.partial import Partial
from evalq.evalcore.errors import (
    BrokerUnreachable,
    Cancelled,
    Divergent,
    Incomplete,
    InfrastructureError,
    Paused,
    ServerRefused,
    UsageError,
    WireError,
)
from evalq.evalcore.model.manifest import Chunk
from evalq.evalcore.model.packing import pack
from evalq.producer.folder.job import Job
from evalq.producer.monitor.fleet import Fleet, fleet_of
from evalq.producer.monitor.progress import RunStatus, Watcher
from evalq.producer.runs.collector import Collector
from evalq.producer.runs.inline import evaluate, read
from evalq.producer.runs.planner import Planner
from evalq.producer.runs.record_history import tags_of, target_of
from evalq.producer.runs.registration import Registration
from evalq.producer.runs.waiting import Patience
from evalq.workers import tracing
from evalq.workers.broker.publisher import Broker
from evalq.workers.inputs import CHANGED
from evalq.workers.ledger.clock import server_seconds
from evalq.workers.ledger.detached import Detached, Reports
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.monitor.snapshot import read_snapshot
from evalq.workers.recovery.reconciler import Reconciler
from evalq.workers.settings import Settings

__all__ = ["Driver"]

PLAN_STEP = 4
FETCH_STEP = 8
SYNC_STEP = 16
IDLE_SECONDS = 0.02
FULL_SECONDS = 0.5
EVIDENCE_SECONDS = 10.0
FLEET_SECONDS = 5.0


class Driver:
    """One job over a ledger and a broker, until every chunk is collected."""

    def __init__(
        self, job: Job, collector: Collector, ledger: RunLedger, broker: Broker, settings: Settings, patience: Patience
    ) -> None:
        """``settings`` are those of ledger (a driver's) and broker; ``patience`` takes the steps."""
        self._job = job
        self._collector = collector
        self._ledger = ledger
        self._broker = broker
        self._settings = settings
        self._patiently = patience
        self._reconciler = Reconciler(ledger, broker)
        self._planner = Planner(job)
        self._chunks = self._planner.chunks()
        self._blobs = False
        self._sent: dict[int, int] = {}
        self.registration = Registration(job, collector, ledger, settings)
        self._looked = self._watched = 0.0
        self._settled = collector.next
        self._full = 0.0
        self._lack: redis.OutOfMemoryError | None = None
        self.standing = RunStatus(0, 0, job.total_bytes)

    def drive(self, watch: Watcher) -> None:
        """Until all is collected. A lost server is waited for; what cannot be waited for is raised.

        Raises InputError, InputChanged, Divergent, Paused and Incomplete (cancelled) elsewhere, InfrastructureError,
        ConfigError for another run under this id, Driven while another process drives it, BrokerUnreachable when the
        server stays away for ``patience_seconds``.
        """
        with self._traced():
            self._drive(watch)

    def _traced(self) -> AbstractContextManager[object]:
        return tracing.run_span(self._job.run, begun=self._job.folder.info().epoch > 0)

    def _drive(self, watch: Watcher) -> None:
        self._patiently(self.registration.establish)
        while not self._finished():
            if not self._driving(self._step):
                time.sleep(IDLE_SECONDS)
            if time.monotonic() - self._looked >= self._settings.look_seconds:
                self._driving(self._look)
                watch(self.standing)
                self._looked = time.monotonic()
        self._driving(lambda: self._settle(at_once=True))
        self._driving(self._conclude)

    def _driving(self, step: Callable[[], bool]) -> bool:
        """Take a step, patiently, as the run's driver."""
        return self._patiently(lambda: self.registration.driving(step))

    def launch(self) -> None:
        """Plan all of it and publish the first window, for workers to continue alone.

        Raises UsageError when they cannot read the input, and it is too much to be left in the ledger.
        """
        with self._traced():
            self._patiently(self.registration.establish)
            while not self.registration.sealed:
                self._patiently(lambda: self._plan(ahead=1 << 62))
            self._patiently(self._publish)
            self._patiently(self._leave_input)

    def detach(self) -> None:
        """Leave the run to the workers, with what finalising it needs."""
        self._patiently(self._detach)

    def _detach(self) -> bool:
        target, tags = target_of(self._job.folder), tags_of(self._job.folder)
        facts = Detached(server_seconds(self._ledger.client), target, tags)
        Reports(self._ledger, self._settings).detach(self._job.run, facts)
        self._ledger.hand_over(self._job.run)
        return True

    def _conclude(self) -> bool:
        """Close the run; where the server has meanwhile lost some of it, tell it again first."""
        if self._ledger.close(self._job.run, "done") != "done":
            self.registration.establish()
            self._ledger.close(self._job.run, "done")
        try:
            progress = self._ledger.look(self._job.run).progress
        except Incomplete:
            return self._conclude()
        self.standing = msgspec.structs.replace(self.standing, progress=progress)
        return True

    def _finished(self) -> bool:
        seal = self._job.manifest.seal
        return seal is not None and self._collector.next >= seal.chunks

    def _step(self) -> bool:
        """Some planning, publishing and collecting; False when there was nothing to do."""
        planned = self._unless_full(self._plan)
        collected = self._collect()
        if collected:
            self._patiently.over()  # also where a full server leaves no room for more: this makes some
        # Only these two make room or work for the window; what else can, the next look finds.
        if planned or collected:
            self._unless_full(self._publish)
        return planned or collected

    def _unless_full(self, step: Callable[[], bool]) -> bool:
        """Take a step that needs room on the server; without it, pause, since collecting makes some."""
        if self._lack is None or time.monotonic() >= self._full:
            try:
                done = step()
            except redis.OutOfMemoryError as error:
                self._full, self._lack = time.monotonic() + FULL_SECONDS, error
            else:
                self._lack = None
                return done
        self._patiently.held(self._lack)
        return False

    def _plan(self, ahead: int = 0) -> bool:
        """Cut and register a few chunks, unless the plan is more than two windows (or ``ahead``) in front."""
        job = self._job
        if self.registration.behind:
            return self.registration.tell()  # what the server did not take the last time
        if job.manifest.seal is not None:
            return False
        if len(job.manifest.chunks) - self._collector.next > (ahead or 2 * self._settings.window):
            return False
        with tracing.span("plan", job.run, first=len(job.manifest.chunks)) as span:
            chunks = list(islice(self._chunks, PLAN_STEP))
            span.set_attribute("evalq.chunks", len(chunks))
        if chunks:
            job.manifest.extend(chunks)
        elif self._planner.seal is not None:
            job.manifest.close(self._planner.seal)
        return self.registration.tell()

    def _publish(self) -> bool:
        if not self._blobs:
            return self._reconciler.pump(self.registration.header, self.registration.epoch) > 0
        seqs = self._ledger.take(self._job.run, most=1, epoch=self.registration.epoch) if self._room() else []
        for seq in seqs:
            self._supply(seq)
        return bool(seqs)

    def _room(self) -> bool:
        """Whether the ledger may be sent more input bytes."""
        self._sent = {seq: size for seq, size in self._sent.items() if seq >= self._collector.next}
        return sum(self._sent.values()) < self._settings.blob_bytes

    def _collect(self) -> bool:
        """Take what is committed next in order; it leaves the ledger once it is safe in the folder."""
        first, chunks = self._collector.next, self._job.manifest.chunks
        wanted = range(first, min(first + FETCH_STEP, len(chunks)))
        for seq, fetched in zip(wanted, self._ledger.collect(self._job.run, wanted), strict=True):
            answer = self._collector.kept(seq) or fetched
            if answer is None:
                break
            self._take(chunks[seq], answer)
        self._settle(at_once=False)
        return self._collector.next > first

    def _settle(self, *, at_once: bool) -> bool:
        """Sync what was collected to disk, some at a time, and let it leave the ledger."""
        done = range(self._settled, self._collector.next)
        if len(done) >= (1 if at_once else SYNC_STEP):
            self._collector.sync()
            self._ledger.trim(self._job.run, done)
            self._settled = self._collector.next
        return True

    def _take(self, chunk: Chunk, partial: Partial) -> None:
        try:
            self._collector.add(chunk, partial if partial.data else self._again(chunk, partial.digest))
        except WireError:  # damaged in the ledger: computed here, it still has to have the digest that was committed
            self._collector.add(chunk, self._again(chunk, partial.digest))
        standing = self.standing
        self.standing = msgspec.structs.replace(
            standing,
            records=standing.records + chunk.records,
            done_bytes=standing.done_bytes + chunk.end - chunk.start,
        )

    def _again(self, chunk: Chunk, expected: str) -> Partial:
        """An answer that another producer of this run has taken out of the ledger, computed here. Raises Divergent."""
        partial = evaluate(self._job, chunk, read(self._job, chunk))
        if partial.digest != expected:
            raise Divergent(f"run {self._job.run}: chunk {chunk.seq} has another answer here than in the ledger")
        return partial

    def _look(self) -> bool:
        """The reconciler's look, and this producer's part in what it shows."""
        self._settle(at_once=True)
        try:
            look = self._reconciler.tend(self.registration.header)
        except Incomplete:
            self.registration.establish()  # the server lost the run; the folder has all that was collected
            return True
        progress = look.progress
        if self.registration.lost(progress):
            self.registration.establish()
            return True
        if progress.divergent:
            raise Divergent(f"run {self._job.run} {progress.reason}; both answers are kept in the ledger")
        if progress.state == "failed":
            raise InfrastructureError(f"run {self._job.run} failed: {progress.reason}")
        if progress.state == "paused":
            raise Paused(f"run {self._job.run} was paused")
        if progress.state == "cancelled":
            raise Cancelled(f"run {self._job.run} was cancelled {progress.reason}".rstrip())
        for seq, reason in look.refused.items():
            if reason == CHANGED:
                read(self._job, self._job.manifest.chunks[seq])
            self._blobs = True
            if self._room():
                self._unless_full(partial(self._supply, seq))
        if time.monotonic() - self._watched >= FLEET_SECONDS:
            self._watched = time.monotonic()
            with contextlib.suppress(redis.ResponseError, BrokerUnreachable, ServerRefused):  # it is only shown
                self.standing = msgspec.structs.replace(self.standing, fleet=self._fleet_now())
        workers, others, lacking = self.fleet()
        self.standing = msgspec.structs.replace(
            self.standing, progress=progress, workers=workers, others=others, lacking=lacking, trouble=look.trouble
        )
        self._job.folder.note(progress=msgspec.to_builtins(progress))
        return True

    def fleet(self) -> tuple[int, dict[str, int], bool]:
        """Living workers of the run's code, how many live of each other one, and whether none has its evaluator."""
        return Heartbeats(self._ledger.client).serving(self._job.header.code_version, self._job.header.evaluator)

    def _fleet_now(self) -> Fleet:
        elsewhere = self._broker.lengths if self._settings.ledger_apart else None
        return fleet_of(read_snapshot(self._ledger.client, self._settings, elsewhere))

    def _supply(self, seq: int) -> bool:
        """Send a chunk's bytes by way of the ledger, then its message; False when it was committed meanwhile."""
        blob = pack(read(self._job, self._job.manifest.chunks[seq]))
        if not self._ledger.supply(self._job.run, seq, blob):
            return False
        self._sent[seq] = len(blob)
        self._broker.publish(self.registration.header.queue, self._job.run, self.registration.epoch, [seq])
        return True

    def _leave_input(self) -> bool:
        """See whether workers can read the input; where they cannot, leave it with the ledger, or refuse to leave."""
        deadline = time.monotonic() + EVIDENCE_SECONDS
        while not (look := self._ledger.look(self._job.run, attending=True)).refused:
            if look.progress.committed or not self.fleet()[0] or time.monotonic() > deadline:
                return True
            time.sleep(IDLE_SECONDS)
        blobs, size, most = {}, 0, self._settings.blob_bytes
        for chunk in self._job.manifest.chunks:
            blobs[chunk.seq] = pack(read(self._job, chunk))
            size += len(blobs[chunk.seq])
            if size > most:
                reason = f"no worker can read the input, and it packs to more than {most >> 20} MB (blob_bytes)"
                self._ledger.close(self._job.run, "cancelled", reason)
                self._job.folder.note(state="cancelled")
                raise UsageError(f"--detach is refused: {reason}: give workers a --root that has it, or stay attached")
        wanted = [seq for seq, blob in blobs.items() if self._ledger.supply(self._job.run, seq, blob, publish=False)]
        self._broker.publish(self.registration.header.queue, self._job.run, self.registration.epoch, wanted)
        return True
