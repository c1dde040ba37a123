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
            # Another such fault may have cut it shorter since; made longer, it would be no log.
            os.truncate(path, min(size, path.stat().st_size))
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


@register
class Promoted(Fault):
    """A failover: a replica that lags is promoted and answers at the address of its dead primary."""

    name = "promote a lagging replica"
    naive = False

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """What the primary takes in the last moments, up to a second, is lost with it."""
        replica = stage.server.start_replica()
        lag, state = rng.uniform(0.02, 1.0), {"since": 0.0}

        def follows() -> bool:
            return replica.follows()

        def fall_behind() -> None:
            replica.stop_following()
            state["since"] = time.monotonic()
            stage.later(lambda: time.monotonic() - state["since"] > lag, promote)

        def promote() -> None:
            replica.take_over()
            stage.hurt(self.name)

        stage.later(follows, fall_behind, at_the_end=False)
        return True


@register
class Evicted(Fault):
    """One of the run's keys, or of those that list runs and sweeps, is gone, as a server that evicts would have it."""

    name = "evict one key"
    naive = False

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """Any of them, alone."""
        client = stage.server.client
        keys = [*client.scan_iter("evalq:run:*"), *client.scan_iter("evalq:sweep:*")]
        keys += [key for key in (b"evalq:runs", b"evalq:sweeps") if client.exists(key)]
        if not keys:
            return False
        client.delete(rng.choice(sorted(keys)))
        stage.hurt(self.name)
        return True


@register
class Refusing(Fault):
    """The server answers errors for a while: it lacks replicas, is full, is a replica itself, or is busy."""

    name = "server refuses"
    naive = False

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """For up to three seconds."""
        client, began, away = stage.server.client, time.monotonic(), rng.uniform(0.3, 3.0)
        kind = rng.choice(("NOREPLICAS", "OOM", "READONLY"))
        if kind == "NOREPLICAS":
            client.config_set("min-replicas-to-write", 1)
        elif kind == "OOM":
            client.config_set("maxmemory", 1)
        else:
            client.replicaof("127.0.0.1", 1)
        stage.hurt(self.name)

        def relent() -> None:
            client.config_set("min-replicas-to-write", 0)
            client.config_set("maxmemory", 0)
            client.replicaof("NO", "ONE")

        stage.later(lambda: time.monotonic() - began > away, relent)
        return True
