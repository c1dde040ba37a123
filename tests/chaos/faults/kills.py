"""Processes that die or stand still."""

from __future__ import annotations

import os
import random
import signal
import time

from tests.chaos.faults.base import Fault, Stage, register
from tests.chaos.ledger_view import LedgerView
from tests.chaos.processes import Group


@register
class PoolChild(Fault):
    """SIGKILL to one pool process."""

    name = "kill pool process"

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """Of any worker that has one."""
        children = [(worker, child) for worker in stage.workers() for child in worker.children()]
        if not children:
            return False
        worker, child = rng.choice(children)
        held = stage.view.held(worker.pid)
        os.kill(child, signal.SIGKILL)
        stage.hurt(self.name, held)
        return True


class _WorkerKill(Fault):
    """SIGKILL to one worker, or to a part of it."""

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """One that has a pool by now."""
        workers = [worker for worker in stage.workers() if worker.children()]
        if not workers:
            return False
        worker = rng.choice(workers)
        held = stage.view.held(worker.pid)
        self.kill(worker)
        stage.hurt(self.name, held)
        return True

    def kill(self, worker: Group) -> None:
        """As much of it as this fault is about."""
        raise NotImplementedError


@register
class WorkerMain(_WorkerKill):
    """SIGKILL to a worker's main process alone; its pool processes are orphans."""

    name = "kill worker main process"

    def kill(self, worker: Group) -> None:
        """Its main process."""
        worker.kill_main()


@register
class WorkerGroup(_WorkerKill):
    """SIGKILL to all processes of a worker, as a host that goes down does."""

    name = "kill worker group"

    def kill(self, worker: Group) -> None:
        """All of it."""
        worker.kill()


@register
class Producer(Fault):
    """SIGKILL to the producer; the stage resumes the run from its folder."""

    name = "kill producer"

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """If it still lives."""
        producer = stage.producer()
        if producer is None:
            return False
        producer.kill()
        stage.hurt(self.name)
        return True


@register
class Frozen(Fault):
    """SIGSTOP to a worker for longer than its leases live, then SIGCONT: it commits what others have computed since."""

    name = "stop worker past its leases"
    sweeps = False

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """One that holds a chunk, so that it comes back late with an answer."""
        busy = [(worker, held) for worker in stage.workers() if (held := stage.view.held(worker.pid))]
        if not busy:
            return False
        worker, held = rng.choice(busy)
        worker.stopped = True
        worker.signal(signal.SIGSTOP)
        stage.hurt(self.name, held)
        began = time.monotonic()

        def overdue() -> bool:
            view = stage.view
            if isinstance(view, LedgerView):
                return view.expired(held)
            return time.monotonic() - began > stage.lease_seconds

        def wake() -> None:
            worker.stopped = False
            worker.signal(signal.SIGCONT)

        stage.later(overdue, wake)
        return True
