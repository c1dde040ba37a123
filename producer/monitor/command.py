"""The command of this process: when it began, and a standard error that ignores write errors."""

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
    """A block in which a command runs."""
    _noted.append(time.monotonic())
    try:
        yield
    finally:
        _noted.pop()


def command_began() -> float:
    """The start of the command on the monotonic clock, for the first call in a command.

    The current time for later calls (other runs of a suite), and without a command (a program that calls evalq).
    """
    now = time.monotonic()
    if not _noted:
        return now
    first, _noted[-1] = _noted[-1], math.inf
    return min(first, now)


# Standard error that may be closed or on a full disk.


class _LenientStream:
    """A stream that ignores write errors, such as a full disk or a closed pipe."""

    def __init__(self, stream: IO[Any]) -> None:
        self._stream = stream

    @property
    def buffer(self) -> _LenientStream:
        """The buffer, which click writes to if the stream is ASCII."""
        return _LenientStream(cast("TextIO", self._stream).buffer)

    def write(self, text: Any) -> int:
        """Write ``text``, or ignore the error."""
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or ignore the error."""
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def ignore_write_errors() -> Iterator[None]:
    """A block in which errors of standard error are ignored: notes, warnings and bars are no results."""
    before = sys.stderr
    sys.stderr = cast("TextIO", _LenientStream(before))
    try:
        yield
    finally:
        sys.stderr = before
