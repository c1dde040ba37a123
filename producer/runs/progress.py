"""How a run stands, for whoever watches: the ledger's counters, who serves it, and the fleet."""

from __future__ import annotations

import contextlib
import time

import msgspec
import redis

from evalq.evalcore.errors import BrokerUnreachable, ServerRefused
from evalq.producer.folder.job import Job
from evalq.producer.monitor.fleet import Fleet, fleet_of
from evalq.producer.monitor.progress import RunStatus
from evalq.workers.broker.publisher import Broker
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.progress import Look, Progress
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.monitor.snapshot import read_snapshot
from evalq.workers.settings import Settings

__all__ = ["RunProgress"]

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

    def show(self, look: Look) -> None:
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
