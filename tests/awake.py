"""A clock for upper bounds: it stands still while the machine gives a process no core."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_TICK = 0.01


@contextlib.contextmanager
def awake(*others: int) -> Iterator[Callable[[], float]]:
    """For the length of a block, the seconds in which this process and ``others`` (their numbers) could run, as a
    function.

    A thread ticks; a tick that comes late by more than one counts as two. So what waits is seen to wait, and a process
    that was stopped, or starved by others, is not. What computes is seen by its own CPU time better. Of another process
    the system says how long the thread that waited longest has stood ready without a core (Linux).
    """
    ended, seconds = threading.Event(), [0.0]
    at_first = {pid: _queued(pid) for pid in others}

    def could_run() -> float:
        lost = 0.0
        for pid, first in at_first.items():
            lost += max((now - first.get(thread, 0.0) for thread, now in _queued(pid).items()), default=0.0)
        return seconds[0] - lost

    def tick() -> None:
        before = time.monotonic()
        while not ended.wait(_TICK):
            now = time.monotonic()
            seconds[0] += min(now - before, 2 * _TICK)
            before = now

    thread = threading.Thread(target=tick, name="awake", daemon=True)
    thread.start()
    try:
        yield could_run
    finally:
        ended.set()
        thread.join()


def _queued(pid: int) -> dict[str, float]:
    """How many seconds each thread of a process has stood ready without a core."""
    found = {}
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # it has ended
            found[path.parent.name] = int(path.read_text().split()[1]) / 1e9
    return found
