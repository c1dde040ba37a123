"""Driving a job to its end: plan, publish, collect and reconcile in one loop; or all of it here, without a queue."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice

import msgspec
import redis

from evalcore.canonical import digest
from evalcore.errors import BrokerUnreachable, Divergent, Incomplete, InfrastructureError, InputChanged
from evalcore.evaluator import Batch
from evalcore.partial import Partial, encode
from evalcore.plan import Chunk
from evalcore.records.span import place, read_span
from producer.collect import Collector
from producer.job import Job
from producer.planner import Planner
from producer.standing import Standing, Watcher
from workers.broker import Broker
from workers.ledger import Ledger
from workers.reading import CHANGED, pack
from workers.reconciler import Reconciler
from workers.settings import Settings

__all__ = ["Driver", "drive_inline"]

PLAN_STEP = 4
FETCH_STEP = 8
SYNC_STEP = 16
IDLE_SECONDS = 0.02
PATIENCE_SECONDS = 120.0


def drive_inline(job: Job, collector: Collector, watch: Watcher) -> None:
    """Evaluate every chunk in this process: the reference for all the rest."""
    planner, total, done, records = Planner(job), job.total_bytes, 0, 0
    for chunk in planner.chunks():
        job.manifest.extend([chunk])
        collector.add(chunk, _evaluate(job, chunk, _read(job, chunk)))
        done, records = done + chunk.end - chunk.start, records + chunk.records
        watch(Standing(records, done, total))
    assert planner.seal is not None  # the planner sets it when its chunks are exhausted
    job.manifest.close(planner.seal)


class Driver:
    """One job over a ledger and a broker, until every chunk is collected."""

    def __init__(self, job: Job, collector: Collector, ledger: Ledger, broker: Broker, settings: Settings) -> None:
        """``settings`` are those the ledger and the broker were made with."""
        self._job = job
        self._collector = collector
        self._ledger = ledger
        self._broker = broker
        self._settings = settings
        self._reconciler = Reconciler(ledger, broker)
        self._planner = Planner(job)
        self._chunks = self._planner.chunks()
        self._blobs = False
        self._sent: dict[int, int] = {}
        self._epoch = 0
        self._looked = 0.0
        self._settled = collector.next
        self.standing = Standing(0, 0, job.total_bytes)

    def drive(self, watch: Watcher) -> None:
        """Until all is collected. A lost server is waited for; what cannot be waited for is raised.

        Raises InputError, InputChanged, Divergent, Incomplete (cancelled elsewhere), InfrastructureError,
        BrokerUnreachable when the server stays away for PATIENCE_SECONDS.
        """
        self._patiently(self._establish)
        while not self._finished():
            if not self._patiently(self._step):
                time.sleep(IDLE_SECONDS)
            if time.monotonic() - self._looked >= self._settings.look_seconds:
                self._patiently(self._look)
                watch(self.standing)
                self._looked = time.monotonic()
        self._settle(at_once=True)
        self._ledger.close(self._job.run, "done")
        progress = self._ledger.look(self._job.run).progress
        self.standing = msgspec.structs.replace(self.standing, progress=progress)

    def launch(self) -> None:
        """Plan all of it and publish the first window, for workers to go on with alone."""
        self._patiently(self._establish)
        while self._job.manifest.seal is None:
            self._patiently(lambda: self._plan(ahead=1 << 62))
        self._patiently(self._publish)

    def _establish(self) -> bool:
        """Write the run into the ledger: new, or again from the folder with a higher epoch."""
        job = self._job
        stored = int(job.folder.info()["epoch"])
        self._epoch = self._ledger.create(job.header, stored + 1)
        if self._epoch > stored + 1:  # the ledger was driven from another copy of the folder: go beyond it
            self._epoch = self._ledger.create(job.header, self._epoch + 1)
        job.folder.note(epoch=self._epoch)
        self._ledger.append(job.run, job.manifest.chunks, job.manifest.seal)
        self._ledger.restore(job.run, self._collector.held)
        return True

    def _finished(self) -> bool:
        seal = self._job.manifest.seal
        return seal is not None and self._collector.next >= seal.chunks

    def _step(self) -> bool:
        """Some planning, publishing and collecting; False when there was nothing to do."""
        planned = self._plan()
        collected = self._collect()
        # Only these two make room or work for the window; what else can, the next look finds.
        if planned or collected:
            self._publish()
        return planned or collected

    def _plan(self, ahead: int = 0) -> bool:
        """Cut and register a few chunks, unless the plan is more than two windows (or ``ahead``) in front."""
        job = self._job
        if job.manifest.seal is not None:
            return False
        if len(job.manifest.chunks) - self._collector.next > (ahead or 2 * self._settings.window):
            return False
        chunks = list(islice(self._chunks, PLAN_STEP))
        if chunks:
            job.manifest.extend(chunks)
        elif self._planner.seal is not None:
            job.manifest.close(self._planner.seal)
        self._ledger.append(job.run, chunks, job.manifest.seal)
        return True

    def _publish(self) -> bool:
        if not self._blobs:
            return self._reconciler.pump(self._job.header, self._epoch) > 0
        seqs = self._ledger.take(self._job.run, most=1) if self._room() else []
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
        for seq, partial in zip(wanted, self._ledger.fetch(self._job.run, wanted), strict=True):
            if partial is None:
                break
            self._take(chunks[seq], partial)
        self._settle(at_once=False)
        return self._collector.next > first

    def _settle(self, *, at_once: bool) -> None:
        """Sync what was collected to disk, some at a time, and let it leave the ledger."""
        done = range(self._settled, self._collector.next)
        if len(done) >= (1 if at_once else SYNC_STEP):
            self._collector.sync()
            self._ledger.trim(self._job.run, done)
            self._settled = self._collector.next

    def _take(self, chunk: Chunk, partial: Partial) -> None:
        self._collector.add(chunk, partial if partial.data else self._again(chunk, partial.digest))
        standing = self.standing
        self.standing = msgspec.structs.replace(
            standing,
            records=standing.records + chunk.records,
            done_bytes=standing.done_bytes + chunk.end - chunk.start,
        )

    def _again(self, chunk: Chunk, expected: str) -> Partial:
        """An answer that another producer of this run has taken out of the ledger, computed here. Raises Divergent."""
        partial = _evaluate(self._job, chunk, _read(self._job, chunk))
        if partial.digest != expected:
            raise Divergent(f"run {self._job.run}: chunk {chunk.seq} has another answer here than in the ledger")
        return partial

    def _look(self) -> bool:
        """The reconciler's look, and this producer's part in what it shows."""
        self._settle(at_once=True)
        try:
            look = self._reconciler.tend(self._job.header)
        except Incomplete:
            self._establish()  # the server lost the run; the folder has all that was collected
            return True
        progress = look.progress
        self._epoch = progress.epoch  # another producer of this run may have gone beyond
        if progress.divergent:
            raise Divergent(f"run {self._job.run} {progress.reason}; both answers are kept in the ledger")
        if progress.state == "failed":
            raise InfrastructureError(f"run {self._job.run} failed at {progress.reason}")
        if progress.state not in ("open", "done"):
            raise Incomplete(f"run {self._job.run} was {progress.state} {progress.reason}".rstrip())
        for seq, reason in look.refused.items():
            if reason == CHANGED:
                _read(self._job, self._job.manifest.chunks[seq])
            self._blobs = True
            if self._room():
                self._supply(seq)
        workers = sum(facts.get("code") == self._job.header.code_version for facts in self._ledger.workers().values())
        self.standing = msgspec.structs.replace(self.standing, progress=progress, workers=workers)
        self._job.folder.note(progress=msgspec.to_builtins(progress))
        return True

    def _supply(self, seq: int) -> None:
        """Send a chunk's bytes by way of the ledger, then its message."""
        blob = pack(_read(self._job, self._job.manifest.chunks[seq]))
        if self._ledger.supply(self._job.run, seq, blob):
            self._sent[seq] = len(blob)
            self._broker.publish(self._job.header.queue, self._job.run, self._epoch, [seq])

    def _patiently(self, step: Callable[[], bool]) -> bool:
        """Take a step; while the server is away, wait for it and take the step again."""
        deadline, pause = time.monotonic() + PATIENCE_SECONDS, 0.1
        while True:
            try:
                return step()
            except (redis.ConnectionError, redis.TimeoutError, BrokerUnreachable) as error:
                if time.monotonic() > deadline:
                    raise BrokerUnreachable(f"the server is away: {error}") from error
                time.sleep(pause)
                pause = min(2 * pause, 2.0)


def _read(job: Job, chunk: Chunk) -> bytes:
    """The chunk's bytes as this producer reads them. Raises InputChanged."""
    data = read_span(job.sources[chunk.input].path, chunk.span)
    if digest(data) != chunk.digest:
        where = place(job.sources[chunk.input].name, chunk.first_line, chunk.members, chunk.first_line)
        reason = "not the bytes that were planned"
        raise InputChanged("an input changed while the run was reading it", [(where, reason)])
    return data


def _evaluate(job: Job, chunk: Chunk, data: bytes) -> Partial:
    """A chunk's answer, computed in this process."""
    planned = job.header.inputs[chunk.input]
    batch = Batch(planned.name, chunk.first_line, data, planned.columns, chunk.members)
    return encode(job.evaluator.evaluate(batch, job.params))
