"""Standard error where nobody may read it any more."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import IO, Any, TextIO, cast

__all__ = ["unfailing"]


class _Unfailing:
    """A stream that takes all that is written to it, whatever becomes of that: its disk is full, or its reader gone."""

    def __init__(self, stream: IO[Any]) -> None:
        self._stream = stream

    @property
    def buffer(self) -> _Unfailing:
        """What click writes to where the stream is for ASCII alone."""
        return _Unfailing(cast("TextIO", self._stream).buffer)

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
def unfailing() -> Iterator[None]:
    """A block in which standard error that cannot be written fails nothing: notes, warnings and bars are no result."""
    before = sys.stderr
    sys.stderr = cast("TextIO", _Unfailing(before))
    try:
        yield
    finally:
        sys.stderr = before
