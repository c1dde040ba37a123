"""Making every input one plain file to cut: standard input, packed files, and folders of a record a file."""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from evalq.evalcore.errors import InputError
from evalq.evalcore.files import open_input, replacing
from evalq.evalcore.model.manifest import BLOCK_BYTES, BOM, MAX_RECORD_BYTES
from evalq.evalcore.records.inputs import PACKED, Source, unpacked_name

__all__ = ["MAX_UNPACKED_BYTES", "needs_spool", "spool"]

MAX_UNPACKED_BYTES = 8 << 30
"""What a packed input may grow to where nothing else is said: a few megabytes can unpack to all of a disk."""

Gather = Callable[[str, bytes], bytes]
_ZSTD_PIECE = 8 << 10  # what is unpacked of it at once is held in memory, and may be 30,000 times as much


def needs_spool(source: Source) -> bool:
    """Whether ``source`` cannot be read by byte range as it stands."""
    return os.path.isdir(source.path) or source.path == "-" or source.path.endswith(PACKED)


def spool(source: Source, folder: Path, gather: Gather | None = None, most: int = MAX_UNPACKED_BYTES) -> Source:
    """Copy standard input or a packed file into ``folder``, unpacked, so that it can be read by byte range.

    Of a source with members, ``gather`` (an evaluator's `Gathering.line`) makes one file of as many lines. Other
    sources come back as they are. Raises InputError when packed data is damaged or more than ``most`` bytes, or a
    member cannot be read; OSError when the folder cannot take it.
    """
    if not needs_spool(source):
        return source
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / source.name
    # Under another name until it is whole: a command that is killed meanwhile leaves no half input under this one.
    with replacing(target) as out:
        if gather is not None and source.members:
            for path in source.files:
                out.write(_gathered(path, gather) + b"\n")
        else:
            for piece in _unpacked(source.path, source.given, most):
                out.write(piece)
    return msgspec.structs.replace(source, path=str(target), members=tuple(map(_shown, source.members)))


def _shown(member: str) -> str:
    """A member's name in reports: whatever it was packed in, and whatever bytes its name has."""
    return unpacked_name(os.fsencode(member).decode(errors="backslashreplace"))


def _gathered(path: str, gather: Gather) -> bytes:
    """The line that stands for the file at ``path``. Raises InputError."""
    data = _content(path)
    line = gather(_shown(Path(path).name), data.removeprefix(BOM)) if len(data) <= MAX_RECORD_BYTES else data
    if len(line) > MAX_RECORD_BYTES:
        raise InputError("an input cannot be gathered", [(path, f"a record longer than {MAX_RECORD_BYTES >> 20} MiB")])
    if b"\n" in line or not line.strip():
        # No InputError: the evaluator's own `gather` breaks its promise, and changing an input would not help.
        raise ValueError(f"{path}: gathered to no line, or to several")
    return line


def _content(path: str) -> bytes:
    """The bytes of a member, unpacked; of one that is too long as many as show it. Raises InputError."""
    if path.endswith(PACKED):
        data = bytearray()
        for piece in _unpacked(path, path, MAX_UNPACKED_BYTES):
            data += piece
            if len(data) > MAX_RECORD_BYTES:
                break
        # One byte more than may be is enough to see that it is too long.
        return bytes(data[: MAX_RECORD_BYTES + 1])
    try:
        with open_input(path) as stream:
            return stream.read(MAX_RECORD_BYTES + 1)
    except OSError as error:
        raise InputError("an input cannot be read", [(path, str(error.strerror))]) from error


def _unpacked(path: str, given: str, most: int) -> Iterator[bytes]:
    """The bytes of standard input or of a packed file (at ``most`` so many), piece by piece. Raises InputError."""
    try:
        # Standard input has no bound: it is not packed, so nobody sends more than there is.
        yield from _not_too_much(_pieces(path), most if path != "-" else None)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError("an input cannot be unpacked", [(given, str(error))]) from error


def _not_too_much(pieces: Iterable[bytes], most: int | None) -> Iterator[bytes]:
    """``pieces`` until they hold ``most`` bytes, or a record nobody would cut. Raises EOFError then."""
    total = line = 0
    for piece in pieces:
        total += len(piece)
        last = piece.rfind(b"\n")
        # Counted as it comes: a line without an end would fill the disk before anybody cuts it.
        line = line + len(piece) if last < 0 else len(piece) - last
        if most is not None and total > most:
            raise EOFError(f"more than {most:,} bytes unpacked; if they are wanted, raise unpack_bytes")
        if line > MAX_RECORD_BYTES + BLOCK_BYTES:
            raise EOFError(f"a record longer than {MAX_RECORD_BYTES >> 20} MiB")
        yield piece


def _pieces(path: str) -> Iterator[bytes]:
    if path == "-":
        yield from iter(lambda: sys.stdin.buffer.read(BLOCK_BYTES), b"")
    elif path.endswith(".gz"):
        with open_input(path) as packed, gzip.open(packed) as stream:
            yield from iter(lambda: stream.read(BLOCK_BYTES), b"")
    else:
        yield from _unpacked_zstd(path)


def _unpacked_zstd(path: str) -> Iterator[bytes]:
    """Frame by frame: the library's own reader takes a file that was cut off for one that ends there."""
    import zstandard  # only a packed input pays for it

    frame = None
    with open_input(path) as packed:
        for piece in iter(lambda: packed.read(_ZSTD_PIECE), b""):
            try:
                while piece:
                    frame = frame or zstandard.ZstdDecompressor().decompressobj()
                    yield frame.decompress(piece)
                    piece, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
            except zstandard.ZstdError as error:
                raise EOFError(str(error)) from error
    if frame is not None:
        raise EOFError("compressed file ended before its last frame did")
