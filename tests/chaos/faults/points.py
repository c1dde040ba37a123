"""Kills exactly between two steps, by the kill points of tests/chaos/hooks."""

from __future__ import annotations

import random
from typing import ClassVar

from tests.chaos.faults.base import Fault, Stage, register


class _Point(Fault):
    """A process kills itself at one of ``points`` when it next comes there."""

    by_progress = True
    points: ClassVar[tuple[str, ...]]
    role: ClassVar[str]
    may_take_group: ClassVar[bool] = False

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """Arm it; the recovery is measured from the moment it fires."""
        whom = rng.choice(("self", "group")) if self.may_take_group else "self"
        return self.armed(stage, stage.arm(rng.choice(self.points), self.role, whom))


@register
class ComputedNotCommitted(_Point):
    """Between computing and committing: the work is lost, the chunk must not be."""

    name = "kill between compute and commit"
    sweeps = False
    points = ("computed",)
    role = "pool"
    may_take_group = True


@register
class CommittedNotAcknowledged(_Point):
    """Between committing and acknowledging: the message comes again, the chunk must not count again."""

    name = "kill between commit and ack"
    sweeps = False
    points = ("committed",)
    role = "pool"
    may_take_group = True


@register
class Finalising(_Point):
    """The producer, while it folds, writes or closes."""

    name = "kill in finalise"
    points = (
        "collected",
        "closed",
        "folding",
        "folded",
        "writing-results.yaml",
        "writing-report.json",
        "written-report.json",
        "finished",
    )
    role = "producer"
    naive = False


@register
class ProducerMidStep(_Point):
    """The producer, between two steps that belong together."""

    name = "kill producer in mid-step"
    sweeps = False
    points = ("taken", "synced", "trimmed", "marked")
    role = "producer"
    naive = False


@register
class ReconcilerMidStep(Fault):
    """The worker that holds the reconciler's lock, when it has marked messages as sent and has not sent them yet."""

    name = "kill reconciler in mid-step"
    by_progress = True
    sweeps = False
    naive = False

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """The producer is killed too, so that it is the worker who must reconcile; and a message is lost."""
        producer = stage.producer()
        if producer is None or not stage.view.queue():
            return False
        fired = stage.arm(rng.choice(("marked", "taken")), "worker", "self")
        stage.server.client.lpop(stage.view.queue())
        producer.kill()
        stage.hurt("kill producer")
        stage.later(fired, lambda: stage.hurt(self.name), at_the_end=False)
        return True
