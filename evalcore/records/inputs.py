"""Finding inputs: files, folders, globs, compressed files and standard input."""

from __future__ import annotations

import csv
import glob
import gzip
import os
import shutil
import sys
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from evalcore.errors import InputError
from evalcore.records.batch import Batch
from evalcore.records.span import BLOCK_BYTES, Format

__all__ = ["Source", "discover", "spool"]

PACKED = (".gz", ".zst")
_ZSTD_PIECE = 8 << 10  # what is unpacked of it at once is held in memory, and may be 30,000 times as much


class Source(msgspec.Struct, frozen=True):
    """One input: its ``name`` in reports (unique in a run), the path as ``given``, and the ``path`` it is read from."""

    name: str
    given: str
    path: str


def discover(given: Sequence[str], suffixes: Sequence[str]) -> list[Source]:
    """The inputs that ``given`` names, in its order; folders and globs are sorted by name.

    A folder stands for its files with one of ``suffixes`` (also packed as .gz or .zst), "-" for standard input.
    Names are base names; a second input of the same name gets "#2".

    Raises InputError for a file that does not exist, and for a folder or glob that matches nothing.
    """
    sources: dict[str, Source] = {}
    for path in [path for item in given for path in _expand(item, suffixes)]:
        base = name = "stdin" if path == "-" else _unpacked_name(Path(path).name)
        number = 1
        while name in sources:
            number += 1
            name = f"{base}#{number}"
        sources[name] = Source(name=name, given=path, path=path)
    return list(sources.values())


def _unpacked_name(name: str) -> str:
    return name.removesuffix(".gz").removesuffix(".zst")


def _expand(item: str, suffixes: Sequence[str]) -> list[str]:
    wanted = tuple(s + p for s in suffixes for p in ("", *PACKED))
    if item == "-":
        return [item]
    if os.path.isdir(item):
        found = sorted(str(p) for p in Path(item).iterdir() if p.name.endswith(wanted) and p.is_file())
        if not found:
            raise InputError("no input", [(item, f"the folder holds no file ending in {', '.join(suffixes)}")])
        return found
    if os.path.exists(item):
        return [item]
    found = sorted(path for path in glob.glob(item, recursive=True) if os.path.isfile(path))
    if not found:
        matches = "no file matches" if glob.has_magic(item) else "no such file"
        raise InputError("no input", [(item, matches)])
    return found


def needs_spool(source: Source) -> bool:
    """Whether ``source`` cannot be read by byte range as it stands."""
    return source.path == "-" or source.path.endswith(PACKED)


def spool(source: Source, folder: Path) -> Source:
    """Copy standard input or a packed file into ``folder``, unpacked, so that it can be read by byte range.

    Other sources come back as they are. Raises InputError when the packed data is damaged.
    """
    if not needs_spool(source):
        return source
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / source.name
    partial = target.with_name(target.name + ".partial")
    try:
        with partial.open("wb") as out:
            _unpack(source.path, out)
    except (OSError, EOFError, zlib.error) as error:
        partial.unlink(missing_ok=True)
        raise InputError("an input cannot be unpacked", [(source.given, str(error))]) from error
    partial.replace(target)
    return msgspec.structs.replace(source, path=str(target))


def _unpack(path: str, out: BinaryIO) -> None:
    if path == "-":
        shutil.copyfileobj(sys.stdin.buffer, out, BLOCK_BYTES)
    elif path.endswith(".gz"):
        with gzip.open(path, "rb") as stream:
            shutil.copyfileobj(stream, out, BLOCK_BYTES)
    else:
        _unpack_zstd(path, out)


def _unpack_zstd(path: str, out: BinaryIO) -> None:
    """Frame by frame: the library's own reader takes a file that was cut off for one that ends there."""
    import zstandard  # only a packed input pays for it

    frame = None
    with open(path, "rb") as packed:
        for piece in iter(lambda: packed.read(_ZSTD_PIECE), b""):
            try:
                while piece:
                    frame = frame or zstandard.ZstdDecompressor().decompressobj()
                    out.write(frame.decompress(piece))
                    piece, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
            except zstandard.ZstdError as error:
                raise OSError(str(error)) from error
    if frame is not None:
        raise EOFError("compressed file ended before its last frame did")


def read_columns(header: bytes, name: str, required: Sequence[str]) -> tuple[str, ...]:
    """The columns of a CSV header. Raises InputError that names every one of ``required`` that is missing."""
    try:
        columns = Batch(name, 1, header).first_row()
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{name} cannot be read", [(f"{name}:1", f"not a CSV in UTF-8: {error}")]) from None
    missing = [column for column in required if column not in columns]
    if missing:
        reason = f"missing column{'s' if len(missing) > 1 else ''}: {', '.join(missing)}"
        if len(columns) == 1:
            reason += f" (the header is one field, {columns[0][:60]!r}: is the delimiter a comma?)"
        raise InputError(f"{name} lacks what the evaluator reads", [(f"{name}:1", reason)])
    repeated = [column for column, count in Counter(columns).items() if count > 1 and column in required]
    if repeated:
        raise InputError(f"{name} is ambiguous", [(f"{name}:1", f"repeated column: {', '.join(repeated)}")])
    return columns


def format_suffixes(fmt: Format) -> tuple[str, ...]:
    """File endings a folder is searched for."""
    return (".csv",) if fmt == "csv" else (".jsonl", ".ndjson")
