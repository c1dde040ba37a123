"""The plan of a run in its folder: header, chunks and seal, a line each, appended before the ledger hears of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from evalq.evalcore.errors import WireError
from evalq.evalcore.model.canonical import canonical_line
from evalq.evalcore.model.manifest import Chunk, Header, Seal, to_wire
from evalq.producer.folder.append import AppendedFile, whole_lines
from evalq.producer.folder.names import MANIFEST
from evalq.producer.folder.run_folder import RunFolder

__all__ = ["Manifest"]


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
        self.chunks: list[Chunk] = []
        self.seal: Seal | None = None
        self._file = AppendedFile(folder.path / MANIFEST)

    @property
    def path(self) -> Path:
        """manifest.jsonl."""
        return self._file.path

    def start(self, header: Header) -> None:
        """Begin with ``header``."""
        self._append([b'{"header":' + to_wire(header) + b"}"])

    def load(self) -> Header:
        """Read back what was written, but a torn last line; this changes nothing. Raises WireError."""
        try:
            whole = list(whole_lines(self.path))
            if not whole:
                raise WireError("it has no whole line")
            first, *lines = [msgspec.json.decode(line, type=_Line) for line in whole]
            header = _only(first.header)
            for line in lines:
                self._take(line, len(header.inputs))
        except (OSError, ValueError, RecursionError, WireError) as error:
            raise WireError(f"{self.path} is damaged: {error}; start the run anew") from error
        self._file.end = sum(map(len, whole))
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
        return canonical_line(msgspec.to_builtins(parts))

    def _append(self, lines: list[bytes]) -> None:
        self._file.append(b"".join(line + b"\n" for line in lines))
