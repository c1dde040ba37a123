"""Getting a job's chunks to the workers: messages as far as the window goes, and bytes that they cannot read."""

from __future__ import annotations

import time
from collections.abc import Callable

import redis

from evalq.evalcore.model.canonical import pack
from evalq.producer.driving.waiting import Patience
from evalq.producer.folder.job import Job
from evalq.producer.runs.collector import Collector
from evalq.producer.runs.inline import read
from evalq.producer.runs.registration import Registration
from evalq.workers.broker.publisher import Broker
from evalq.workers.inputs import CHANGED
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.recovery.reconciler import Reconciler

__all__ = ["InputBytes", "Publisher", "UnlessFull"]

FULL_SECONDS = 0.5


class UnlessFull:
    """Takes steps that need room on the server; without it they pause, since collecting makes some."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._again_at = 0.0
        self._lack: redis.OutOfMemoryError | None = None

    def __call__(self, step: Callable[[], bool]) -> bool:
        """Take a step; False also where there is no room for it."""
        if self._lack is None or time.monotonic() >= self._again_at:
            try:
                done = step()
            except redis.OutOfMemoryError as error:
                self._again_at, self._lack = time.monotonic() + FULL_SECONDS, error
            else:
                self._lack = None
                return done
        self._patience.held(self._lack)
        return False


class InputBytes:
    """The bytes of chunks, by way of the ledger, for workers that cannot read the input: up to ``most`` at once."""

    def __init__(
        self, job: Job, collector: Collector, ledger: RunLedger, broker: Broker, registration: Registration, most: int
    ) -> None:
        self._job = job
        self._collector = collector
        self._ledger = ledger
        self._broker = broker
        self._registration = registration
        self._sent: dict[int, int] = {}
        self.most = most

    @property
    def room(self) -> bool:
        """Whether the ledger may be sent more of them."""
        # The bytes of a chunk leave the ledger with its commit, and what is collected was committed.
        self._sent = {seq: size for seq, size in self._sent.items() if seq >= self._collector.next}
        return sum(self._sent.values()) < self.most

    def supply(self, seq: int) -> bool:
        """Send a chunk's bytes, then its message; False when it was committed meanwhile. Raises InputChanged."""
        blob = self.packed(seq)
        # The bytes before the message: a worker that came first would refuse the chunk again.
        if not self._ledger.supply(self._job.run, seq, blob):
            return False
        self._sent[seq] = len(blob)
        self._publish([seq])
        return True

    def leave(self, blobs: dict[int, bytes]) -> None:
        """Leave the bytes of chunks with the ledger, then publish them."""
        run = self._job.run
        self._publish([seq for seq, blob in blobs.items() if self._ledger.supply(run, seq, blob, publish=False)])

    def packed(self, seq: int) -> bytes:
        """A chunk's bytes as the ledger takes them. Raises InputChanged."""
        return pack(read(self._job, self._job.manifest.chunks[seq]))

    def _publish(self, seqs: list[int]) -> None:
        self._broker.publish(self._registration.header.queue, self._job.run, self._registration.epoch, seqs)


class Publisher:
    """Publishes a run's chunks as its window has room; after a worker could not read one, together with their bytes."""

    def __init__(
        self, job: Job, ledger: RunLedger, registration: Registration, reconciler: Reconciler, inputs: InputBytes
    ) -> None:
        self._job = job
        self._ledger = ledger
        self._registration = registration
        self._reconciler = reconciler
        self._inputs = inputs
        self._by_bytes = False

    def publish(self) -> bool:
        """Publish what comes next; False when the window has no room for it."""
        epoch = self._registration.epoch
        if not self._by_bytes:
            return self._reconciler.pump(self._registration.header, epoch) > 0
        # One at a time: whether there is room for the bytes of the next shows after these.
        seqs = self._ledger.take(self._job.run, most=1, epoch=epoch) if self._inputs.room else []
        for seq in seqs:
            self._inputs.supply(seq)
        return bool(seqs)

    def may_supply(self, seq: int, reason: str) -> bool:
        """Whether there is room for the bytes of a chunk that a worker refused. Raises InputChanged."""
        # The worker may have seen another file of this name. Where the one here has changed, too, this raises.
        if reason == CHANGED:
            read(self._job, self._job.manifest.chunks[seq])
        # A worker that cannot read the input takes any chunk: from here on each is sent with its bytes.
        self._by_bytes = True
        return self._inputs.room
