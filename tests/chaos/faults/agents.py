"""The agent that is called dies, and the process that calls it."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from tests.chaos.faults.base import Fault, Stage, register


@register
class AgentAway(Fault):
    """The agent's server dies and comes back: what was in flight failed, and is tried again."""

    name = "agent away"
    naive = False
    runs = False

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """For up to three seconds."""
        stage.kill_agent()
        stage.hurt(self.name)
        began, away = time.monotonic(), rng.random() * 3
        stage.later(lambda: time.monotonic() - began > away, stage.revive_agent)
        return True


@register
class CallerKilled(Fault):
    """SIGKILL to the process that calls, beside a worker's pool; the worker starts another."""

    name = "kill process that calls"
    naive = False
    runs = False

    def strike(self, stage: Stage, rng: random.Random) -> bool:
        """Of any worker that has one."""
        callers = [pid for worker in stage.workers() for pid in worker.children() if _calls(pid)]
        if not callers:
            return False
        os.kill(rng.choice(callers), signal.SIGKILL)
        stage.hurt(self.name)
        return True


def _calls(pid: int) -> bool:
    try:
        messages = [Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "comm")]  # a forked one has a name
    except OSError:
        return False
    return any(b"callers.main" in words for words in messages)
