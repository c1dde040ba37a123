"""Ownership of a run in the ledger: becoming its driver in an epoch, and restoring data that the ledger lost."""

from __future__ import annotations

import contextlib
import hashlib
import time

from evalq.evalcore.errors import AlreadyRunning, Finished, Incomplete
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.records.inputs import Source
from evalq.producer.folder.files import HEAD
from evalq.producer.folder.job import Job, open_source
from evalq.producer.folder.journal import has_unique_data
from evalq.producer.run.chunks import Collector, Planner, PublishedPlan
from evalq.workers.ledger.detached import Reports
from evalq.workers.ledger.driver_steps import OtherKey
from evalq.workers.ledger.progress import RunStatus
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.processes.identity import is_gone
from evalq.workers.settings import Settings

_AGAIN_SECONDS = 0.2


class Ownership:
    """This process's ownership of ``job`` in the ledger, as its driver.

    It drives the run in ``epoch`` (0: not yet). ``header`` is the ledger's, since the process that began the run chose
    its priority. ``plan`` is the published plan.
    """

    def __init__(
        self, job: Job, collector: Collector, ledger: RunLedger, settings: Settings, begun: Planner | None = None
    ) -> None:
        self._job = job
        self._collector = collector
        self._ledger = ledger
        self._silence = settings.driver_seconds
        self.plan = PublishedPlan(job, collector, ledger, begun)
        self.epoch = 0
        self.header = job.header

    def open(self) -> dict[str, Json]:
        """Become the run's driver, in a higher epoch than before; returns the facts to note in the folder.

        Raises ConfigError if the ledger has another run under this id, AlreadyRunning while another process drives the
        run, and Finished if the ledger has the report and this folder has nothing of the run.
        """
        job, info = self._job, self._job.folder.info()
        # A sweep's outputs here may differ from those of a report in the ledger.
        swept = (job.folder.path / HEAD).is_file()
        fresh = not (self.epoch or info.epoch or swept or self._collector.count)
        # Higher than any that this folder knows: if the server lost the run, messages of old epochs must stay stale.
        self.epoch = self._take_over(info.epoch + 1, info.driver, fresh=fresh)
        if info.retry is not None:  # also if an earlier attempt at it was interrupted
            dead = {int(seq): count for seq, count in info.retry.items()}
            self._ledger.reopen(job.run, [(seq, job.manifest.chunks[seq].records, n) for seq, n in dead.items()])
        self.header = self._ledger.header(job.run) or job.header
        return {"epoch": self.epoch, "state": "open", "driver": self._ledger.token}

    def restore(self) -> None:
        """Tell the ledger the whole plan, and which answers the folder has."""
        self.plan.publish(anew=True)
        chunks = self._job.manifest.chunks
        rows = ((seq, digest, chunks[seq].records) for seq, digest in self._collector.digests())
        self._ledger.restore(self._job.run, rows)

    def overtaken(self) -> bool:
        """Whether another process has driven the run since; a server with an older state has an earlier driver."""
        with contextlib.suppress(Incomplete):
            # Each driver has its own epoch, so only a later driver can have raised it.
            return self._ledger.poll(self._job.run).progress.epoch > self.epoch
        return False

    def lost(self, status: RunStatus) -> bool:
        """Whether the server was restored to an older state, or has lost part of the run."""
        progress = status.progress
        return (
            progress.epoch < self.epoch
            or not status.keyed
            or progress.committed < self._collector.count
            or self.plan.lost(progress)
        )

    def _take_over(self, epoch: int, before: str, *, fresh: bool) -> int:
        """Become the run's driver; the driver ``before`` had this folder, so it has ended or will be silent soon."""
        # A second longer than the ledger waits for a silent driver.
        deadline = time.monotonic() + self._silence + 1
        gone = before if is_gone(before) else ""
        while True:
            try:
                return self._open(epoch, gone, fresh=fresh)
            # Finished is an AlreadyRunning, too, but waiting does not help.
            except Finished:
                raise
            except AlreadyRunning as other:
                if other.by != before or time.monotonic() > deadline:
                    raise
                time.sleep(_AGAIN_SECONDS)

    def _open(self, epoch: int, gone: str, *, fresh: bool) -> int:
        """Open the run under this job's key, or under the key of another folder that has begun it.

        If this folder needs its own plan, the other folder's data in the ledger is replaced; that folder has it all.
        """
        job, stays = self._job, False
        while True:
            try:
                return self._ledger.open(
                    job.header, epoch, had=self.epoch, gone=gone, fresh=fresh, key=job.key, stays=stays
                )
            except OtherKey as other:
                stays = self._needs_own_plan()
                if not stays:
                    job.adopt(other.key)

    def _needs_own_plan(self) -> bool:
        """Whether this folder's data fits only its own plan: a sweep's outputs, or answers kept by a retry."""
        job = self._job
        if not has_unique_data(job.folder):
            return False
        if job.manifest.begun:
            return True
        # Workers may have planned these very outputs, after the sweep was left to them.
        seal = Reports(self._ledger, self._ledger.settings).seal(job.run)
        return seal is None or seal.sha256 != tuple(map(_sha256, job.sources))


def _sha256(source: Source) -> str:
    with open_source(source) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
