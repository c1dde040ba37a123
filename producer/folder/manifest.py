"""The plan of a run in its folder: header, chunks and seal, a line each, written before the ledger gets it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar, overload

import msgspec

from evalq.evalcore.errors import WireError
from evalq.evalcore.files import open_input, write_atomic
from evalq.evalcore.model.canonical import Json, canonical_json
from evalq.evalcore.model.manifest import Chunk, Header, Seal, to_wire
from evalq.evalcore.version import code_version
from evalq.producer.folder.documents import short
from evalq.producer.folder.files import HEAD, MANIFEST, AppendedFile, whole_lines
from evalq.producer.folder.run_folder import RunFolder

# The chunks of a plan, of which only a few pages are in memory.

PAGE = 256
"""Chunks in a page: a run reads them in order, from a few positions at once."""
_PAGES = 4


class PlannedChunks(Sequence[Chunk]):
    """Chunks by number, decoded from the lines of the file by ``read`` when they are needed.

    ``path`` returns the current path, since a run's folder gets its name later. A slice is a view.
    """

    def __init__(self, path: Callable[[], Path], read: Callable[[bytes], Chunk]) -> None:
        self._path = path
        self._read = read
        self._starts = array("Q")  # the offset of each page
        self._last: list[Chunk] = []
        self._count = 0
        self._pages: dict[int, list[Chunk]] = {}

    def add(self, chunk: Chunk, start: int) -> None:
        """Add the next chunk, whose line begins at byte ``start``."""
        if self._count % PAGE == 0:
            self._starts.append(start)
            self._last = []
        self._last.append(chunk)
        self._count += 1

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Chunk: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Chunk]: ...
    def __getitem__(self, index: int | slice) -> Chunk | Sequence[Chunk]:
        if isinstance(index, slice):
            return _ChunkSlice(self, range(self._count)[index])
        number = range(self._count)[index]
        return self._page(number // PAGE)[number % PAGE]

    def _page(self, number: int) -> list[Chunk]:
        if number == len(self._starts) - 1:
            return self._last
        # Removed and added, so that the dictionary's first page is the least recently used.
        page = self._pages.pop(number, None) or self._load_page(number)
        self._pages[number] = page
        if len(self._pages) > _PAGES:
            del self._pages[next(iter(self._pages))]
        return page

    def _load_page(self, number: int) -> list[Chunk]:
        start, end = self._starts[number], self._starts[number + 1]
        with open_input(self._path()) as stream:
            stream.seek(start)
            lines = stream.read(end - start).splitlines()
        page = [self._read(line) for line in lines]
        if [chunk.seq for chunk in page] != list(range(number * PAGE, (number + 1) * PAGE)):
            raise WireError(f"{self._path()} is damaged: it changed while the run went on; start the run anew")
        return page


class _ChunkSlice(Sequence[Chunk]):
    """Some chunks of a plan."""

    def __init__(self, chunks: PlannedChunks, numbers: range) -> None:
        self._chunks = chunks
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> Chunk: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Chunk]: ...
    def __getitem__(self, index: int | slice) -> Chunk | Sequence[Chunk]:
        if isinstance(index, slice):
            return _ChunkSlice(self._chunks, self._numbers[index])
        return self._chunks[self._numbers[index]]


class _PlanLine(msgspec.Struct, forbid_unknown_fields=True):
    """One line of a manifest, with one of these fields."""

    header: Header | None = None
    chunk: Chunk | None = None
    seal: Seal | None = None


class _SweepHeader(msgspec.Struct):
    """The part of a sweep's header that is needed here."""

    code: str


class _SweepHead(msgspec.Struct):
    header: _SweepHeader


_plan_lines = msgspec.json.Decoder(_PlanLine)
_sweep_heads = msgspec.json.Decoder(_SweepHead)
P = TypeVar("P", Header, Chunk, Seal)


def _only(part: P | None) -> P:
    if part is None:
        raise WireError("a line that holds no part of a plan")
    return part


def _chunk(line: bytes) -> Chunk:
    return _only(_plan_lines.decode(line).chunk)


