"""Where a log was copied to before it was emptied, told by what came beside it since and what stands in that."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from evalq.producer.follow import refusals
from evalq.producer.follow.rotation import PACKED, find, rotated, stat
from evalq.producer.follow.segment import PRINT_BYTES, FileSeen, Segment, opened

__all__ = ["Copy", "find_copy", "find_emptied", "find_replaced", "holds", "locate", "stands"]


class Copy(NamedTuple):
    """A rotated file that holds what was read of a segment, opened; ``read`` where it holds all of an earlier one."""

    path: Path
    stream: BinaryIO
    read: bool = False


def find_copy(log: Path, segment: Segment, known: Sequence[Segment] = (), held: BinaryIO | None = None) -> Copy | None:
    """A file that rotation made beside the log and that holds what was read of ``segment``; None where there is none.

    ``known`` are the files that were read, ``held`` is one that the copy must hold all of. Nothing can be told by
    nothing: where nothing was read there is no copy. Raises InputChanged where two may be the first one.
    """
    if not segment.length:
        return None
    made = _made(log, segment, known)
    if segment.beside is None:
        return next(made, None)
    if held is None:
        return _first(made)
    # Another file stands behind what is held, and less than a line does not tell a copy from that.
    return _first(copy for copy in made if _kept(copy, holds(copy.stream, held))) if b"\n" in segment.head else None


def find_emptied(log: Path, segment: Segment, known: Sequence[Segment], now: BinaryIO) -> Copy | None:
    """Where the log was copied to before it was emptied, though ``now``, its file, begins with what was read of it.

    Little may stand at the beginning of every file. The copy is then the first one made since the segment was begun, as
    long as ``now`` does not begin with all of it; None where there is none. ``known`` are the files that were
    read. Raises InputChanged where two may be the first one.
    """
    return _first(_made(log, segment, known, now), now)


def find_replaced(log: Path, segment: Segment, known: Sequence[Segment], held: BinaryIO | None) -> Copy | None:
    """The log, where it is another file that holds what was read of ``segment``, whose own one is gone; else None.

    Of ``held``, the file that is gone, it must have what is unread, too. Raises InputChanged where a file that rotation
    made since holds what was read as well: which of them comes first cannot be known.
    """
    stream = opened(log)
    if stream is None:
        return None
    replaced = Copy(log, stream)
    unread = held is not None and segment.difference(held) is None and not holds(stream, held)
    if not _kept(replaced, not unread and segment.difference(stream) is None):
        return None
    for other in _made(log, segment, known):
        if _kept(other, not other.read):
            other.stream.close()
            stream.close()
            raise refusals.replaced(other.path, log, segment.path)
    return replaced


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
    copy.stream.close()
    return copy.path


def stands(log: Path, segment: Segment) -> bool:
    """Whether the very file of ``segment`` is the log, and was not emptied since it was begun."""
    stream = opened(log) if segment.is_file(stat(log)) else None
    if stream is None:
        return False
    with stream:
        if segment.difference(stream) is not None:
            return False
        copy = find_emptied(log, segment, (), stream)
    if copy is not None:
        copy.stream.close()
    return copy is None


def holds(stream: BinaryIO, part: BinaryIO) -> bool:
    """Whether ``stream`` begins with all of ``part``, as far as both ends of that can tell."""
    size = os.fstat(part.fileno()).st_size
    return all(
        os.pread(stream.fileno(), min(size, PRINT_BYTES), at) == os.pread(part.fileno(), min(size, PRINT_BYTES), at)
        for at in (0, max(0, size - PRINT_BYTES))
    )


def _made(log: Path, segment: Segment, known: Sequence[Segment], now: BinaryIO | None = None) -> Iterator[Copy]:
    """Files made since ``segment`` was begun, rotated away before its own one was, that hold what was read of it.

    ``now`` is its own one, where that holds it. No other file is opened than those that came, or changed, since.
    Of a segment that is done with, it is not kept what was there: those rotated away last are first, since somebody may
    have made others by hand.
    """
    beside, paths = segment.beside, rotated(log)
    for path in paths if beside is not None else reversed(paths):
        found = stat(path)
        if path.suffix in PACKED or found is None:
            continue
        own = segment.is_file(found)
        if own and now is not None:
            return
        if not own and FileSeen.of(found) in (beside or ()):
            continue
        stream = opened(path)
        if stream is None:
            continue
        found, same = os.fstat(stream.fileno()), segment.difference(stream) is None
        if same and segment.is_file(found):
            stream.close()
            return
        copy = Copy(path, stream, _was_read(stream, found, beside or (), known))
        if _kept(copy, same and found.st_size > 0):
            yield copy


def _was_read(stream: BinaryIO, found: os.stat_result, beside: Sequence[FileSeen], known: Sequence[Segment]) -> bool:
    """Whether it holds all of a file that was read, is that by its number, and was there when the next was begun."""
    if not any((seen.device, seen.inode) == (found.st_dev, found.st_ino) for seen in beside):
        return False  # numbers of removed files are given again
    return any(each.length and each.is_file(found) and each.difference(stream) is None for each in known)


def _first(copies: Iterable[Copy], now: BinaryIO | None = None) -> Copy | None:
    """The one that was made first; None where ``now``, the file that they may be of, begins with all of each.

    Raises InputChanged where lines would be lost, or read twice, by taking a copy by hand for one by rotation or the
    other way round.
    """
    first, emptied, again = None, False, None
    for copy in copies:
        left = now is None or not holds(now, copy.stream)
        if copy.read:
            copy.stream.close()
            again = again or (copy.path if left else None)
        elif first is None:
            first, emptied = copy, left
        else:
            emptied = _are_alike(first, copy) or left or emptied
            other, first = (first, copy) if _is_cut(first, copy) else (copy, first)
            other.stream.close()
    if emptied:
        return first
    if first is not None:
        first.stream.close()
    if again:
        raise refusals.changed(again)
    return None


def _are_alike(one: Copy, other: Copy) -> bool:
    """Whether either is whole lines with which the other begins: both are files of the log then.

    Raises InputChanged where they have more than a kilobyte: one may as well have been made by hand.
    """
    sizes = [os.fstat(copy.stream.fileno()).st_size for copy in (one, other)]
    short, long = (one, other) if sizes[0] <= sizes[1] else (other, one)
    if not holds(long.stream, short.stream):
        return False
    if min(sizes) > PRINT_BYTES:
        for copy in (one, other):
            copy.stream.close()
        raise refusals.alike(one.path, other.path)
    return _beginning(short).endswith(b"\n")


def _is_cut(one: Copy, other: Copy) -> bool:
    """Whether ``one`` is little, ends in the middle of a line, and ``other`` begins with all of it: it is by hand then.

    Half a line alone may stand in any file.
    """
    start = _beginning(one)
    little = os.fstat(one.stream.fileno()).st_size == len(start)
    return little and b"\n" in start and not start.endswith(b"\n") and holds(other.stream, one.stream)


def _beginning(copy: Copy) -> bytes:
    return os.pread(copy.stream.fileno(), PRINT_BYTES, 0)


def _kept(copy: Copy, wanted: bool) -> bool:
    if not wanted:
        copy.stream.close()
    return wanted
