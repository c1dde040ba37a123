"""Moving a run on: publishing into its window, and publishing again what was lost.

Messages are hints. A chunk that was published, is not committed, has no live lease and does not wait in its
queue is lost; seen so in two snapshots in a row, it is published again, with a pause that doubles each time. A
slow fleet's queue never grows by this, since a waiting message is never doubled.

It is also where a run fails that no worker can compute (`evalq.workers.recovery.judge`): whoever tends it sees to that.
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
    """Whether ``worker`` is the one that tends the runs of its code, for so many ``seconds``; asking again keeps it so.

    Each code version has a lock of its own: only a worker of a run's code can make its report, and one of another code
    that tended for both would leave it without one for as long as it lives.

    The lock only saves work: tending twice would be harmless. One that lasts longer than it was taken for was taken
    before the server's clock was set back.
    """
    keep, lock = int(seconds * 1000), SHARED.reconciler + code_version()
    mine = client.set(lock, worker, nx=True, px=keep) or client.get(lock) == worker.encode()
    if not mine and client.pttl(lock) <= keep:
        return False
    client.set(lock, worker, px=keep)
    return True


def stop_tending(client: Any, worker: str) -> None:
    """Leave it to another worker, where there is one."""
    lock = SHARED.reconciler + code_version()
    if client.get(lock) == worker.encode():
        client.delete(lock)


class Reconciler:
    """Tends one run at a time; remembers only what the last snapshot showed."""

    def __init__(self, ledger: RunLedger, broker: Broker) -> None:
        self._ledger = ledger
        self._broker = broker
        self._failures = Failures(ledger)
        self._heartbeats = Heartbeats(ledger.client)
        self._missing: dict[str, set[int]] = {}
        self._damaged: set[str] = set()

    def pump(self, header: Header, epoch: int) -> int:
        """Publish the next chunks, up to the window; returns how many."""
        # In flight before they are published: whoever dies in between leaves suspects, which are found, rather than
        # chunks that nobody misses.
        seqs = self._ledger.take(header.run, epoch=epoch)
        self._broker.publish(header.queue, header.run, epoch, seqs)
        return len(seqs)

    def tend(self, header: Header, *, attending: bool = True) -> RunStatus:
        """Look at a run, publish again what is lost, and publish on. Raises Incomplete for an unknown run.

        A producer that is ``attending`` keeps the run from expiring.
        """
        status = self._ledger.poll(header.run, attending=attending)
        if status.progress.state != "open":
            return status
        # A driver tells the plan again from its folder; where nobody drives, nobody has it any more.
        if (missing := _missing(status)) and not attending and not status.driver:
            self._ledger.close(header.run, "failed", f"the server lost {missing}: resume it")
            return status
        # Before anything is published again: a run that has failed is not offered to the fleet once more.
        if status.progress.failures or status.refused or status.unserved:
            status = self._judged(header, status)
            if status.progress.state != "open":
                return status
        lost = self._lost(header, status)
        if lost and self._heartbeats.living(header.code_version):  # without a worker, publishing again helps nobody
            wanted = self._ledger.mark(header, {seq: status.suspect[seq] for seq in lost})
            self._broker.publish(header.queue, header.run, status.progress.epoch, wanted)
        self.pump(header, status.progress.epoch)
        return status

    def tend_all(self) -> list[str]:
        """Tend every open run of this code, for workers whose producers have gone; only work keeps those runs.

        Returns those that are complete and have no report yet. Runs of another code are left to workers of that one,
        which take other steps: without any of them nobody could compute what is published again.
        """
        complete = []
        runs = self._ledger.runs_to_tend()
        # Or this would grow for as long as the worker lives.
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
                # Said once, and no reason to raise: the runs of others are tended all the same.
                if run not in self._damaged:
                    log.warning("run %s is left alone: %s", run, explained(error, "the ledger"))
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
                # RabbitMQ only reports how many messages wait: that many suspects are assumed to be among them, so its
                # queue never grows by republishing.
                missing = set(sorted(missing)[: max(0, len(missing) - waiting)])
            else:
                missing -= waiting
        before = self._missing.get(header.run, set())
        self._missing[header.run] = missing
        return sorted(before & missing)

    def _judged(self, header: Header, status: RunStatus) -> RunStatus:
        """A look with what failed and where; where that is hopeless, the run is closed, and it is looked at again."""
        run, settings = header.run, self._ledger.settings
        living = self._heartbeats.living(header.code_version)
        found = judge(header.evaluator, counts := self._failures.counts(run), status, living)
        fails = found.fails
        if found.unserved or status.unserved:
            seconds = self._failures.mark_unserved(run, found.unserved)
            if found.unserved and seconds >= settings.unserved_seconds:
                why = "; ".join(found.trouble)
                fails = fails or f"no living worker could compute it for {settings.unserved_seconds:g} s: {why}"
        if fails:
            self._ledger.close(run, "failed", fails)
            status = self._ledger.poll(run)
        elif status.refused and living:
            # At once where some living worker has not said that it cannot read the input: it may have just come.
            offered = self._failures.offer(run, at_once=not living.keys() <= counts.unread)
            self._broker.publish(header.queue, run, status.progress.epoch, offered)
        return msgspec.structs.replace(status, trouble=found.trouble, unserved=found.unserved)


def _missing(status: RunStatus) -> str:
    """What the server has lost of a plan that its workers cannot do without; empty for nothing."""
    progress = status.progress
    if progress.chunks < progress.planned:
        return f"{progress.planned - progress.chunks} of its chunks"
    return "" if status.keyed or progress.complete else "the key of its chunks"
