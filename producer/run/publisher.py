"""Getting a job's chunks to the workers: messages up to the window, and bytes of inputs that they cannot read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import redis

from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.canonical import pack
from evalq.producer.driving.retries import ServerRetry
from evalq.producer.folder.job import Job
from evalq.producer.run.chunks import Collector, read
from evalq.producer.run.ownership import Ownership
from evalq.workers.broker.publisher import Broker
from evalq.workers.inputs import CHANGED
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.recovery.reconciler import Reconciler

FULL_SECONDS = 0.5
EVIDENCE_SECONDS = 10.0
"""How long to wait for a worker to compute a chunk or to refuse one."""
SMALL_BYTES = 1 << 20
"""Inputs of a detached run up to this size go to the ledger at once: to wait for a worker would take longer."""
_POLL_SECONDS = 0.02


class Backpressure:
    """Takes steps that need room on the server; without room they pause, since collecting frees some."""

    def __init__(self, retry: ServerRetry) -> None:
        self._retry = retry
        self._again_at = 0.0
        self._lack: redis.OutOfMemoryError | None = None

    def __call__(self, step: Callable[[], bool]) -> bool:
        """Take a step; False also if the server has no room."""
        if self._lack is None or time.monotonic() >= self._again_at:
            try:
                result = step()
            except redis.OutOfMemoryError as error:
                self._again_at, self._lack = time.monotonic() + FULL_SECONDS, error
            else:
                self._lack = None
                return result
        self._retry.in_part(self._lack)
        return False


class InputBytes:
    """Sends bytes of chunks through the ledger for workers that cannot read the input, up to ``most`` at once."""

    def __init__(
        self, job: Job, collector: Collector, ledger: RunLedger, broker: Broker, ownership: Ownership, most: int
    ) -> None:
        self._job = job
        self._collector = collector
        self._ledger = ledger
        self._broker = broker
        self._ownership = ownership
        self._sent: dict[int, int] = {}
        self.most = most

    @property
    def room(self) -> bool:
        """Whether more bytes may be sent to the ledger."""
        # The bytes of a chunk leave the ledger with its commit; collected chunks are committed.
        self._sent = {seq: size for seq, size in self._sent.items() if seq >= self._collector.next}
        return sum(self._sent.values()) < self.most

    def supply(self, seq: int) -> bool:
        """Send a chunk's bytes, then its message; False if it was committed meanwhile. Raises InputChanged."""
        blob = self.packed(seq)
        # The bytes first: a worker that gets the message before them would refuse the chunk again.
        if not self._ledger.supply(self._job.run, seq, blob):
            return False
        self._sent[seq] = len(blob)
        self._publish([seq])
        return True

    def leave(self, blobs: Mapping[int, bytes], taken: Sequence[int] = ()) -> None:
        """Leave the bytes of chunks with the ledger, then publish those that were refused, or ``taken``."""
        run = self._job.run
        wanted = {seq for seq, blob in blobs.items() if self._ledger.supply(run, seq, blob, publish=False)}
        self._publish(sorted(wanted.union(taken)))

    def packed(self, seq: int) -> bytes:
        """A chunk's packed bytes. Raises InputChanged."""
        return pack(read(self._job, self._job.manifest.chunks[seq]))

    def _publish(self, seqs: list[int]) -> None:
        self._broker.publish(self._ownership.header.queue, self._job.run, self._ownership.epoch, seqs)


class Publisher:
    """Publishes a run's chunks as its window has room; with their bytes, once a worker could not read one."""

    def __init__(
        self, job: Job, ledger: RunLedger, ownership: Ownership, reconciler: Reconciler, inputs: InputBytes
    ) -> None:
        self._job = job
        self._ledger = ledger
        self._ownership = ownership
        self._reconciler = reconciler
        self._inputs = inputs
        self._by_bytes = False

    def publish(self) -> bool:
        """Publish the next chunks; False if the window has no room."""
        epoch = self._ownership.epoch
        if not self._by_bytes:
            return self._reconciler.pump(self._ownership.header, epoch) > 0
        # One at a time, since its bytes may take the room for the next.
        seqs = self._ledger.take(self._job.run, most=1, epoch=epoch) if self._inputs.room else []
        for seq in seqs:
            self._inputs.supply(seq)
        return bool(seqs)

    def leave_small(self) -> bool:
        """Leave a small input in the ledger, and publish it; False for a larger one.

        Raises Incomplete if the ledger has forgotten the run.
        """
        if self._job.total_bytes > min(SMALL_BYTES, self._inputs.most):
            return False
        # Not taken: chunks beyond the window are published later, by the workers.
        seqs = self._ledger.take(self._job.run, epoch=self._ownership.epoch)
        self._inputs.leave({chunk.seq: self._inputs.packed(chunk.seq) for chunk in self._job.manifest.chunks}, seqs)
        # A server that was emptied meanwhile takes nothing and does not say so: nobody would compute the run.
        self._ledger.poll(self._job.run, attending=True)
        return True

    def may_supply(self, seq: int, reason: str) -> bool:
        """Whether there is room for the bytes of a chunk that a worker refused. Raises InputChanged."""
        # The worker may have seen another file of this name. If the file here has changed, too, this raises.
        if reason == CHANGED:
            read(self._job, self._job.manifest.chunks[seq])
        # A worker that cannot read the input may take any chunk: from here on, send each with its bytes.
        self._by_bytes = True
        return self._inputs.room

    def leave_input(self) -> None:
        """Check whether workers can read the input; if not, leave its bytes in the ledger.

        Raises UsageError if there are too many.
        """
        if self._can_read():
            return
        blobs, size, most = {}, 0, self._inputs.most
        for chunk in self._job.manifest.chunks:
            blobs[chunk.seq] = self._inputs.packed(chunk.seq)
            size += len(blobs[chunk.seq])
            if size > most:
                reason = f"no worker can read the input, and it packs to more than {most >> 20} MB (blob_bytes)"
                # Its first window is published: workers must not go on with a refused run.
                self._ledger.close(self._job.run, "cancelled", reason)
                self._job.folder.note(state="cancelled")
                raise UsageError(f"--detach is refused: {reason}: give workers a --root that has it, or stay attached")
        # Only after all is packed: a refusal must leave nothing on the server.
        self._inputs.leave(blobs)

    def _can_read(self) -> bool:
        """Whether no worker refuses a chunk until one is computed, no worker is there, or time is up."""
        deadline = time.monotonic() + EVIDENCE_SECONDS
        while not (status := self._ledger.poll(self._job.run, attending=True)).refused:
            if status.progress.committed or not serving(self._job, self._ledger)[0] or time.monotonic() > deadline:
                return True
            time.sleep(_POLL_SECONDS)
        return False


def serving(job: Job, ledger: RunLedger) -> tuple[int, dict[str, int], bool]:
    """(living workers of the run's code version, {other version: workers}, whether none has its evaluator)."""
    return Heartbeats(ledger.client).serving(job.header.code_version, job.header.evaluator)