def _canonical(part: Header | Chunk | Seal | None) -> bytes:
    return canonical_json(msgspec.to_builtins(part))


def resumable_by(folder: RunFolder) -> str:
    """The reason why this code cannot resume the run in ``folder``: another version began it. Else empty.

    Empty, too, if that is unknown, since plan and sweep head are missing or damaged.
    """
    code = _begun_by(folder.path)
    if code in ("", code_version()):
        return ""
    return f"it was begun by evalq code {code}, this is {code_version()}: resume it with that version"


def _begun_by(path: Path) -> str:
    try:
        # Only the first line, since a plan may be long, or damaged further down.
        if (path / MANIFEST).is_file():
            with open_input(path / MANIFEST) as stream:
                header = _plan_lines.decode(stream.readline()).header
            return header.code_version if header is not None else ""
        # A sweep that still makes calls has no plan yet.
        with open_input(path / HEAD) as stream:
            return _sweep_heads.decode(stream.readline()).header.code
    except (OSError, ValueError, RecursionError):
        return ""


def _without_digest(chunk: Chunk) -> dict[str, Json]:
    plain: dict[str, Json] = msgspec.to_builtins(chunk)
    del plain["digest"]
    return plain


class Manifest:
    """The plan of a run in its folder, written before the ledger gets it."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._file = AppendedFile(folder.path / MANIFEST)
        # Without a reference to self: a cycle would keep the folder's lock until the next garbage collection.
        self._chunks = PlannedChunks(lambda: folder.path / MANIFEST, _chunk)
        self.chunks: Sequence[Chunk] = self._chunks
        self.seal: Seal | None = None
        self._input = 0

    @property
    def path(self) -> Path:
        """manifest.jsonl."""
        return self._folder.path / MANIFEST

    @property
    def size(self) -> int:
        """The bytes of the file so far: at first those of the header, with the parameters."""
        return self._file.end

    @property
    def begun(self) -> bool:
        """Whether anything is planned."""
        return bool(self.chunks) or self.seal is not None

    def start(self, header: Header) -> None:
        """Write the file with its ``header``, atomically. Raises OSError."""
        line = b'{"header":' + to_wire(header) + b"}\n"
        # Not appended: a full disk or a kill would leave a useless plan without a header.
        write_atomic(self.path, line)
        self._file.end = len(line)

    def load(self) -> Header:
        """Read the plan, without a torn last line; changes nothing. Raises WireError."""
        try:
            lines, end = whole_lines(self.path), 0
            first = next(lines, None)
            if first is None:
                raise WireError("it has no whole line")
            header, end = _only(_plan_lines.decode(first).header), len(first)
            for line in lines:
                self._apply(_plan_lines.decode(line), len(header.inputs), end)
                end += len(line)
        except (OSError, ValueError, RecursionError, WireError) as error:
            raise WireError(f"{self.path} is damaged: {error}; start the run anew") from error
        self._file.end = end
        return header

    def _apply(self, line: _PlanLine, inputs: int, start: int) -> None:
        """Apply one line after the header. Raises WireError if it does not fit to the lines before."""
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
        # The file first, since full pages are read from it.
        self._append(b"".join(lines))
        for chunk, line in zip(chunks, lines, strict=True):
            self._chunks.add(chunk, end)
            end += len(line)

    def close(self, seal: Seal) -> None:
        """Write the end of the plan."""
        self._append(b'{"seal":' + to_wire(seal) + b"}\n")
        self.seal = seal

    def _append(self, piece: bytes) -> None:
        self._file.path = self.path  # the folder may have its final name by now, and a failed write reopens the file
        self._file.append(piece)

    def document(self, header: Header) -> Iterator[bytes]:
        """manifest.json in pieces: the whole plan as canonical JSON, without the chunks' digests (useless without the
        run's key) and without long parameters, which are in report.json.
        """
        header = msgspec.structs.replace(header, params=short(header.params))
        yield b'{"chunks":['
        for chunk in self.chunks:
            yield (b"," if chunk.seq else b"") + canonical_json(_without_digest(chunk))
        yield b'],"header":' + _canonical(header) + b',"seal":' + _canonical(self.seal) + b"}\n"
