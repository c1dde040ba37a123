"""The names of the files in a run folder, and files that grow a whole piece at a time.

A crash costs the last piece at most.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from evalq.evalcore.files import open_appending, open_input
from evalq.producer.folder.lock import CANCEL, LOCK, WAIT

RUNS = Path("evalq-runs")
"""Where the folder of a run goes that is given none."""
INFO = "run.json"
MANIFEST = "manifest.jsonl"
JOURNAL = "parts.journal"
KEPT = "parts.kept"
KEY = "chunks.key"
RECORDS = "records.jsonl"
HEAD = "sweep.json"
ASKED = "asked.json"
"""The head of a sweep that is over: what was asked, so that it can be asked again."""
PROMPTS = "prompts.jsonl"
CALLS = "calls.jsonl"
RESERVE = "calls.reserve"
"""Room for the last count of a sweep's calls on a disk that is full."""
OUTPUTS = "outputs.jsonl"
RECORDED = "recorded.jsonl"
"""The outputs that further targets are asked about, where this run called nobody for them."""
FURTHER = "further"
"""The folder of the sweeps that ask about outputs."""
SETTLED = "settings.json"
"""The settings under which a further target is asked, by digests."""
DRIVER = "driver"
JOINED = "judged.jsonl"
"""The outputs with what was said of them."""
SWEPT = (HEAD, ASKED, PROMPTS, CALLS, RESERVE, OUTPUTS, DRIVER, RECORDED, FURTHER, JOINED, "answers")
"""What a sweep reads and writes beside its evaluation."""
_RUNNING = (INFO, MANIFEST, JOURNAL, KEPT, KEY, *SWEPT, "spool")
_UNFINISHED = frozenset({*_RUNNING, LOCK, CANCEL, WAIT})


def is_unfinished(name: str) -> bool:
    """Whether a run that was begun and came to no report may have written a file or folder of that name."""
    return name in _UNFINISHED or ".partial" in name or name.startswith("scratch-")


def remove_unfinished(folder: Path) -> None:
    """Remove what an unfinished run wrote, but its lock; run.json goes first, so that no half of a run is left."""
    (folder / INFO).unlink(missing_ok=True)
    for path in list(folder.iterdir()):
        # A link goes as a file does: what it leads to is somebody else's.
        if path.is_dir() and not path.is_symlink() and is_unfinished(path.name):
            shutil.rmtree(path)
        elif path.name != LOCK and is_unfinished(path.name):
            path.unlink()


class AppendedFile:
    """A file to append to, whose pieces are whole up to byte ``end``: the rest is what a killed driver left half
    written, and goes when the first piece comes.

    Only a run's driver appends. A reader may look in the middle of a write, and leaves an unfinished piece alone.
    """

    def __init__(self, path: Path, end: int = 0) -> None:
        self.path = path
        self.end = end
        self._out: FileIO | None = None

    def append(self, piece: bytes, *, sync: bool = True) -> None:
        """Add a piece, safely on disk when this returns; without ``sync``, when `sync` does.

        Raises OSError, with the file as it was: what a full disk took of a piece is taken back, and so is a piece
        during which the process was interrupted.
        """
        rest = memoryview(piece)
        try:
            if self._out is None:
                self._out = open_appending(self.path)
                self._out.truncate(self.end)
            while rest:
                rest = rest[self._out.write(rest) :]
            if sync:
                self.sync()
            # Only when it is safe: a piece whose sync failed is taken back.
            self.end += len(piece)
        except BaseException:  # Ctrl-C too: whoever goes on in this process counts places from `end`
            self._take_back()
            raise

    def _take_back(self) -> None:
        # Let go of in any case, so that the next piece begins with cutting: a second Ctrl-C may end this cut, too.
        out, self._out = self._out, None
        if out is not None:
            with contextlib.suppress(OSError), out:
                out.truncate(self.end)

    def sync(self) -> None:
        """All that was added is on disk when this returns. Raises OSError."""
        if self._out is not None:
            os.fsync(self._out.fileno())

    def close(self) -> None:
        """Let go of the file."""
        out, self._out = self._out, None  # first, since closing may fail, too
        if out is not None:
            out.close()


class Reserve:
    """Room on the disk that is taken before it is needed, for what must be written where nothing else can be."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self._size = size

    def take(self) -> None:
        """Fill the file. Raises OSError where there is no such room."""
        # Written out and not only asked for: a sparse file has no room, and not every file system can allocate.
        with open_appending(self.path) as out:
            rest = memoryview(bytes(max(0, self._size - out.seek(0, os.SEEK_END))))
            while rest:
                rest = rest[out.write(rest) :]
            os.fsync(out.fileno())

    def release(self) -> None:
        """Give the room back; nothing where there is none."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


def whole_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, with their newlines, but a torn last one. Raises OSError."""
    with open_input(path) as stream:
        for line in stream:
            if not line.endswith(b"\n"):
                return
            yield line
