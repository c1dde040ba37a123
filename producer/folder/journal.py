"""Answers on their way to the report: the journal of a run, and what a retry keeps of one."""

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

# Number, length and digest, before each answer: who counts or looks for answers then reads none of them.
_FRAME = struct.Struct(">QQ64s")


class Journal:
    """Answers in chunk order, as they were committed: what is in it is never computed again."""

    def __init__(self, folder: RunFolder) -> None:
        self._file = AppendedFile(folder.path / JOURNAL)

    @property
    def path(self) -> Path:
        """parts.journal."""
        return self._file.path

    def replay(self) -> Iterator[Partial]:
        """The answers so far, in order from chunk 0, but a torn last one; this changes nothing."""
        expected = 0
        for seq, partial, end in _frames(self.path) if self.path.exists() else ():
            # Whatever this is (a page that a crash lost, an older piece), from here on answers are computed again.
            if seq != expected:
                break
            self._file.end, expected = end, seq + 1
            yield partial

    def digests(self, count: int) -> Iterator[tuple[int, str]]:
        """(chunk, digest) of the first ``count`` answers, none of which is read."""
        for head in islice(_frame_heads(self.path), count):
            yield head.seq, head.digest

    def add(self, seq: int, partial: Partial) -> None:
        """Append the answer of chunk ``seq`` behind those replayed; `sync` makes it safe. For the run's driver."""
        # A sync for each answer would take longer than many a chunk: whoever trims the ledger syncs before.
        self._file.append(_frame(seq, partial), sync=False)

    def sync(self) -> None:
        """All that was added is on disk when this returns."""
        self._file.sync()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class KeptAnswers:
    """Answers of a finished run that its retry goes by: of any chunks, asked for about in their order.

    ``count`` is how many there are. Whoever asks goes through the file, so that none has to be remembered.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._path = folder.path / KEPT
        self.count = sum(1 for _ in _frame_heads(self._path))
        # Each goes forward: a chunk may be given out long before its answer is collected.
        self._given, self._collected = _Finder(self._path), _Finder(self._path)

    def get(self, seq: int) -> Partial | None:
        """The answer of chunk ``seq``, where it was kept."""
        head = self._given.find(seq)
        if head is None:
            return None
        with open_input(self._path) as stream:
            stream.seek(head.start)
            return Partial(head.digest, stream.read(head.length))

    def collected(self, seq: int) -> bool:
        """Whether chunk ``seq``, of which the answer is collected now, is one of them."""
        return self._collected.find(seq) is not None

    def digests(self, first: int) -> Iterator[tuple[int, str]]:
        """(chunk, digest) of those from chunk ``first`` on."""
        return ((head.seq, head.digest) for head in _frame_heads(self._path) if head.seq >= first)

    @staticmethod
    def set_aside(folder: RunFolder, unwanted: Container[int]) -> None:
        """Begin a retry: keep a finished run's answers but the ``unwanted``. May be repeated after a crash."""
        with replacing(folder.path / KEPT) as out:
            for seq, answer in answers(folder):
                if seq not in unwanted:
                    out.write(_frame(seq, answer))
        # Last: killed before, the journal is still the whole truth, and this is done again from it.
        (folder.path / JOURNAL).unlink(missing_ok=True)


def answers(folder: RunFolder) -> Iterator[tuple[int, Partial]]:
    """(chunk, answer) of all that is in a run's journal, or of what a begun retry keeps of it."""
    journal = folder.path / JOURNAL
    path = journal if journal.exists() else folder.path / KEPT
    for seq, partial, _ in _frames(path) if path.exists() else ():
        yield seq, partial


def count_answers(path: Path, start: int = 0) -> tuple[int, int]:
    """How many whole answers a journal has behind ``start``, and where the last of them ends; none of them is read.

    Raises OSError.
    """
    count, end = 0, start
    with open_input(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        stream.seek(start)
        while len(head := stream.read(_FRAME.size)) == _FRAME.size:
            length = _FRAME.unpack(head)[1]
            # Seeking goes past the end without an error: a torn answer would be counted as whole.
            if length > size - stream.tell():
                break
            count, end = count + 1, stream.seek(length, os.SEEK_CUR)
    return count, end


class _FrameHead(NamedTuple):
    """What stands before an answer, and where that lies."""

    seq: int
    digest: str
    start: int
    length: int


class _Finder:
    """Finds heads in a file where they stand by number; going back, it begins again."""

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
    """The head of each whole frame; none where there is no file."""
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
    """(chunk, answer, where its frame ends) of each whole frame of a journal."""
    with open_input(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        while len(head := stream.read(_FRAME.size)) == _FRAME.size:
            seq, length, digest = _FRAME.unpack(head)
            if length > size - stream.tell():  # torn or damaged: seen before memory is taken for it
                return
            data = stream.read(length)
            yield seq, Partial(digest.decode("ascii", "replace"), data), stream.tell()


# Leaving a folder's plan for that of another folder, which has begun the same run in a ledger that had lost it.


class Replanned(ConfigError):
    """A run has no plan in its folder any more, as another folder's stands: whoever drives it loads it again."""


def has_its_own(folder: RunFolder) -> bool:
    """Whether a run is about what no other folder has: the outputs of its sweep, or the answers that a retry kept."""
    return (folder.path / HEAD).is_file() or (folder.path / KEPT).exists() or folder.info().retry is not None


def drop_answers(folder: RunFolder) -> None:
    """Remove what was answered, which is computed again; what was planned can go then. May be repeated after a crash.

    Raises OSError.
    """
    for name in (JOURNAL, f"{RECORDS}.partial"):
        (folder.path / name).unlink(missing_ok=True)
