"""Leaving a job to the workers: planned to its end, its first window published, its input within their reach."""

from __future__ import annotations

import time

from evalq.evalcore.errors import Cancelled, Incomplete, UsageError
from evalq.producer.driving.waiting import Patience
from evalq.producer.folder.job import Job
from evalq.producer.runs.publisher import InputBytes, Publisher
from evalq.producer.runs.record_history import tags_of, target_of
from evalq.producer.runs.registration import Registration
from evalq.workers import tracing
from evalq.workers.ledger.detached import Detached, Reports
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.ledger.scripts import server_seconds

__all__ = ["HandOver"]

EVIDENCE_SECONDS = 10.0
"""How long to wait for a worker to compute a chunk, or to say that it cannot read one."""
LOOK_SECONDS = 0.02
_ALL = 1 << 62


class HandOver:
    """The steps by which a driver leaves its job: `launch`, then `detach`."""

    def __init__(
        self,
        job: Job,
        ledger: RunLedger,
        registration: Registration,
        publisher: Publisher,
        inputs: InputBytes,
        patience: Patience,
    ) -> None:
        self._job = job
        self._ledger = ledger
        self._registration = registration
        self._publisher = publisher
        self._inputs = inputs
        self._patiently = patience

    def launch(self) -> None:
        """Plan all of it and publish the first window, for workers to continue alone.

        Raises UsageError when they cannot read the input, and it is too much to be left in the ledger.
        """
        plan = self._registration.plan
        with tracing.run_span(self._job.run, begun=self._job.folder.info().epoch > 0):
            self._patiently(self._registration.establish)
            # To its end: workers publish what is planned, and plan nothing.
            while not plan.sealed:
                self._patiently(self._plan)
            while not self._patiently(self._hand_out):
                self._patiently(self._registration.establish)

    def _hand_out(self) -> bool:
        """Publish and see to the input; False where the server has lost the run since it was told the last of it."""
        try:
            # Before the input is judged: only a worker that takes a chunk shows whether it can read it.
            self._publisher.publish()
            return self._leave_input()
        except Cancelled:
            raise
        except Incomplete:
            return False

    def _plan(self) -> bool:
        """A step of the plan; where the server has lost the run meanwhile, or some of its plan, tell it all again."""
        return self._registration.plan.extend(ahead=_ALL) or self._registration.establish()

    def detach(self) -> None:
        """Leave the run to the workers, with what finalising it needs."""
        self._patiently(self._detach)

    def fleet(self) -> tuple[int, dict[str, int], bool]:
        """Living workers of the run's code, how many live of each other one, and whether none has its evaluator."""
        return Heartbeats(self._ledger.client).serving(self._job.header.code_version, self._job.header.evaluator)

    def _detach(self) -> bool:
        target, tags = target_of(self._job.folder), tags_of(self._job.folder)
        facts = Detached(server_seconds(self._ledger.client), target, tags, self._job.folder.info().name)
        # First what a report needs, then nobody drives: a worker that finds the run without a driver finds both.
        Reports(self._ledger, self._ledger.settings).detach(self._job.run, facts)
        self._ledger.hand_over(self._job.run)
        return True

    def _leave_input(self) -> bool:
        """See whether workers can read the input; where they cannot, leave it with the ledger, or refuse to leave."""
        if self._can_read():
            return True
        blobs, size, most = {}, 0, self._inputs.most
        for chunk in self._job.manifest.chunks:
            blobs[chunk.seq] = self._inputs.packed(chunk.seq)
            size += len(blobs[chunk.seq])
            if size > most:
                reason = f"no worker can read the input, and it packs to more than {most >> 20} MB (blob_bytes)"
                # Its first window is published: workers must not go on with a run that was refused.
                self._ledger.close(self._job.run, "cancelled", reason)
                self._job.folder.note(state="cancelled")
                raise UsageError(f"--detach is refused: {reason}: give workers a --root that has it, or stay attached")
        # All of it is packed by now: a refusal has left nothing at the server.
        self._inputs.leave(blobs)
        return True

    def _can_read(self) -> bool:
        """Whether no worker has said that it cannot, once one has computed a chunk, none is there, or time is up."""
        deadline = time.monotonic() + EVIDENCE_SECONDS
        while not (look := self._ledger.look(self._job.run, attending=True)).refused:
            if look.progress.committed or not self.fleet()[0] or time.monotonic() > deadline:
                return True
            time.sleep(LOOK_SECONDS)
        return False
