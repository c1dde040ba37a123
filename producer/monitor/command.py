"""The command of this process: when it began, and its standard error where nobody may read it any more."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterator
from typing import IO, Any, TextIO, cast

_noted: list[float] = []


@contextlib.contextmanager
def command_running() -> Iterator[None]:
    """A command begins, and goes on for the length of the block."""
    _noted.append(time.monotonic())
    try:
        yield
    finally:
        _noted.pop()


def command_began() -> float:
    """When it did, by the monotonic clock, for the first that asks in a command.

    Now for all others, as the later runs of a suite, and where no command goes on, as in a program that calls evalq.
    """
    now = time.monotonic()
    if not _noted:
        return now
    first, _noted[-1] = _noted[-1], math.inf
    return min(first, now)


# Standard error where nobody may read it any more.


class _LenientStream:
    """A stream that takes all that is written to it, whatever becomes of that: its disk is full, or its reader gone."""

    def __init__(self, stream: IO[Any]) -> None:
        self._stream = stream

    @property
    def buffer(self) -> _LenientStream:
        """What click writes to where the stream is for ASCII alone."""
        return _LenientStream(cast("TextIO", self._stream).buffer)

    def write(self, text: Any) -> int:
        """All of it."""
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """As far as that goes."""
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def ignore_write_errors() -> Iterator[None]:
    """A block in which standard error that cannot be written fails nothing: notes, warnings and bars are no result."""
    before = sys.stderr
    sys.stderr = cast("TextIO", _LenientStream(before))
    try:
        yield
    finally:
        sys.stderr = before
