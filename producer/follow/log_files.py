"""The files of a followed log: how far each was read, how to know it again, and where rotation has renamed it to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from evalq.evalcore.errors import InputChanged, InputError
from evalq.evalcore.files import open_raw
from evalq.evalcore.naming import is_text

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
    begins on. ``beside`` are the files that rotation had left before it was begun: one that comes while it is still the
    log may be its copy. It is None for one that is done with.
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
        return cls(found.st_dev, found.st_ino, _utf8_path(path), first_line, beside=beside)

    def become(self, stream: BinaryIO, path: Path) -> None:
        """Be another file that holds the same bytes. Raises InputError for a path that cannot be kept."""
        found = os.fstat(stream.fileno())
        self.device, self.inode, self.path = found.st_dev, found.st_ino, _utf8_path(path)

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


def _utf8_path(path: Path) -> str:
    if not is_text(str(path)):
        raise InputError("an input cannot be read", [(ascii(str(path)), "its path is not text in UTF-8: rename it")])
    return str(path)


def begins_with(stream: BinaryIO, part: BinaryIO) -> bool:
    """Whether ``stream`` begins with all of ``part``, as far as both ends of that can tell."""
    size = os.fstat(part.fileno()).st_size
    return all(
        os.pread(stream.fileno(), min(size, PRINT_BYTES), at) == os.pread(part.fileno(), min(size, PRINT_BYTES), at)
        for at in (0, max(0, size - PRINT_BYTES))
    )


def opened(path: Path) -> BinaryIO | None:
    """The file at ``path``, unbuffered; None where there is none. Raises InputError where it cannot be read."""
    try:
        return open_raw(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError("an input cannot be read", [(str(path), error.strerror or str(error))]) from error


# Where a log's bytes went when it was rotated: renamed beside itself, by number or by date.

_NUMBER = re.compile(r"\.([0-9]{1,4})")
_DATE = re.compile(r"[.-]([0-9]{4}[0-9TZ:_.-]{2,})")
PACKED = (".gz", ".zst", ".bz2", ".xz")
"""Endings of what packing makes of a rotated file."""


def find(log: Path, segment: Segment) -> Path | None:
    """Where the very file of ``segment`` is now: as the log, where it was seen, or beside either under any name."""
    # A rename keeps device and inode, so the file is known again whatever it is called now.
    known = Path(segment.path)
    near = dict.fromkeys((log, known))
    beside = (entry for folder in dict.fromkeys(path.parent for path in near) for entry in _files(folder))
    return next((path for path in (*near, *beside) if segment.is_file(stat(path))), None)


def locate(log: Path, segment: Segment) -> Path | None:
    """The very file of ``segment``, while it holds what was read of it."""
    path = find(log, segment)
    stream = opened(path) if path else None
    if stream is None:
        return None
    with stream:
        return path if segment.difference(stream) is None else None


def stands(log: Path, segment: Segment) -> bool:
    """Whether the very file of ``segment`` is the log, and was not emptied since it was begun."""
    stream = opened(log) if segment.is_file(stat(log)) else None
    if stream is None:
        return False
    with stream:
        return segment.difference(stream) is None and came_beside(log, segment, (segment,)) is None


def came_beside(log: Path, segment: Segment, known: Sequence[Segment]) -> Path | None:
    """A file that came beside the log, under a name of rotation, since ``segment``, the log's own file, was begun.

    ``known`` are the files that were read. No other is opened: it may be another user's.
    """
    for path in _rotated(log):
        found = stat(path)
        if found is None or path.suffix in PACKED or segment.is_file(found):
            continue
        # One that was read may have got more lines since: its writer held it a moment longer.
        if FileSeen.of(found) not in (segment.beside or ()) and not _was_read(path, found, known):
            return path
    return None


def seen_beside(log: Path) -> list[FileSeen]:
    """What `Segment.beside` keeps of the files that rotation has left beside the log. None of them is opened."""
    return [FileSeen.of(found) for path in _rotated(log) if (found := stat(path)) is not None]


def _rotated(log: Path) -> list[Path]:
    """Files that rotation has left beside the log, the one that was rotated away first before the others."""
    ages = []
    for path in _files(log.parent):
        if number := _unpacked(_suffix(log, path, _NUMBER)):
            ages.append((-int(number), "", path))
        elif date := _suffix(log, path, _DATE):
            ages.append((0, date, path))
    return [path for _, _, path in sorted(ages)]


def rotated_later(log: Path, path: Path) -> Path | None:
    """The file that the log was next rotated away to after ``path``; None where the log itself comes next.

    Raises InputChanged when it is not there any more, or packed.
    """
    if number := _suffix(log, path, _NUMBER):
        # Some programs number from 0, logrotate from 1 (`start`).
        lowest = 0 if _numbered(log, 0).exists() else 1
        later = [_numbered(log, int(number) - 1)] if int(number) > lowest else []
    elif date := _suffix(log, path, _DATE):
        # The last one with a date wins in the dict: a plain file over a packed one of the same date.
        plain_last = sorted(_files(log.parent), key=lambda other: other.suffix not in PACKED)
        dates = {own: other for other in plain_last if (own := _unpacked(_suffix(log, other, _DATE))) > date}
        later = [dates[min(dates)]] if dates else []
    else:
        later = []
    for found in later:
        if not found.is_file() or found.suffix in PACKED:
            reason = (
                "rotated away after the last pass, and packed or removed before it was read: keep rotated files plain "
                "for a while (logrotate: delaycompress), or begin anew in another --run-dir"
            )
            raise InputChanged("a part of the log is missing", [(str(found), reason)])
        return found
    return None


def refuse_passed_over(log: Path, moment: int, known: Sequence[Segment]) -> None:
    """Raise InputChanged where the file that was read last is gone, and the log was rotated away to another one since.

    ``moment`` (in ns) is when the one that is gone was written to last, ``known`` are the files that were read.
    """
    for path in sorted(path for path in _files(log.parent) if _suffix(log, path, _NUMBER, _DATE)):
        found = stat(path)
        # A packed file proves nothing: it may be the packed form of a file that was read already.
        if found is None or path.suffix in PACKED or found.st_mtime_ns <= moment:
            continue
        if not _was_read(path, found, known):
            reason = (
                "rotated away after the file that was read last, which is gone: whether others came between the two "
                "cannot be known; keep more rotated files (logrotate: rotate), or look more often (--every), and "
                "begin anew in another --run-dir"
            )
            raise InputChanged("a part of the log is missing", [(str(path), reason)])


def _was_read(path: Path, found: os.stat_result, known: Sequence[Segment]) -> bool:
    """Whether it is one of ``known``: by its bytes too, since numbers of removed files are given again."""
    same = [segment for segment in known if segment.is_file(found)]
    stream = opened(path) if same else None
    if stream is None:
        return False
    with stream:
        return any(segment.difference(stream) is None for segment in same)


def _numbered(log: Path, number: int) -> Path:
    return log.with_name(f"{log.name}.{number}")


def _suffix(log: Path, path: Path, *kinds: re.Pattern[str]) -> str:
    """The number or date that ``path`` has behind the log's name, with the ending of its packing; else empty."""
    if path.parent != log.parent or not path.name.startswith(log.name):
        return ""
    rest = path.name[len(log.name) :]
    matches = (kind.fullmatch(_unpacked(rest)) for kind in kinds)
    return next((match[1] + rest[match.end() :] for match in matches if match), "")


def _unpacked(name: str) -> str:
    return next((name.removesuffix(ending) for ending in PACKED if name.endswith(ending)), name)


def _files(folder: Path) -> Iterator[Path]:
    try:
        # Not `entry.is_file()`: a link that leads to itself would raise.
        return (Path(entry.path) for entry in list(os.scandir(folder)) if os.path.isfile(entry.path))
    except OSError:
        return iter(())


def stat(path: Path) -> os.stat_result | None:
    """What the system says of the file at ``path``; None where there is none to be seen."""
    try:
        return path.stat()
    except OSError:
        return None
