"""A job's place in the ledger: who drives it, in which epoch, and what it is given again where it lost some."""

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
    """This process's place in the ledger as the driver of ``job``.

    ``epoch`` is the one in which it drives the run (0: not yet), ``header`` as the ledger has it (whoever began the run
    chose how urgent it is), ``plan`` what the ledger was given of it.
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
        """Become the run's driver: new, or again with a higher epoch; returns what the folder notes of it.

        Raises ConfigError where it is another run there, AlreadyRunning while another process drives it, and
        Finished where one has, with its report in the ledger, and nothing of the run is in this folder.
        """
        job, info = self._job, self._job.folder.info()
        # The outputs of a sweep may be others than those that a report in the ledger is of.
        swept = (job.folder.path / HEAD).is_file()
        fresh = not (self.epoch or info.epoch or swept or self._collector.held)
        # Higher than any that this folder knows: a server that lost the run must not take messages of old epochs for
        # new ones.
        self.epoch = self._take_over(info.epoch + 1, info.driver, fresh=fresh)
        if info.retry is not None:  # also where an earlier try at it was interrupted
            dead = {int(seq): count for seq, count in info.retry.items()}
            self._ledger.reopen(job.run, [(seq, job.manifest.chunks[seq].records, n) for seq, n in dead.items()])
        self.header = self._ledger.header(job.run) or job.header
        return {"epoch": self.epoch, "state": "open", "driver": self._ledger.token}

    def restore(self) -> None:
        """Tell the ledger the whole plan, and which answers the folder has."""
        self.plan.publish(anew=True)
        held, chunks = self._collector.digests(), self._job.manifest.chunks
        self._ledger.restore(self._job.run, ((seq, found, chunks[seq].records) for seq, found in held))

    def overtaken(self) -> bool:
        """Whether somebody else has driven the run since; a server that came back older knows an earlier driver."""
        with contextlib.suppress(Incomplete):
            # Each driver has an epoch of its own, so only a later driver can have raised it.
            return self._ledger.poll(self._job.run).progress.epoch > self.epoch
        return False

    def lost(self, look: RunStatus) -> bool:
        """Whether the server came back with an older state than it had, or has lost some of it."""
        progress = look.progress
        return (
            progress.epoch < self.epoch
            or not look.keyed
            or progress.committed < self._collector.held
            or self.plan.lost(progress)
        )

    def _take_over(self, epoch: int, before: str, *, fresh: bool) -> int:
        """Become the run's driver; whoever drove it from this very folder ``before`` is no more, or soon silent."""
        # A second more than it takes the ledger to call that driver silent.
        deadline = time.monotonic() + self._silence + 1
        gone = before if is_gone(before) else ""
        while True:
            try:
                return self._open(epoch, gone, fresh=fresh)
            # It is an AlreadyRunning, too, and no waiting changes it.
            except Finished:
                raise
            except AlreadyRunning as other:
                if other.by != before or time.monotonic() > deadline:
                    raise
                time.sleep(_AGAIN_SECONDS)

    def _open(self, epoch: int, gone: str, *, fresh: bool) -> int:
        """Open the run under this job's key; where another folder has begun it, under that one's.

        What is here alone cannot be planned by that one's: then it gives way in the ledger, and has all of it itself.
        """
        job, stays = self._job, False
        while True:
            try:
                return self._ledger.open(
                    job.header, epoch, had=self.epoch, gone=gone, fresh=fresh, key=job.key, stays=stays
                )
            except OtherKey as other:
                stays = self._stays()
                if not stays:
                    job.adopt(other.key)

    def _stays(self) -> bool:
        """Whether what is here fits no plan but its own: a sweep's outputs, or the answers that a retry kept."""
        job = self._job
        if not has_unique_data(job.folder):
            return False
        if job.manifest.begun:
            return True
        # Workers to whom a sweep was left have planned these very outputs.
        seal = Reports(self._ledger, self._ledger.settings).seal(job.run)
        return seal is None or seal.sha256 != tuple(map(_sha256, job.sources))


def _sha256(source: Source) -> str:
    with open_source(source) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
