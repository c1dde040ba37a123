"""The lines of a big file by their number: where they begin is noted as far as anybody has read, and every 256th alone.

So a file of millions of lines is opened at once, and what is noted of it takes 30 kB a million.
"""

from __future__ import annotations

import os
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from evalq.evalcore.files import open_input

__all__ = ["LONGEST", "Lines", "LinesOf"]

LONGEST = 1 << 22
"""A longer line is not held in memory: it is passed on as far as this goes."""
_STEP = 256
_FILES = 32

_Identity = tuple[int, int, int, int]


class Lines:
    """Where the lines of one file begin. For many threads at a time."""

    def __init__(self) -> None:
        self._marks = array("Q", [0])
        self._adding = threading.Lock()
        self.total: int | None = None
        """How many there are, once somebody has read to the end."""

    def read(self, stream: BufferedReader, first: int) -> Iterator[tuple[int, bytes]]:
        """(number, line) from number ``first`` on, counted from 0; of an overlong line its beginning."""
        at = min(first // _STEP, len(self._marks) - 1)
        stream.seek(self._marks[at])
        number = at * _STEP
        while line := stream.readline(LONGEST):
            if len(line) == LONGEST and not line.endswith(b"\n"):
                _pass_over(stream)
            if number >= first:
                yield number, line
            number += 1
            if number % _STEP == 0:
                self._mark(number, stream.tell())
        self.total = number

    def _mark(self, number: int, place: int) -> None:
        with self._adding:
            if number // _STEP == len(self._marks):
                self._marks.append(place)


class LinesOf:
    """The `Lines` of the files that were looked at last: a file that was written anew is another one."""

    def __init__(self) -> None:
        self._known: OrderedDict[_Identity, Lines] = OrderedDict()
        self._changing = threading.Lock()

    def open(self, path: Path) -> tuple[BufferedReader, Lines]:
        """The file at ``path``, to be closed, and what is known of its lines. Raises OSError."""
        stream = open_input(path)
        found = os.fstat(stream.fileno())
        identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        with self._changing:
            lines = self._known.setdefault(identity, Lines())
            self._known.move_to_end(identity)
            while len(self._known) > _FILES:
                self._known.popitem(last=False)
        return stream, lines


def _pass_over(stream: BufferedReader) -> None:
    """Up to the end of a line, in pieces."""
    while (piece := stream.readline(1 << 20)) and not piece.endswith(b"\n"):
        pass
