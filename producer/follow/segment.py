"""One file of a followed log: which file it is, how far it was read, and how to know it again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from evalq.evalcore.errors import InputError
from evalq.evalcore.files import open_raw
from evalq.evalcore.naming import is_text

__all__ = ["PRINT_BYTES", "FileSeen", "Segment", "opened"]

PRINT_BYTES = 1024
"""How much of a file's beginning, and of what stands before the last position, is kept to know it again."""


class FileSeen(NamedTuple):
    """A file as it was: numbers of removed ones are given again, seldom to one of that size and time."""

    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> FileSeen:
        """The file that the system says this of."""
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


class Segment(msgspec.Struct):
    """``length`` bytes of a file were taken in; ``head`` and ``tail`` are the first and the last of them.

    ``device`` and ``inode`` are the file, ``path`` is where it was seen, ``first_line`` the line of the whole it
    begins on. ``beside`` are the files that rotation had left before it was begun: what came since may be its copy. It
    is None for one that is done with.
    """

    device: int
    inode: int
    path: str
    first_line: int = 1
    length: int = 0
    head: bytes = b""
    tail: bytes = b""
    beside: Sequence[FileSeen] | None = None

    @classmethod
    def of(cls, stream: BinaryIO, path: Path, first_line: int, beside: Sequence[FileSeen] | None = None) -> Segment:
        """A file of which nothing was read yet. Raises InputError for a path that cannot be kept."""
        found = os.fstat(stream.fileno())
        return cls(found.st_dev, found.st_ino, _text(path), first_line, beside=beside)

    def become(self, stream: BinaryIO, path: Path) -> None:
        """Be another file that holds the same bytes. Raises InputError for a path that cannot be kept."""
        found = os.fstat(stream.fileno())
        self.device, self.inode, self.path = found.st_dev, found.st_ino, _text(path)

    def is_file(self, found: os.stat_result | None) -> bool:
        """Whether ``found`` is this very file."""
        return found is not None and (found.st_dev, found.st_ino) == (self.device, self.inode)

    def take(self, data: bytes) -> None:
        """``data`` behind ``length`` is taken in."""
        self.length += len(data)
        if len(self.head) < PRINT_BYTES:
            self.head += data[: PRINT_BYTES - len(self.head)]
        self.tail = (self.tail + data[-PRINT_BYTES:])[-PRINT_BYTES:]

    def difference(self, stream: BinaryIO) -> int | None:
        """The first byte known to be another than was read: at the file's end, if it is too short; None for none."""
        # Both ends, not all of it: a log may have gigabytes, and whatever cuts or replaces one changes an end.
        file, start = stream.fileno(), self.length - len(self.tail)
        for expected, at in ((self.head, 0), (self.tail, start)):
            found = os.pread(file, len(expected), at)
            if found != expected:
                return at + next(
                    (n for n, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), len(found)
                )
        return None

    def line_of(self, byte: int, line: int) -> int:
        """The line that ``byte``, of the head or of the tail, stands on; the line behind the tail is ``line``."""
        start = self.length - len(self.tail)
        if byte < len(self.head):
            return self.first_line + self.head[:byte].count(b"\n")
        return line - self.tail[byte - start :].count(b"\n")


def _text(path: Path) -> str:
    if not is_text(str(path)):
        raise InputError("an input cannot be read", [(ascii(str(path)), "its path is not text in UTF-8: rename it")])
    return str(path)


def opened(path: Path) -> BinaryIO | None:
    """The file at ``path``, unbuffered; None where there is none. Raises InputError where it cannot be read."""
    try:
        return open_raw(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError("an input cannot be read", [(str(path), error.strerror or str(error))]) from error
