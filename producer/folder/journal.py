"""The journal of a run's answers, and the answers that a retry keeps."""

from __future__ import annotations

import os
import struct
from collections.abc import Container, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from evalq.evalcore.contract.partial import Partial
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.files import open_input, replacing
from evalq.producer.folder.files import HEAD, JOURNAL, KEPT, RECORDS, AppendedFile
from evalq.producer.folder.run_folder import RunFolder

# Number, length and digest precede each answer, so that counting and searching read no answers.
_FRAME = struct.Struct(">QQ64s")


class Journal:
    """Answers in chunk order, as they were committed; evalq never computes them again."""

    def __init__(self, folder: RunFolder) -> None:
        self._file = AppendedFile(folder.path / JOURNAL)

    @property
    def path(self) -> Path:
        """parts.journal."""
        return self._file.path

    def replay(self) -> Iterator[Partial]:
        """The answers so far, in order from chunk 0, without a torn last one; changes nothing."""
        expected = 0
        for seq, partial, end in _frames(self.path) if self.path.exists() else ():
            # A lost page or an older piece: from here on answers are computed again.
            if seq != expected:
                break
            self._file.end, expected = end, seq + 1
            yield partial

    def digests(self, count: int) -> Iterator[tuple[int, str]]:
        """(chunk, digest) of the first ``count`` answers, without reading the answers."""
        for head in islice(_frame_heads(self.path), count):
            yield head.seq, head.digest

    def add(self, seq: int, partial: Partial) -> None:
        """Append the answer of chunk ``seq`` after those replayed; `sync` makes it safe. Only for the run's driver."""
        # No sync for each answer, which would be slow: the driver syncs before it trims the ledger.
        self._file.append(_frame(seq, partial), sync=False)

    def sync(self) -> None:
        """Sync all answers to disk."""
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class KeptAnswers:
    """Answers of a finished run that its retry reuses, of any chunks; ``count`` is their number.

    Queries come about in chunk order and read through the file, so that memory holds no answers.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._path = folder.path / KEPT
        self.count = sum(1 for _ in _frame_heads(self._path))
        # Two readers: a chunk may be given out long before its answer is collected.
        self._given, self._collected = _Finder(self._path), _Finder(self._path)

    def get(self, seq: int) -> Partial | None:
        """The answer of chunk ``seq``, if it was kept."""
        head = self._given.find(seq)
        if head is None:
            return None
        with open_input(self._path) as stream:
            stream.seek(head.start)
            return Partial(head.digest, stream.read(head.length))

    def collected(self, seq: int) -> bool:
        """Whether the answer of chunk ``seq``, which is collected now, was kept."""
        return self._collected.find(seq) is not None

    def digests(self, first: int) -> Iterator[tuple[int, str]]:
        """(chunk, digest) of the kept answers from chunk ``first`` on."""
        return ((head.seq, head.digest) for head in _frame_heads(self._path) if head.seq >= first)

    @staticmethod
    def keep_for_retry(folder: RunFolder, unwanted: Container[int]) -> None:
        """Begin a retry: keep a finished run's answers except the ``unwanted``. May be repeated after a crash."""
        with replacing(folder.path / KEPT) as out:
            for seq, answer in answers(folder):
                if seq not in unwanted:
                    out.write(_frame(seq, answer))
        # Last, so that after a kill this can be repeated from the journal.
        (folder.path / JOURNAL).unlink(missing_ok=True)


def answers(folder: RunFolder) -> Iterator[tuple[int, Partial]]:
    """(chunk, answer) of a run's journal, or of the answers that a retry keeps."""
    journal = folder.path / JOURNAL
    path = journal if journal.exists() else folder.path / KEPT
    for seq, partial, _ in _frames(path) if path.exists() else ():
        yield seq, partial


def count_answers(path: Path, start: int = 0) -> tuple[int, int]:
    """The number of whole answers in a journal after ``start``, and the end of the last one, without reading them.

    Raises OSError.
    """
    count, end = 0, start
    with open_input(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        stream.seek(start)
        while len(head := stream.read(_FRAME.size)) == _FRAME.size:
            length = _FRAME.unpack(head)[1]
            # Seeking past the end is no error, so a torn answer would count.
            if length > size - stream.tell():
                break
            count, end = count + 1, stream.seek(length, os.SEEK_CUR)
    return count, end


class _FrameHead(NamedTuple):
    """The head of an answer, with the answer's offset."""

    seq: int
    digest: str
    start: int
    length: int


class _Finder:
    """Finds heads by number in a sorted file; for a smaller number it begins again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin()

    def _begin(self) -> None:
        self._rest = _frame_heads(self._path)
        self._head = next(self._rest, None)
        self._asked = 0

    def find(self, seq: int) -> _FrameHead | None:
        """The head of chunk ``seq``."""
        if seq < self._asked:
            self._begin()
        self._asked = seq
        while self._head is not None and self._head.seq < seq:
            self._head = next(self._rest, None)
        return self._head if self._head is not None and self._head.seq == seq else None


def _frame_heads(path: Path) -> Iterator[_FrameHead]:
    """The head of each whole frame; none without a file."""
    if not path.exists():
        return
    with open_input(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        while len(head := stream.read(_FRAME.size)) == _FRAME.size:
            seq, length, digest = _FRAME.unpack(head)
            start = stream.tell()
            if length > size - start:
                return
            yield _FrameHead(seq, digest.decode("ascii", "replace"), start, length)
            stream.seek(start + length)


def _frame(seq: int, partial: Partial) -> bytes:
    return _FRAME.pack(seq, len(partial.data), partial.digest.encode()) + partial.data


def _frames(path: Path) -> Iterator[tuple[int, Partial, int]]:
    """(chunk, answer, end of its frame) of each whole frame of a journal."""
    with open_input(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        while len(head := stream.read(_FRAME.size)) == _FRAME.size:
            seq, length, digest = _FRAME.unpack(head)
            if length > size - stream.tell():  # torn or damaged; checked before memory is allocated
                return
            data = stream.read(length)
            yield seq, Partial(digest.decode("ascii", "replace"), data), stream.tell()


# Another folder may have begun the same run again in a ledger that had lost it; then its plan replaces this one's.


class Replanned(ConfigError):
    """Another folder's plan replaces the one in this folder, so the driver has to load the run again."""


def has_unique_data(folder: RunFolder) -> bool:
    """Whether this folder has data that no other has: outputs of a sweep, or answers that a retry kept."""
    return (folder.path / HEAD).is_file() or (folder.path / KEPT).exists() or folder.info().retry is not None


def drop_answers(folder: RunFolder) -> None:
    """Remove the answers, which are computed again, so that the plan can be replaced. May be repeated after a crash.

    Raises OSError.
    """
    for name in (JOURNAL, f"{RECORDS}.partial"):
        (folder.path / name).unlink(missing_ok=True)
