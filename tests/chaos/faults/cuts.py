"""Hosts that are cut from the network and come back: packets are dropped, and no side learns of it."""

from __future__ import annotations

import random
import time

from tests.chaos.faults.base import Fault, Stage, register
from tests.chaos.ledger_view import LedgerView
from tests.chaos.network import Network


def _cut(stage: Stage, net: Network, host: str, fault: str, held: set[int], seconds: float) -> None:
    net.cut(host)
    stage.hurt(fault, held)
    began, view = time.monotonic(), stage.view

    def due() -> bool:
        over = time.monotonic() - began > seconds
        return over and (not isinstance(view, LedgerView) or view.expired(held))

    stage.later(due, lambda: net.heal(host))


@register
class WorkerCut(Fault):
    """One worker's host is cut until its leases are over, and healed."""

    name = "cut worker's link"
    sweeps = False
    needs_network = True
    beside_rabbit = False
    weight = 1

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """One that is computing."""
        busy = [(worker, held) for worker in stage.workers() if (held := stage.view.held(worker.pid))]
        if not busy or stage.net is None:
            return False
        worker, held = rng.choice(busy)
        _cut(stage, stage.net, worker.host, self.name, held, rng.uniform(1, 8))
        return True


@register
class ProducerCut(Fault):
    """The producer's host is cut for some seconds; the workers publish on without it."""

    name = "cut producer's link"
    sweeps = False
    needs_network = True
    beside_rabbit = False
    weight = 1

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """If it lives."""
        producer = stage.producer()
        if producer is None or stage.net is None:
            return False
        _cut(stage, stage.net, producer.host, self.name, set(), rng.uniform(1, 8))
        return True


@register
class CutOverRestart(Fault):
    """A worker's link is down while the server restarts: its connections are dead, and nothing has told it so."""

    name = "server restarts while a worker is cut"
    sweeps = False
    needs_network = True
    beside_rabbit = False
    weight = 1

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """Cut, kill, start again, heal; also a worker that only waits for messages must notice."""
        workers = stage.workers()
        if not workers or stage.net is None:
            return False
        worker, net = rng.choice(workers), stage.net
        net.cut(worker.host)
        stage.server.kill()
        stage.hurt(self.name)
        stage.server.start()
        began, seconds = time.monotonic(), rng.uniform(1, 5)
        stage.later(lambda: time.monotonic() - began > seconds, lambda: net.heal(worker.host))
        return True
