"""The producer's disk fails it, and processes that die at any call that changes files."""

from __future__ import annotations

import random

from tests.chaos.faults.base import Fault, Stage, register


@register
class SyncFails(Fault):
    """A sync of the producer fails with EIO or ENOSPC: it ends, and is started again."""

    name = "failing fsync"
    naive = False

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """The next one."""
        return self.armed(stage, stage.arm("fsync", "producer", rng.choice(("EIO", "ENOSPC"))))


@register
class KilledAtFileCall(Fault):
    """A producer kills itself at the n-th call that makes, syncs, renames or removes a file."""

    name = "kill at a file system call"
    naive = False

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """Among the next forty."""
        return self.armed(stage, stage.arm("fs", "producer", str(rng.randint(1, 40))))


@register
class BornKilled(Fault):
    """The producer dies while it makes its run folder, and again when it is started again."""

    name = "kill while a run folder is made"
    naive = False

    def prepare(self, stage: Stage, rng: random.Random) -> None:
        """Armed before there is a producer."""
        self.armed(stage, stage.arm("fs", "producer", str(rng.randint(1, 12))))

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """It struck when the producer began."""
        return True
