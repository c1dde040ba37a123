"""The server dies, forgets, or comes back older than it was."""

from __future__ import annotations

import os
import random
import time

from tests.chaos.faults.base import Fault, Stage, register


class _Restarted(Fault):
    """SIGKILL to the server, which stays away for a while."""

    longest = 3.0

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """Down at once, up after up to ``longest`` seconds."""
        away, began = rng.random() * self.longest, time.monotonic()
        stage.server.kill()
        stage.hurt(self.name)
        stage.later(lambda: time.monotonic() - began > away, stage.server.start)
        return True


@register
class ServerKept(_Restarted):
    """A restart that finds all it had in the append-only file."""

    name = "restart server, data kept"
    needs_aof = ("everysec", "always")


@register
class ServerLost(_Restarted):
    """A restart that finds nothing: the run must be restored from its folder."""

    name = "restart server, data lost"
    needs_aof = ("no",)


@register
class ServerRolledBack(Fault):
    """Power lost under appendfsync everysec: the end of the append-only file never came to the disk."""

    name = "restart server, last second lost"
    needs_aof = ("everysec",)

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """Remember the file's size, let some chunks be committed, then kill, cut the file and start again."""
        path, size = stage.server.log_size()
        before, more, began = stage.view.sample().committed, rng.randint(1, 20), time.monotonic()

        def roll_back() -> None:
            stage.server.kill()
            os.truncate(path, size)
            stage.hurt(self.name)
            stage.server.start()

        def ready() -> bool:
            return stage.view.sample().committed >= before + more or time.monotonic() - began > 0.9

        stage.later(ready, roll_back, at_the_end=False)
        return True


@register
class Flushed(Fault):
    """FLUSHDB in mid-run."""

    name = "FLUSHDB"

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """At once."""
        stage.server.client.flushdb()
        stage.hurt(self.name)
        return True
