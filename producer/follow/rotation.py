"""Where a log's bytes went when it was rotated: renamed or copied beside itself, by number or by date."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from evalq.evalcore.errors import InputChanged
from evalq.producer.follow.segment import FileSeen, Segment, opened

__all__ = ["PACKED", "find", "refuse_passed_over", "rotated", "rotated_later", "seen_beside", "stat"]

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


def seen_beside(log: Path) -> list[FileSeen]:
    """What `Segment.beside` keeps of the files that rotation has left beside the log. None of them is opened."""
    return [FileSeen.of(found) for path in rotated(log) if (found := stat(path)) is not None]


def rotated(log: Path) -> list[Path]:
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
        # A packed one tells nothing: it may be what packing made of a file that was read.
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
        return (Path(entry.path) for entry in list(os.scandir(folder)) if entry.is_file())
    except OSError:
        return iter(())


def stat(path: Path) -> os.stat_result | None:
    """What the system says of the file at ``path``; None where there is none to be seen."""
    try:
        return path.stat()
    except OSError:
        return None
