"""Driving a job to its end over a ledger and a broker: plan, publish, collect and reconcile in one loop."""

from __future__ import annotations

from functools import partial

import msgspec

from evalq.evalcore.errors import Cancelled, Divergent, Driven, Incomplete, InfrastructureError, Paused
from evalq.producer.driving.loop import drive
from evalq.producer.driving.waiting import Patience
from evalq.producer.folder.job import Job
from evalq.producer.monitor.progress import RunStatus, Watcher
from evalq.producer.runs.collector import Collector
from evalq.producer.runs.hand_over import HandOver
from evalq.producer.runs.intake import Intake
from evalq.producer.runs.planner import Planner
from evalq.producer.runs.progress import RunProgress
from evalq.producer.runs.publisher import InputBytes, Publisher, UnlessFull
from evalq.producer.runs.registration import Registration
from evalq.workers import tracing
from evalq.workers.broker.publisher import Broker
from evalq.workers.ledger.progress import Progress
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.recovery.reconciler import Reconciler
from evalq.workers.settings import Settings

__all__ = ["RunDriver"]

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
        patience: Patience,
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
        ConfigError for another run under this id, Driven while another process drives it, BrokerUnreachable when the
        server stays away for ``patience_seconds``.
        """
        with tracing.run_span(self._job.run, begun=self._job.folder.info().epoch > 0):
            drive(self, self._patience, self._settings.look_seconds, watch)

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

    def establish_again(self, driven: Driven) -> bool:
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
