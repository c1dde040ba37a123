"""Zip files of JSON, also those compressed with zstd, which Python's own reader does not know before 3.14."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import msgspec
import zstandard

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.files import open_given
from evalq.producer.importing.reading import MOST_BYTES

__all__ = ["Archive"]

_ZSTD = 93
_MOST_BYTES = 256 << 20
_UNPACKING = (zipfile.BadZipFile, zstandard.ZstdError, zlib.error, lzma.LZMAError)
_HEADER = struct.Struct("<4s5H3I2H")


class Archive:
    """An open zip file; ``names`` are its members, in their order. A context. Raises ConfigError for none."""

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
            raise ConfigError(
                f"{self._path}: longer than {MOST_BYTES >> 20} MiB unpacked, which is the most that is read"
            )
        if info.file_size > _MOST_BYTES:
            raise ConfigError(
                f"{self._path}: {name}: longer than {_MOST_BYTES >> 20} MiB, which is the most that is read"
            )
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
        # Bounded by what is read of it, not by what it says of itself.
        with zstandard.ZstdDecompressor().stream_reader(packed) as reader:
            data: bytes = reader.read(info.file_size + 1)
        if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
            raise zipfile.BadZipFile("damaged")
        return data
