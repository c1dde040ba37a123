"""Read the files of another tool, with the locations of their values, and only below its folder."""

from __future__ import annotations

import csv
import io
import json
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import msgspec
import zstandard

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.files import open_given, read_up_to
from evalq.evalcore.records.yaml import DocumentFault, KeyLines, read_document
from evalq.evalcore.trust import Thing, Writer, allows
from evalq.producer.importing.imported import cut

MOST_BYTES = 1 << 30
"""The longest recording that is read."""
_YAML_BYTES = 16 << 20
_CELL = 16 << 20
_TOO_DEEP = "nested too deeply to be read: take out what nests hundreds of levels deep"


class Outside(ValueError):
    """The source names a file outside its folder."""


class Document:
    """A file's data, with the locations of its values."""

    def __init__(self, path: Path, data: Any, text: str = "") -> None:
        self.path, self.data, self._text = path, data, text
        self._lines: KeyLines | None = None

    def where(self, keys: Sequence[str | int]) -> str:
        """``file:line: key path``; without the line if it is unknown."""
        if self._text and self._lines is None:
            self._lines = KeyLines(self._text, str(self.path))
        location = f"{self.path}:{self._lines.line(keys)}" if self._lines else str(self.path)
        return f"{location}: {_key_path(keys)}" if keys else location


def _key_path(keys: Sequence[str | int]) -> str:
    """``tests[0].assert[1]``."""
    shown = "".join(f"[{key}]" if isinstance(key, int) else f".{cut(key)}" for key in keys)
    return shown.removeprefix(".")


def below(folder: Path, name: str, *, anywhere: bool) -> Path:
    """The file that ``name`` means from ``folder``. Raises Outside for one that is not below it."""
    try:
        path = (folder / name).resolve()
    except (ValueError, OSError, RuntimeError):  # a zero byte, a lone surrogate, or a loop of links
        raise Outside(f"{cut(name)!r} is not a valid file name") from None
    if not anywhere and not allows(Writer.IMPORT, Thing.PATH, path, (folder,)):
        raise Outside(f"{cut(name)} is outside {folder}: give --anywhere to read it")
    return path


def globbed(folder: Path, pattern: str, *, anywhere: bool) -> list[Path]:
    """The files that match ``pattern`` in ``folder``. Raises Outside for one outside of it, or if there are none."""
    if ".." in Path(pattern).parts and not anywhere:
        raise Outside(f"{cut(pattern)} leads out of {folder}: give --anywhere to read it")
    try:
        found = sorted(folder.glob(pattern))
    except (ValueError, NotImplementedError, OSError, RuntimeError) as error:
        raise Outside(f"{cut(pattern)!r} is not a valid pattern: {error}") from None
    if not found:
        raise Outside(f"no file matches {cut(pattern)}")
    outside = [path for path in found if not (anywhere or allows(Writer.IMPORT, Thing.PATH, path, (folder,)))]
    if outside:
        raise Outside(f"{cut(outside[0])} leads out of {folder}: give --anywhere to read it")
    return found


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """A file's text without a byte order mark. Raises ConfigError."""
    return _read(path, most, "utf-8-sig")


def read_json(path: Path) -> Any:
    """A JSON file's value. Raises ConfigError."""
    text = _read(path, MOST_BYTES, "utf-8-sig")
    try:
        return _json(text)
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: {_TOO_DEEP}") from None


def read_yaml(path: Path) -> Document:
    """A YAML (or JSON) file, with the locations of its keys. Raises ConfigError with file and line."""
    text = _read(path, _YAML_BYTES, "utf-8-sig")
    try:
        return Document(path, read_document(text, str(path)), text)
    except DocumentFault as fault:
        raise ConfigError(f"{path}{f':{fault.line}' if fault.line else ''}: {fault.reason}") from None


