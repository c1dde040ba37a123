"""All that was read of a followed log, once more, as one stream."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

from evalq.evalcore.files import open_raw

__all__ = ["Whole"]


class Whole(io.RawIOBase):
    """The first ``end`` bytes of ``files``, each given as (path, how many of its bytes count), one behind the other.

    ``counted`` is told of all bytes that are read.
    """

    def __init__(self, files: Sequence[tuple[Path, int]], end: int, counted: Callable[[int], None]) -> None:
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
        stream = self._stream(index)
        stream.seek(self._at - self._starts[index])
        data = stream.read(stop - self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        self._counted(len(data))
        return len(data)

    def close(self) -> None:
        """Let go of the file at hand."""
        if self._open is not None:
            self._open[1].close()
            self._open = None
        super().close()

    def _stream(self, index: int) -> BinaryIO:
        if self._open is None or self._open[0] != index:
            if self._open is not None:
                self._open[1].close()
            self._open = index, open_raw(self._files[index][0])
        return self._open[1]
