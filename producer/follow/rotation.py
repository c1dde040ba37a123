"""Where a log's bytes went when it was rotated: renamed or copied beside itself, by number or by date."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from evalq.evalcore.errors import InputChanged
from evalq.producer.follow.segment import PRINT_BYTES, FileSeen, Segment, opened

__all__ = ["find", "find_copy", "find_emptied", "locate", "refuse_passed_over", "rotated_later", "seen_beside", "stat"]

_NUMBER = re.compile(r"\.([0-9]{1,4})")
_DATE = re.compile(r"[.-]([0-9]{4}[0-9TZ:_.-]{2,})")
_PACKED = (".gz", ".zst", ".bz2", ".xz")


def find(log: Path, segment: Segment) -> Path | None:
    """Where the very file of ``segment`` is now: as the log, where it was seen, or beside either under any name."""
    # A rename keeps device and inode, so the file is known again whatever it is called now.
    known = Path(segment.path)
    near = dict.fromkeys((log, known))
    beside = (entry for folder in dict.fromkeys(path.parent for path in near) for entry in _files(folder))
    return next((path for path in (*near, *beside) if segment.is_file(stat(path))), None)


def seen_beside(log: Path) -> list[FileSeen]:
    """What `Segment.beside` keeps of the files that rotation has left beside the log."""
    return [FileSeen.of(found) for path in _rotated(log) if (found := stat(path)) is not None]


def find_copy(log: Path, segment: Segment) -> tuple[Path, BinaryIO] | None:
    """A file that rotation made beside the log and that holds what was read of ``segment``; None where there is none.

    Nothing can be told by nothing: where nothing was read there is no copy.
    """
    paths = _rotated(log) if segment.length else []
    # What holds whole lines is the file itself: the one that was rotated away last, since somebody may have copied the
    # log by hand before. Less than a line may stand in any of them.
    for path in paths if segment.beside is not None else reversed(paths):
        stream = opened(path)
        if stream is not None and segment.difference(stream) is None and not _was_there(path, segment):
            return path, stream
        if stream is not None:
            stream.close()
    return None


def find_emptied(log: Path, segment: Segment, known: Sequence[Segment]) -> tuple[Path, BinaryIO] | None:
    """Where the log was copied to before it was emptied, when what was read of ``segment`` cannot tell that it was.

    Less than a line may stand at the beginning of every file. The copy is then the first one made since the segment was
    begun, as long as the log does not begin as it does; None where there is none. ``known`` are the files that were
    read.
    """
    if segment.beside is None:
        return None
    for path in (path for path in _rotated(log) if path.suffix not in _PACKED):
        found = stat(path)
        if found is None or found.st_size <= segment.length or FileSeen.of(found) in segment.beside:
            continue
        if any(each.is_file(found) and each.length == found.st_size for each in known):
            continue
        stream = opened(path)
        if stream is not None and segment.difference(stream) is None and not _begins_as(log, stream):
            return path, stream
        if stream is not None:
            stream.close()
    return None


def locate(log: Path, segment: Segment) -> Path | None:
    """A file that holds what was read of ``segment``: the very file, or a copy that rotation made of it."""
    path = find(log, segment)
    stream = opened(path) if path else None
    if stream is not None:
        with stream:
            if segment.difference(stream) is None:
                return path
    copy = find_copy(log, segment)
    if copy is None:
        return None
    copy[1].close()
    return copy[0]


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
        plain_last = sorted(_files(log.parent), key=lambda other: other.suffix not in _PACKED)
        dates = {own: other for other in plain_last if (own := _unpacked(_suffix(log, other, _DATE))) > date}
        later = [dates[min(dates)]] if dates else []
    else:
        later = []
    for found in later:
        if not found.is_file() or found.suffix in _PACKED:
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
        # A packed one tells nothing: it may be what packing made of a file that was read.
        if found is None or path.suffix in _PACKED or found.st_mtime_ns <= moment:
            continue
        if not any(segment.is_file(found) for segment in known):
            reason = (
                "rotated away after the file that was read last, which is gone: whether others came between the two "
                "cannot be known; keep more rotated files (logrotate: rotate), or look more often (--every), and "
                "begin anew in another --run-dir"
            )
            raise InputChanged("a part of the log is missing", [(str(path), reason)])


def _rotated(log: Path) -> list[Path]:
    """Files that rotation has left beside the log, the one that was rotated away first before the others."""
    ages = []
    for path in _files(log.parent):
        if number := _unpacked(_suffix(log, path, _NUMBER)):
            ages.append((-int(number), "", path))
        elif date := _suffix(log, path, _DATE):
            ages.append((0, date, path))
    return [path for _, _, path in sorted(ages)]


def _was_there(path: Path, segment: Segment) -> bool:
    """Whether ``path`` is known to be no copy: it was there when ``segment``, of less than a line, was begun."""
    found = stat(path)
    return found is not None and FileSeen.of(found) in (segment.beside or ())


def _begins_as(log: Path, copy: BinaryIO) -> bool:
    """Whether the log still has what stands at the beginning of its copy, and so was not emptied."""
    head, stream = os.pread(copy.fileno(), PRINT_BYTES, 0), opened(log)
    if stream is None:
        return False
    with stream:
        return os.pread(stream.fileno(), len(head), 0) == head


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
    return next((name.removesuffix(ending) for ending in _PACKED if name.endswith(ending)), name)


def _files(folder: Path) -> Iterator[Path]:
    try:
        return (Path(entry.path) for entry in list(os.scandir(folder)) if entry.is_file())
    except OSError:
        return iter(())


def stat(path: Path) -> os.stat_result | None:
    """What the system says of the file at ``path``; None where there is none to be seen."""
    try:
        return path.stat()
    except OSError:
        return None
