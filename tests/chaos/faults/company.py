"""More than one of something: producers of one key, and a worker that cannot do what the others can."""

from __future__ import annotations

import random

from tests.chaos.faults.base import Fault, Stage, register


@register
class Twin(Fault):
    """The same command again, in another folder, while the first one drives the run: it watches, and ends alike."""

    name = "second producer"
    naive = False

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """At once."""
        stage.add_twin()
        stage.hurt(self.name)
        return True


@register
class OtherPlan(Fault):
    """The same key with chunks of another size: another run, with the same report."""

    name = "second producer, other chunk size"
    naive = False
    sweeps = False
    weight = 1

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """Chunks two to four times as large, so that it ends in time."""
        stage.add_twin(max(1, stage.subject.records // rng.randint(20, 60)))
        stage.hurt(self.name)
        return True


@register
class Sick(Fault):
    """A worker joins on a host where the evaluator cannot be imported; the others have to do its share."""

    name = "worker that cannot load the evaluator"
    naive = False

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """At once; it lives until the end."""
        stage.add_sick_worker()
        stage.hurt(self.name)
        return True