def read_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """(line, value) of a file of JSON lines, without empty lines. Raises ConfigError with file and line."""
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield number, _json(line)
        except ValueError as error:
            raise ConfigError(f"{path}:{number}: not JSON: {error}") from None
        except RecursionError:
            raise ConfigError(f"{path}:{number}: {_TOO_DEEP}") from None


def csv_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, row by its header) of a CSV file. Raises ConfigError with file and line."""
    csv.field_size_limit(_CELL)
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=False)
    try:
        header = [name.strip() for name in next(reader, [])]
        if len(set(header)) < len(header):
            raise ConfigError(f"{path}:1: a column's name occurs twice")
        line = reader.line_num + 1
        for row in reader:
            if row:
                if len(row) != len(header):
                    raise ConfigError(f"{path}:{line}: {len(row)} cells where the header has {len(header)}")
                yield line, dict(zip(header, row, strict=True))
            line = reader.line_num + 1
    except csv.Error as error:
        raise ConfigError(f"{path}:{reader.line_num}: not CSV: {error}") from None


def _json(text: str) -> Any:
    """Decode JSON, also with NaN and lone surrogates, which some tools write."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return json.loads(text)


def _read(path: Path, most: int, encoding: str) -> str:
    try:
        with open_given(path) as stream:
            data = read_up_to(stream, most)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > most:
        raise ConfigError(f"{path}: longer than {most >> 20} MiB, the most that evalq reads")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8") from None


# Zip files of JSON, also with zstd, which Python's reader supports only from 3.14 on.

_ZSTD = 93
_MOST_BYTES = 256 << 20
_UNPACKING = (zipfile.BadZipFile, zstandard.ZstdError, zlib.error, lzma.LZMAError)
_HEADER = struct.Struct("<4s5H3I2H")


class Archive:
    """A context manager of a zip file; ``names`` are its members in order. Raises ConfigError for other files."""

    def __init__(self, path: Path) -> None:
        self._path, self._unpacked = path, 0
        try:
            self._stream: BinaryIO = open_given(path)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
        try:
            self._zip = zipfile.ZipFile(self._stream)
        except (zipfile.BadZipFile, OSError, ValueError) as error:
            self._stream.close()
            raise ConfigError(f"{path}: not a zip file: {error}") from None
        self._infos = {info.filename: info for info in self._zip.infolist()}
        self.names = list(self._infos)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()
        self._stream.close()

    def read(self, name: str) -> Any:
        """The JSON of a member. Raises ConfigError."""
        info = self._infos.get(name)
        if info is None:
            raise ConfigError(f"{self._path}: has no {name}")
        self._unpacked += info.file_size
        if self._unpacked > MOST_BYTES:
            raise ConfigError(f"{self._path}: longer than {MOST_BYTES >> 20} MiB unpacked, the most that evalq reads")
        if info.file_size > _MOST_BYTES:
            raise ConfigError(f"{self._path}: {name}: longer than {_MOST_BYTES >> 20} MiB, the most that evalq reads")
        try:
            data = self._zstd(info) if info.compress_type == _ZSTD else self._zip.read(info)
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, struct.error) as error:
            raise ConfigError(f"{self._path}: {name}: not JSON: {error}") from None
        # RuntimeError is what an encrypted member raises.
        except (*_UNPACKING, NotImplementedError, EOFError, OSError, RuntimeError, ValueError) as error:
            raise ConfigError(f"{self._path}: {name}: cannot be unpacked: {error}") from None

    def _zstd(self, info: zipfile.ZipInfo) -> bytes:
        """A member's bytes: after its local header (APPNOTE 4.3.7), as many as the directory says."""
        self._stream.seek(info.header_offset)
        *_, name, extra = _HEADER.unpack(self._stream.read(_HEADER.size))
        self._stream.seek(name + extra, 1)
        packed = self._stream.read(info.compress_size)
        # Bounded by the data, not by its own header.
        with zstandard.ZstdDecompressor().stream_reader(packed) as reader:
            data: bytes = reader.read(info.file_size + 1)
        if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
            raise zipfile.BadZipFile("damaged")
        return data
