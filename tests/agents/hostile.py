"""Replies that are made to take a caller's memory or time: each is a few kilobytes, or has no end."""

from __future__ import annotations

import asyncio
import gzip
import json
import struct
import zlib
from collections.abc import Callable

import zstandard


def _bomb(megabytes: int) -> bytes:
    """So much JSON text as one gzip: one piece, packed so that it can be repeated, since to pack all takes long."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    piece = b" " * (1 << 20)
    packed = packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
    check = 0
    for _ in range(megabytes):
        check = zlib.crc32(piece, check)
    end = packer.flush() + struct.pack("<II", check, megabytes << 20)
    return gzip.compress(b"")[:10] + packed * megabytes + end


def _zstd(size: int) -> bytes:
    packer = zstandard.ZstdCompressor(level=3).compressobj()
    piece = b" " * (1 << 20)
    return b"".join(packer.compress(piece) for _ in range(size >> 20)) + packer.flush()


def _said(content: str) -> bytes:
    return json.dumps({"choices": [{"message": {"content": content}}], "usage": {}}).encode()


def _deep() -> bytes:
    return b'{"choices":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


_BODIES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "gzip": ("gzip", lambda: gzip.compress(_said('{"a": 1}'))),
    "gzip bomb": ("gzip", lambda: _bomb(256)),
    "gzip, gzip": ("gzip, gzip", lambda: gzip.compress(_bomb(256))),
    "zstd": ("zstd", lambda: _zstd(256 << 20)),
    "br": ("br", lambda: b"\x0b\x02\x80{}\x03"),
    "no gzip": ("gzip", lambda: _said("{}")),
    "cut gzip": ("gzip", lambda: gzip.compress(_said("{}"))[:-9]),
    "two gzips": ("gzip", lambda: gzip.compress(_said("{}")) + gzip.compress(b" ")),
    "deep": ("", _deep),
    "fences": ("", lambda: _said("```json\n" * 200_000)),
    "spaces": ("", lambda: _said("```" + " " * 1_000_000 + "x")),
}
HOSTILE = (*_BODIES, "headers", "pieces", "drip", "ssh")
_made: dict[str, bytes] = {}


async def hostile(kind: str, writer: asyncio.StreamWriter) -> None:
    """Send the reply of that kind; it is made once."""
    if kind in _BODIES:
        coding, make = _BODIES[kind]
        body = _made.get(kind) or _made.setdefault(kind, make())
        coded = f"content-encoding: {coding}\r\n" if coding else ""
        writer.write(f"HTTP/1.1 200 OK\r\n{coded}content-length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        return
    if kind == "ssh":
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
        await writer.drain()
        return
    writer.write(b"HTTP/1.1 200 OK\r\n")
    if kind == "pieces":
        writer.write(b"transfer-encoding: chunked\r\n\r\n")
    while True:
        if kind == "headers":
            writer.write(b"x-more: " + b"y" * 1000 + b"\r\n")
        elif kind == "pieces":
            writer.write(b"1\r\n \r\n" * 1000)
        else:
            writer.write(b"x")
            await asyncio.sleep(0.05)
        await writer.drain()
