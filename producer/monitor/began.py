"""When this command began: what it waits for is told within seconds of that, however long it took to start."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator

__all__ = ["began", "beginning"]

_noted: list[float] = []


@contextlib.contextmanager
def beginning() -> Iterator[None]:
    """A command begins, and goes on for the length of the block."""
    _noted.append(time.monotonic())
    try:
        yield
    finally:
        _noted.pop()


def began() -> float:
    """When it did, by the monotonic clock, for the first that asks in a command.

    Now for all others, as the later runs of a suite, and where no command goes on, as in a program that calls evalq.
    """
    now = time.monotonic()
    if not _noted:
        return now
    first, _noted[-1] = _noted[-1], math.inf
    return min(first, now)
