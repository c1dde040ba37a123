"""The names of the files in a run folder, and files that grow by whole pieces, so that a crash loses only the last."""

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
"""The default folder of run folders."""
TRACES = "traces"
"""The folder in it of recorded traces."""
INFO = "run.json"
MANIFEST = "manifest.jsonl"
JOURNAL = "parts.journal"
KEPT = "parts.kept"
KEY = "chunks.key"
RECORDS = "records.jsonl"
HEAD = "sweep.json"
ASKED = "asked.json"
"""The head of a finished sweep, so that it can be extended."""
PROMPTS = "prompts.jsonl"
LINES = "lines"
"""The folder of recorded outputs that were no lines of JSON, as the lines that were evaluated; pages show them."""
CALLS = "calls.jsonl"
RESERVE = "calls.reserve"
"""Room for the last count of a sweep's calls on a disk that is full."""
OUTPUTS = "outputs.jsonl"
RECORDED = "recorded.jsonl"
"""The outputs for judges, if this run made no calls for them."""
FURTHER = "further"
"""The folder of the judges' sweeps."""
SETTLED = "settings.json"
"""Digests of the settings of a judge's target."""
DRIVER = "driver"
JOINED = "judged.jsonl"
"""The outputs with the judges' verdicts."""
SWEPT = (HEAD, ASKED, PROMPTS, CALLS, RESERVE, OUTPUTS, DRIVER, RECORDED, FURTHER, JOINED, "answers")
"""Files of a sweep, beside those of its evaluation."""
_RUNNING = (INFO, MANIFEST, JOURNAL, KEPT, KEY, *SWEPT, LINES, "spool")
_UNFINISHED = frozenset({*_RUNNING, LOCK, CANCEL, WAIT})


def is_unfinished(name: str) -> bool:
    """Whether an unfinished run may have written a file or folder of that name."""
    return name in _UNFINISHED or ".partial" in name or name.startswith("scratch-")


def remove_unfinished(folder: Path) -> None:
    """Remove the files of an unfinished run except its lock; run.json first, so that no partial run is left."""
    (folder / INFO).unlink(missing_ok=True)
    for path in list(folder.iterdir()):
        # A link is removed like a file, and its target stays.
        if path.is_dir() and not path.is_symlink() and is_unfinished(path.name):
            shutil.rmtree(path)
        elif path.name != LOCK and is_unfinished(path.name):
            path.unlink()


class AppendedFile:
    """A file to append to, with whole pieces up to byte ``end``. The first append removes a torn piece after it.

    Only a run's driver appends. Others may read during a write, and ignore a torn piece.
    """

    def __init__(self, path: Path, end: int = 0) -> None:
        self.path = path
        self.end = end
        self._out: FileIO | None = None

    def append(self, piece: bytes, *, sync: bool = True) -> None:
        """Add a piece, safely on disk when this returns; without ``sync``, when `sync` does.

        Raises OSError, and restores the file then; also if the process is interrupted.
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
            # Only now: a piece whose sync fails is removed again.
            self.end += len(piece)
        except BaseException:  # also for Ctrl-C, since later offsets depend on `end`
            self._take_back()
            raise

    def _take_back(self) -> None:
        # Close it in any case, so that the next append truncates again: a second Ctrl-C may end this truncation.
        out, self._out = self._out, None
        if out is not None:
            with contextlib.suppress(OSError), out:
                out.truncate(self.end)

    def sync(self) -> None:
        """Sync all pieces to disk. Raises OSError."""
        if self._out is not None:
            os.fsync(self._out.fileno())

    def close(self) -> None:
        """Close the file."""
        out, self._out = self._out, None  # first, since closing may fail, too
        if out is not None:
            out.close()


class Reserve:
    """Reserved room on the disk, for data that must be written even when the disk is full."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self._size = size

    def take(self) -> None:
        """Fill the file. Raises OSError if the disk is full."""
        # Written, not only allocated: not every file system can allocate.
        with open_appending(self.path) as out:
            rest = memoryview(bytes(max(0, self._size - out.seek(0, os.SEEK_END))))
            while rest:
                rest = rest[out.write(rest) :]
            os.fsync(out.fileno())

    def release(self) -> None:
        """Give the room back, if any."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


def whole_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, with their newlines, but a torn last one. Raises OSError."""
    with open_input(path) as stream:
        for line in stream:
            if not line.endswith(b"\n"):
                return
            yield line
