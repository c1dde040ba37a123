"""Answers on their way to the report: the journal of a run, and what a retry keeps of one."""

from __future__ import annotations

import os
import struct
from collections.abc import Container, Iterator
from pathlib import Path

from evalq.evalcore.contract.partial import Partial
from evalq.evalcore.files import open_input, replacing
from evalq.producer.folder.append import AppendedFile
from evalq.producer.folder.names import JOURNAL, KEPT
from evalq.producer.folder.run_folder import RunFolder

__all__ = ["Journal", "Kept", "answers", "counted"]

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
            if seq != expected:
                break
            self._file.end, expected = end, seq + 1
            yield partial

    def add(self, seq: int, partial: Partial) -> None:
        """Append the answer of chunk ``seq`` behind those replayed; `sync` makes it safe. For the run's driver."""
        self._file.append(_frame(seq, partial), sync=False)

    def sync(self) -> None:
        """All that was added is on disk when this returns."""
        self._file.sync()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class Kept:
    """Answers of a finished run that its retry goes by: of any chunks, each found by its number."""

    def __init__(self, folder: RunFolder) -> None:
        self._path = folder.path / KEPT
        self.digests: dict[int, str] = {}
        self._places: dict[int, tuple[int, int]] = {}
        for seq, partial, end in _frames(self._path) if self._path.exists() else ():
            self.digests[seq] = partial.digest
            self._places[seq] = (end - len(partial.data), len(partial.data))

    def get(self, seq: int) -> Partial | None:
        """The answer of chunk ``seq``, where it was kept."""
        if seq not in self._places:
            return None
        start, length = self._places[seq]
        with self._path.open("rb") as stream:
            stream.seek(start)
            return Partial(self.digests[seq], stream.read(length))

    @staticmethod
    def set_aside(folder: RunFolder, unwanted: Container[int]) -> None:
        """Begin a retry: keep a finished run's answers but the ``unwanted``. May be repeated after a crash."""
        with replacing(folder.path / KEPT) as out:
            for seq, answer in answers(folder):
                if seq not in unwanted:
                    out.write(_frame(seq, answer))
        (folder.path / JOURNAL).unlink(missing_ok=True)


def answers(folder: RunFolder) -> Iterator[tuple[int, Partial]]:
    """(chunk, answer) of all that is in a run's journal, or of what a begun retry keeps of it."""
    journal = folder.path / JOURNAL
    path = journal if journal.exists() else folder.path / KEPT
    for seq, partial, _ in _frames(path) if path.exists() else ():
        yield seq, partial


def counted(path: Path, start: int = 0) -> tuple[int, int]:
    """How many whole answers a journal has behind ``start``, and where the last of them ends; none of them is read.

    Raises OSError.
    """
    count, end = 0, start
    with open_input(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        stream.seek(start)
        while len(head := stream.read(_FRAME.size)) == _FRAME.size:
            length = _FRAME.unpack(head)[1]
            if length > size - stream.tell():
                break
            count, end = count + 1, stream.seek(length, os.SEEK_CUR)
    return count, end


def _frame(seq: int, partial: Partial) -> bytes:
    return _FRAME.pack(seq, len(partial.data), partial.digest.encode()) + partial.data


def _frames(path: Path) -> Iterator[tuple[int, Partial, int]]:
    """(chunk, answer, where its frame ends) of each whole frame of a journal."""
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        while len(head := stream.read(_FRAME.size)) == _FRAME.size:
            seq, length, digest = _FRAME.unpack(head)
            if length > size - stream.tell():  # torn or damaged: seen before memory is taken for it
                return
            data = stream.read(length)
            yield seq, Partial(digest.decode("ascii", "replace"), data), stream.tell()
