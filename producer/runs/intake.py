"""Taking answers out of the ledger in chunk order: into the run folder first, then they may leave the ledger."""

from __future__ import annotations

from evalq.evalcore.contract.partial import Partial
from evalq.evalcore.errors import Divergent, WireError
from evalq.evalcore.model.manifest import Chunk
from evalq.producer.folder.job import Job
from evalq.producer.runs.collector import Collector
from evalq.producer.runs.inline import evaluate, read
from evalq.workers.ledger.runs import RunLedger

__all__ = ["Intake"]

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

        Raises Divergent, and Driven where the ledger's run is another's by now.
        """
        partial = evaluate(self._job, chunk, read(self._job, chunk))
        if partial.digest != expected:
            # Of a run that another folder has begun anew, in a server that lost this one, all have: then it is Driven.
            self._ledger.append(self._job.run, (), 0)
            raise Divergent(f"run {self._job.run}: chunk {chunk.seq} has another answer here than in the ledger")
        return partial
