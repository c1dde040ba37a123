"""Somebody sets a clock: the server's, a worker's or the producer's, forward or back, by seconds or by days."""

from __future__ import annotations

import random

from tests.chaos import clocks
from tests.chaos.faults.base import Fault, Stage, register

STEPS = (2.0, 30.0, 600.0, 3600.0, 86400.0)
"""From a little less than a lease to a day."""


class _Stepped(Fault):
    naive = False

    def lacks(self) -> str:
        """A C compiler."""
        return clocks.unavailable()

    def prepare(self, stage: Stage, rng: random.Random) -> None:
        """Everything gets a clock that can be set."""
        stage.give_clocks()

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """At once, and for good."""
        name = self.whose(stage, rng)
        if not name:
            return False
        stage.clock(name).step(rng.choice((-1, 1)) * rng.choice(STEPS))
        stage.hurt(self.name)
        return True

    def whose(self, stage: Stage, rng: random.Random) -> str:
        """The name of the clock; empty when there is nobody to have it."""
        raise NotImplementedError


@register
class ServerStepped(_Stepped):
    """The server's, by which leases and lives are measured."""

    name = "step the server's clock"

    def whose(self, stage: Stage, rng: random.Random) -> str:
        """It is always there."""
        return "server"


@register
class WorkerStepped(_Stepped):
    """A worker's, with its pool, callers and finaliser."""

    name = "step a worker's clock"

    def whose(self, stage: Stage, rng: random.Random) -> str:
        """Any that lives."""
        workers = stage.workers()
        return rng.choice(workers).name if workers else ""


@register
class ProducerStepped(_Stepped):
    """The producer's; its next start finds it as it is then."""

    name = "step the producer's clock"

    def whose(self, stage: Stage, rng: random.Random) -> str:
        """While it lives."""
        producer = stage.producer()
        return producer.name if producer else ""
