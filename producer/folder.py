"""The run folder: everything a run can be gone on with, and at its end everything that is shown of it.

While a run goes: `run.json` (what was asked, how it stands), `manifest.jsonl` (header, chunks, seal, a line each),
`parts.journal` (answers in chunk order) and `records.jsonl.partial`. When it is done these become manifest.json,
report.json, results.yaml, report.md and records.jsonl, each written under another name first and renamed. A run with
dead records keeps its working files, so that a retry computes no more than their chunks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Container, Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import TypeVar

import msgspec

from evalcore.canonical import Json, canonical_json
from evalcore.errors import UsageError, WireError
from evalcore.files import open_appending, write_atomic
from evalcore.plan import Chunk, Header, Seal, to_wire

__all__ = ["FOLLOWS", "RECORDS", "RETRYING", "Manifest", "RunFolder"]

MANIFEST = "manifest.jsonl"
JOURNAL = "parts.journal"
KEPT = "parts.kept"
RETRYING = "retrying"
FOLLOWS = "follows"
"""The key of run.json under which a run that follows a log names it."""
RECORDS = "records.jsonl"


class RunFolder:
    """A run's folder at ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path) -> RunFolder:
        """A new, empty folder. Raises UsageError when there is something in it already, or it cannot be made."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise UsageError(f"{path}: the folder is not empty; name another with --out, or resume the run in it")
        except OSError as error:
            raise UsageError(f"{path}: the run folder cannot be made: {error.strerror}") from error
        return cls(path)

    @classmethod
    def existing(cls, path: Path) -> RunFolder:
        """A folder some run was started in. Raises UsageError when it is none."""
        if not (path / "run.json").is_file():
            raise UsageError(f"{path}: no run folder (it has no run.json)")
        return cls(path)

    @contextlib.contextmanager
    def driving(self) -> Iterator[bool]:
        """Whether this process may drive the run: False while another one does. A killed one's claim ends with it."""
        with open_appending(self.path / "run.lock") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
            yield True

    @property
    def spool(self) -> Path:
        """Where unpacked inputs lie."""
        return self.path / "spool"

    @property
    def records(self) -> Path:
        """records.jsonl."""
        return self.path / RECORDS

    def info(self) -> dict[str, Json]:
        """run.json. Raises WireError when it is damaged."""
        try:
            info: dict[str, Json] = msgspec.json.decode((self.path / "run.json").read_bytes(), type=dict)
        except (ValueError, RecursionError) as error:
            raise WireError(f"{self.path / 'run.json'} is damaged: {error}") from error
        return info

    @property
    def reported(self) -> bool:
        """Whether the run has had a report."""
        return (self.path / "report.json").is_file()

    def report(self) -> dict[str, Json]:
        """report.json. Raises UsageError when the run has none (yet)."""
        path = self.path / "report.json"
        if not self.reported:
            raise UsageError(f"{self.path}: this run has no report (it is {self.info().get('state', 'unknown')})")
        try:
            report: dict[str, Json] = msgspec.json.decode(path.read_bytes(), type=dict)
        except (ValueError, RecursionError) as error:
            raise WireError(f"{path} is damaged: {error}") from error
        return report

    def note(self, **facts: Json) -> None:
        """Set keys of run.json."""
        path = self.path / "run.json"
        info = self.info() if path.is_file() else {}
        write_atomic(path, msgspec.json.format(canonical_json({**info, **facts}), indent=2) + b"\n")

    def write(self, name: str, data: bytes) -> None:
        """One of the run's final files, whole or not at all."""
        write_atomic(self.path / name, data)

    def drop_working_files(self, *, but: Container[str] = ()) -> None:
        """Remove what only an unfinished run needs."""
        for name in (name for name in (MANIFEST, JOURNAL, KEPT, "run.lock") if name not in but):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.spool, ignore_errors=True)

    def discard(self) -> None:
        """Remove all that a run wrote, as far as it can be; the folder too, when nothing else is in it."""
        with contextlib.suppress(OSError):
            self.drop_working_files()
            for name in ("run.json", RECORDS + ".partial"):
                (self.path / name).unlink(missing_ok=True)
            self.path.rmdir()
            self.path.parent.rmdir()


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """One line of a manifest: one of these."""

    header: Header | None = None
    chunk: Chunk | None = None
    seal: Seal | None = None


P = TypeVar("P", Header, Seal)


def _only(part: P | None) -> P:
    if part is None:
        raise WireError("a line that holds no part of a plan")
    return part


class Manifest:
    """The plan of a run in its folder, appended to before the ledger hears of it."""

    def __init__(self, folder: RunFolder) -> None:
        self._path = folder.path / MANIFEST
        self.chunks: list[Chunk] = []
        self.seal: Seal | None = None
        self._out: FileIO | None = None

    def start(self, header: Header) -> None:
        """Begin with ``header``."""
        self._append([b'{"header":' + to_wire(header) + b"}"])

    def load(self) -> Header:
        """Read back what was written; a torn last line is cut off. Raises WireError."""
        try:
            whole, _, torn = self._path.read_bytes().rpartition(b"\n")
            first, *lines = [msgspec.json.decode(line, type=_Line) for line in whole.split(b"\n")]
            header = _only(first.header)
            for line in lines:
                self._take(line, len(header.inputs))
        except (OSError, ValueError, RecursionError, WireError) as error:
            raise WireError(f"{self._path} is damaged: {error}; start the run anew") from error
        if torn:
            with open_appending(self._path) as out:
                out.truncate(len(whole) + 1)
        return header

    def _take(self, line: _Line, inputs: int) -> None:
        """One line behind the header's. Raises WireError for one that does not follow those before it."""
        if self.seal is not None or line.header is not None:
            raise WireError("a line behind its end, or a second header")
        if line.chunk is None:
            self.seal = _only(line.seal)
        else:
            self.chunks.append(line.chunk)
        if line.chunk is not None and (line.chunk.seq != len(self.chunks) - 1 or line.chunk.input >= inputs):
            raise WireError(f"chunk {line.chunk.seq} is out of order, or of no input")
        if self.seal is not None and (self.seal.chunks, len(self.seal.sha256)) != (len(self.chunks), inputs):
            raise WireError(f"it ends after {len(self.chunks)} chunks, where {self.seal.chunks} were planned")

    def extend(self, chunks: Sequence[Chunk]) -> None:
        """Add chunks, safely on disk when this returns."""
        self._append([b'{"chunk":' + to_wire(chunk) + b"}" for chunk in chunks])
        self.chunks.extend(chunks)

    def close(self, seal: Seal) -> None:
        """The end of the plan."""
        self._append([b'{"seal":' + to_wire(seal) + b"}"])
        self.seal = seal

    def document(self, header: Header) -> bytes:
        """manifest.json: the whole plan as one canonical JSON document."""
        parts = {"header": header, "chunks": self.chunks, "seal": self.seal}
        return canonical_json(msgspec.to_builtins(parts)) + b"\n"

    def _append(self, lines: list[bytes]) -> None:
        if self._out is None:
            self._out = open_appending(self._path)  # what a full disk did not take is not tried again
        data = memoryview(b"".join(line + b"\n" for line in lines))
        while data:
            data = data[self._out.write(data) :]
        os.fsync(self._out.fileno())
