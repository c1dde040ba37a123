"""Tending a run: publish chunks into its window, and publish lost ones again.

Messages are hints. A chunk is lost if it was published, is not committed, has no live lease and does not wait in its
queue. If two snapshots in a row show that, it is published again, with a pause that doubles each time. A waiting
message is never doubled, so a slow fleet's queue does not grow by this.

Tending also closes a run that no worker can compute (`evalq.workers.recovery.judge`).
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import redis

from evalq.evalcore.errors import Incomplete, WireError
from evalq.evalcore.model.manifest import Header
from evalq.evalcore.version import code_version
from evalq.workers.broker.publisher import Broker
from evalq.workers.ledger.failures import Failures
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.keys import SHARED, is_wrong_type
from evalq.workers.ledger.progress import RunStatus
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.recovery.judge import judge
from evalq.workers.servers.errors import explained

log = logging.getLogger("evalq.worker")


def may_tend(client: Any, worker: str, seconds: float) -> bool:
    """Take or renew the lock to tend the runs of this code version for so many ``seconds``; False if another has it.

    Each code version has its own lock: only a worker of a run's version can make its report, so a worker of another
    version must not tend in its place. The lock only saves work: tending twice would be harmless. A lock that lasts
    longer than any worker takes it for is from before the server's clock was set back.
    """
    keep, lock = int(seconds * 1000), SHARED.reconciler + code_version()
    mine = client.set(lock, worker, nx=True, px=keep) or client.get(lock) == worker.encode()
    if not mine and client.pttl(lock) <= keep:
        return False
    client.set(lock, worker, px=keep)
    return True


def stop_tending(client: Any, worker: str) -> None:
    """Release the lock to another worker."""
    lock = SHARED.reconciler + code_version()
    if client.get(lock) == worker.encode():
        client.delete(lock)


class Reconciler:
    """Tends one run at a time; remembers only the last snapshot."""

    def __init__(self, ledger: RunLedger, broker: Broker) -> None:
        self._ledger = ledger
        self._broker = broker
        self._failures = Failures(ledger)
        self._heartbeats = Heartbeats(ledger.client)
        self._missing: dict[str, set[int]] = {}
        self._damaged: set[str] = set()

    def pump(self, header: Header, epoch: int) -> int:
        """Publish the next chunks, up to the window; returns their number."""
        # Marked as in flight before they are published: if this process dies in between, they become suspects.
        seqs = self._ledger.take(header.run, epoch=epoch)
        self._broker.publish(header.queue, header.run, epoch, seqs)
        return len(seqs)

    def tend(self, header: Header, *, attending: bool = True) -> RunStatus:
        """Poll a run, publish lost chunks again, and publish the next ones. Raises Incomplete for an unknown run.

        A producer that is ``attending`` keeps the run from expiring.
        """
        status = self._ledger.poll(header.run, attending=attending)
        if status.progress.state != "open":
            return status
        # A driver restores the plan from its folder; without a driver, nobody has it.
        if (missing := _missing(status)) and not attending and not status.driver:
            self._ledger.close(header.run, "failed", f"the server lost {missing}: resume it")
            return status
        # Before publishing again: do not offer a failed run to the fleet.
        if status.progress.failures or status.refused or status.unserved:
            status = self._judge(header, status)
            if status.progress.state != "open":
                return status
        lost = self._lost(header, status)
        if lost and self._heartbeats.living(header.code_version):  # without a worker, publishing again helps nobody
            wanted = self._ledger.mark(header, {seq: status.suspect[seq] for seq in lost})
            self._broker.publish(header.queue, header.run, status.progress.epoch, wanted)
        self.pump(header, status.progress.epoch)
        return status

    def tend_all(self) -> list[str]:
        """Tend every open run of this code version, also without its producer; this does not keep runs from expiring.

        Returns the runs that are complete and have no report yet. Runs of another version are left to its workers,
        since only they can compute them.
        """
        complete = []
        runs = self._ledger.runs_to_tend()
        # Otherwise this would grow for as long as the worker lives.
        self._missing = {run: seqs for run, seqs in self._missing.items() if run in runs}
        for run in runs:
            try:
                header = self._ledger.header(run)
                if header is None or header.code_version != code_version():
                    continue
                if self.tend(header, attending=False).unreported:
                    complete.append(run)
            except Incomplete:
                continue
            except (WireError, redis.ResponseError) as error:
                if isinstance(error, redis.ResponseError) and not is_wrong_type(error):
                    raise
                # Log it once and go on: one damaged run must not stop the others.
                if run not in self._damaged:
                    log.warning("run %s is skipped: %s", run, explained(error, "the ledger"))
                    self._damaged.add(run)
        return complete

    def _lost(self, header: Header, status: RunStatus) -> list[int]:
        """Suspects that do not wait in the queue, now and at the last snapshot.

        One snapshot is not enough: a message just taken from the queue has no lease yet.
        """
        missing = set(status.suspect)
        if missing:
            waiting = self._broker.waiting(header.queue, header.run)
            if isinstance(waiting, int):
                # RabbitMQ only reports how many messages wait. Assume that many suspects are among them, so that its
                # queue never grows by republishing.
                missing = set(sorted(missing)[: max(0, len(missing) - waiting)])
            else:
                missing -= waiting
        before = self._missing.get(header.run, set())
        self._missing[header.run] = missing
        return sorted(before & missing)

    def _judge(self, header: Header, status: RunStatus) -> RunStatus:
        """Judge a run by its failures, and close it if it fails; returns its status with the judgement."""
        run, settings = header.run, self._ledger.settings
        living = self._heartbeats.living(header.code_version)
        judgement = judge(header.evaluator, counts := self._failures.counts(run), status, living)
        fails = judgement.fails
        if judgement.unserved or status.unserved:
            seconds = self._failures.mark_unserved(run, judgement.unserved)
            if judgement.unserved and seconds >= settings.unserved_seconds:
                why = "; ".join(judgement.trouble)
                fails = fails or f"no living worker could compute it for {settings.unserved_seconds:g} s: {why}"
        if fails:
            self._ledger.close(run, "failed", fails)
            status = self._ledger.poll(run)
        elif status.refused and living:
            # At once if some living worker has not refused the input yet: it may have just started.
            offered = self._failures.offer(run, at_once=not living.keys() <= counts.unread)
            self._broker.publish(header.queue, run, status.progress.epoch, offered)
        return msgspec.structs.replace(status, trouble=judgement.trouble, unserved=judgement.unserved)


def _missing(status: RunStatus) -> str:
    """The part of the plan that the server has lost, in words; empty if it has all."""
    progress = status.progress
    if progress.chunks < progress.planned:
        return f"{progress.planned - progress.chunks} of its chunks"
    return "" if status.keyed or progress.complete else "the key of its chunks"
