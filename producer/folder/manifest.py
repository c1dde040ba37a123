"""The plan of a run in its folder: header, chunks and seal, a line each, appended before the ledger hears of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from evalq.evalcore.errors import WireError
from evalq.evalcore.files import open_input, write_atomic
from evalq.evalcore.model.canonical import Json, canonical_json
from evalq.evalcore.model.manifest import Chunk, Header, Seal, to_wire
from evalq.evalcore.version import code_version
from evalq.producer.folder.append import AppendedFile, whole_lines
from evalq.producer.folder.info import short
from evalq.producer.folder.names import HEAD, MANIFEST
from evalq.producer.folder.plan_file import PlannedChunks
from evalq.producer.folder.run_folder import RunFolder

__all__ = ["Manifest", "resumable_by"]


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """One line of a manifest: one of these."""

    header: Header | None = None
    chunk: Chunk | None = None
    seal: Seal | None = None


class _SweepHeader(msgspec.Struct):
    """As much of a sweep's as is asked for here."""

    code: str


class _Head(msgspec.Struct):
    header: _SweepHeader


_lines = msgspec.json.Decoder(_Line)
_heads = msgspec.json.Decoder(_Head)
P = TypeVar("P", Header, Chunk, Seal)


def _only(part: P | None) -> P:
    if part is None:
        raise WireError("a line that holds no part of a plan")
    return part


def _chunk(line: bytes) -> Chunk:
    return _only(_lines.decode(line).chunk)


def _canonical(part: Header | Chunk | Seal | None) -> bytes:
    return canonical_json(msgspec.to_builtins(part))


def resumable_by(folder: RunFolder) -> str:
    """Who can resume the run in ``folder``, where this code cannot: another did begin it. Else empty.

    So too where that is not known: neither a plan is there nor a sweep's head, or they are damaged.
    """
    code = _begun_by(folder.path)
    if code in ("", code_version()):
        return ""
    return f"it was begun by evalq code {code}, this is {code_version()}: resume it with that version"


def _begun_by(path: Path) -> str:
    try:
        # Only the first lines: a long plan behind one takes time, and damage there says nothing of who began it.
        if (path / MANIFEST).is_file():
            with open_input(path / MANIFEST) as stream:
                header = _lines.decode(stream.readline()).header
            return header.code_version if header is not None else ""
        # A sweep in its calls has no plan yet.
        with open_input(path / HEAD) as stream:
            return _heads.decode(stream.readline()).header.code
    except (OSError, ValueError, RecursionError):
        return ""


def _undigested(chunk: Chunk) -> dict[str, Json]:
    plain: dict[str, Json] = msgspec.to_builtins(chunk)
    del plain["digest"]
    return plain


class Manifest:
    """The plan of a run in its folder, appended to before the ledger hears of it."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._file = AppendedFile(folder.path / MANIFEST)
        # Not of this object: in a circle the folder's lock would outlive whoever lets go of the run without closing it.
        self._chunks = PlannedChunks(lambda: folder.path / MANIFEST, _chunk)
        self.chunks: Sequence[Chunk] = self._chunks
        self.seal: Seal | None = None
        self._input = 0

    @property
    def path(self) -> Path:
        """manifest.jsonl."""
        return self._folder.path / MANIFEST

    @property
    def begun(self) -> bool:
        """Whether anything is planned."""
        return bool(self.chunks) or self.seal is not None

    def start(self, header: Header) -> None:
        """Begin with ``header``: the file is there with it, or not at all. Raises OSError."""
        line = b'{"header":' + to_wire(header) + b"}\n"
        # Not appended: a full disk or a kill would leave a plan without its header, which nothing can be done with.
        write_atomic(self.path, line)
        self._file.end = len(line)

    def load(self) -> Header:
        """Read back what was written, but a torn last line; this changes nothing. Raises WireError."""
        try:
            lines, end = whole_lines(self.path), 0
            first = next(lines, None)
            if first is None:
                raise WireError("it has no whole line")
            header, end = _only(_lines.decode(first).header), len(first)
            for line in lines:
                self._take(_lines.decode(line), len(header.inputs), end)
                end += len(line)
        except (OSError, ValueError, RecursionError, WireError) as error:
            raise WireError(f"{self.path} is damaged: {error}; start the run anew") from error
        self._file.end = end
        return header

    def _take(self, line: _Line, inputs: int, start: int) -> None:
        """One line behind the header's. Raises WireError for one that does not follow those before it."""
        if self.seal is not None or line.header is not None:
            raise WireError("a line behind its end, or a second header")
        if line.chunk is None:
            self.seal = _only(line.seal)
        else:
            if line.chunk.seq != len(self.chunks) or not self._input <= line.chunk.input < inputs:
                raise WireError(f"chunk {line.chunk.seq} is out of order, or of no input")
            self._input = line.chunk.input
            self._chunks.add(line.chunk, start)
        if self.seal is not None and (self.seal.chunks, len(self.seal.sha256)) != (len(self.chunks), inputs):
            raise WireError(f"it ends after {len(self.chunks)} chunks, where {self.seal.chunks} were planned")

    def extend(self, chunks: Sequence[Chunk]) -> None:
        """Add chunks, safely on disk when this returns."""
        lines, end = [b'{"chunk":' + to_wire(chunk) + b"}\n" for chunk in chunks], self._file.end
        # The file first: pages are read from it as soon as they are full.
        self._append(b"".join(lines))
        for chunk, line in zip(chunks, lines, strict=True):
            self._chunks.add(chunk, end)
            end += len(line)

    def close(self, seal: Seal) -> None:
        """The end of the plan."""
        self._append(b'{"seal":' + to_wire(seal) + b"}\n")
        self.seal = seal

    def _append(self, piece: bytes) -> None:
        self._file.path = self.path  # the folder may have got its name since, and a failed write has the file reopened
        self._file.append(piece)

    def document(self, header: Header) -> Iterator[bytes]:
        """manifest.json, a piece at a time: the whole plan as one canonical JSON document, but for the chunks' digests,
        which say nothing without the run's key, and for long parameters, which report.json has.
        """
        header = msgspec.structs.replace(header, params=short(header.params))
        yield b'{"chunks":['
        for chunk in self.chunks:
            yield (b"," if chunk.seq else b"") + canonical_json(_undigested(chunk))
        yield b'],"header":' + _canonical(header) + b',"seal":' + _canonical(self.seal) + b"}\n"
