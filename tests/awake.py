"""A clock for upper bounds: it stands still while the machine gives this process no core."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

__all__ = ["awake"]

_TICK = 0.01


@contextlib.contextmanager
def awake() -> Iterator[Callable[[], float]]:
    """For the length of a block, the seconds in which this process could run, as a function.

    A thread ticks; a tick that comes late by more than one counts as two. So what waits is seen to wait, and a process
    that was stopped, or starved by others, is not. What computes is seen by its own CPU time better.
    """
    ended, seconds = threading.Event(), [0.0]

    def tick() -> None:
        before = time.monotonic()
        while not ended.wait(_TICK):
            now = time.monotonic()
            seconds[0] += min(now - before, 2 * _TICK)
            before = now

    thread = threading.Thread(target=tick, name="awake", daemon=True)
    thread.start()
    try:
        yield lambda: seconds[0]
    finally:
        ended.set()
        thread.join()
