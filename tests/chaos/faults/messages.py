"""Messages that are doubled, lost or late, done to the queue itself."""

from __future__ import annotations

import random

from tests.chaos.faults.base import Fault, Stage, register


def _waiting(stage: Stage) -> list[bytes]:
    queue = stage.view.queue()
    return list(stage.server.client.lrange(queue, 0, -1)) if queue else []


def _take_out(stage: Stage, messages: list[bytes]) -> list[bytes]:
    """Remove messages; those are returned that were still there."""
    queue = stage.view.queue()
    return [message for message in messages if stage.server.client.lrem(queue, 1, message)]


@register
class Doubled(Fault):
    """Every message that waits is in the queue once more."""

    name = "double messages"
    sweeps = False
    beside_rabbit = False

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """Copies before and behind the originals."""
        messages = _waiting(stage)
        if not messages:
            return False
        rng.shuffle(messages)
        half = len(messages) // 2
        stage.server.client.lpush(stage.view.queue(), *messages[: half + 1])
        if messages[half + 1 :]:
            stage.server.client.rpush(stage.view.queue(), *messages[half + 1 :])
        stage.hurt(self.name)
        return True


@register
class Dropped(Fault):
    """Every k-th message that waits is gone."""

    name = "drop every k-th message"
    sweeps = False
    beside_rabbit = False

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """With k from 1 (all of them) to 5."""
        taken = _take_out(stage, _waiting(stage)[:: rng.randint(1, 5)])
        if taken:
            stage.hurt(self.name)
        return bool(taken)


@register
class Late(Fault):
    """Messages are held back, the producer is killed and resumed, and they arrive in the next epoch."""

    name = "messages of an old epoch"
    sweeps = False
    beside_rabbit = False

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """Half of those that wait."""
        producer, waiting = stage.producer(), _waiting(stage)
        if producer is None or not waiting:
            return False
        taken = _take_out(stage, waiting[::2])
        epoch, queue = stage.view.sample().epoch, stage.view.queue()
        producer.kill()
        stage.hurt(self.name)

        def deliver() -> None:
            if taken:
                stage.server.client.lpush(queue, *taken)

        stage.later(lambda: stage.view.sample().epoch > epoch, deliver)
        return True
