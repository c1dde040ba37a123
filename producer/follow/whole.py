"""All that was read of a followed log, once more, as one stream."""

from __future__ import annotations

import contextlib
import io
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

from evalq.evalcore.errors import InputChanged
from evalq.evalcore.files import open_raw
from evalq.producer.follow.segment import Segment

__all__ = ["Whole", "reopened"]


def reopened(segment: Segment, where: Callable[[], Path], settling: Sequence[float]) -> BinaryIO:
    """The file of a segment, wherever a rotation has it by now: ``where`` says that, and may say so a moment too early.

    Raises what ``where`` raises when it is still so after the pauses of ``settling``.
    """
    for pause in settling:
        with contextlib.suppress(InputChanged, FileNotFoundError):
            stream = open_raw(where())
            if segment.difference(stream) is None:
                return stream
            stream.close()
        time.sleep(pause)
    return open_raw(where())


class Whole(io.RawIOBase):
    """The first ``end`` bytes of ``files``, each given as (how it is opened, how many bytes count), in order.

    One that is copied away and emptied while it is read is opened again. ``counted`` is told of all bytes read.
    """

    def __init__(
        self, files: Sequence[tuple[Callable[[], BinaryIO], int]], end: int, counted: Callable[[int], None]
    ) -> None:
        self._files = list(files)
        self._starts = [0, *accumulate(length for _, length in files)]
        self._end = min(end, self._starts[-1])
        self._at = 0
        self._open: tuple[int, BinaryIO] | None = None
        self._counted = counted

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte."""
        self._at = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._end}[whence] + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        """The next bytes, of one file at a time; 0 at the end, or where a file has become shorter."""
        if self._at >= self._end:
            return 0
        index = bisect_right(self._starts, self._at) - 1
        stop = min(self._end, self._starts[index + 1], self._at + len(buffer))
        data = self._read(index, stop) or self._read(index, stop, again=True)
        buffer[: len(data)] = data
        self._at += len(data)
        self._counted(len(data))
        return len(data)

    def close(self) -> None:
        """Let go of the file at hand."""
        self._let_go()
        super().close()

    def _read(self, index: int, stop: int, *, again: bool = False) -> bytes:
        if again or self._open is None or self._open[0] != index:
            self._let_go()
            self._open = index, self._files[index][0]()
        stream = self._open[1]
        stream.seek(self._at - self._starts[index])
        return stream.read(stop - self._at)

    def _let_go(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None
