"""RabbitMQ carries the messages, and dies."""

from __future__ import annotations

import random
import time

from tests.chaos.faults.base import Fault, Stage, register
from tests.integration import rabbitmq


@register
class RabbitRestarted(Fault):
    """SIGKILL to the node; it is started again after a while, with what it had or without."""

    name = "restart RabbitMQ"
    naive = False
    on_rabbit = True
    weight = 1

    def lacks(self) -> str:
        """The server."""
        return rabbitmq.unavailable()

    def prepare(self, stage: Stage, rng: random.Random) -> None:
        """All of the run has it as its broker."""
        stage.use_rabbit()

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """Down at once; begins to start after up to three seconds."""
        node, away, forgets, began = stage.use_rabbit(), rng.random() * 3.0, rng.random() < 0.5, time.monotonic()
        node.kill()
        if forgets:
            node.forget()
        stage.hurt(self.name)
        stage.later(lambda: time.monotonic() - began > away, node.start)
        return True
