"""When this command began: what it waits for is told within seconds of that, however long it took to start."""

from __future__ import annotations

import contextlib
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
    """When it did, by the monotonic clock; now, where no command goes on, as in a program that calls evalq."""
    return _noted[-1] if _noted else time.monotonic()
