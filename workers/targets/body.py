"""The body of a reply, read raw and within bounds: what it unpacks to is counted before it is there."""

from __future__ import annotations

import asyncio
import zlib

import httpx
import msgspec

__all__ = ["Body", "has_surplus", "read_body"]

_GZIP = 16 + zlib.MAX_WBITS
_PIECES_A_STEP = 256
"""Pieces after which other calls have their turn: a server may send a byte at a time."""
# Smaller pieces than this on average are a way to keep this process busy, not a reply.
_BYTES_A_PIECE = 64
_FREE_PIECES = 10_000


_LAYERS = ("_stream", "_httpcore_stream", "_connection")
"""Attributes by which the streams of httpx and httpcore lead to the connection."""


class Body(msgspec.Struct, frozen=True):
    """``data`` as far as it was read, and the ``fault`` for which the rest was not; "" where all is there."""

    data: bytes
    fault: str = ""


async def read_body(response: httpx.Response, most: int) -> Body:
    """At most ``most`` bytes, as sent and as unpacked. One layer of gzip is unpacked, though none was asked for.

    Raises httpx.HTTPError when the connection fails.
    """
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding not in ("", "identity", "gzip", "x-gzip"):
        return Body(
            b"", f"the reply's Content-Encoding is {coding[:40]!r}: evalq asks for identity and reads gzip only"
        )
    unpack = zlib.decompressobj(_GZIP) if "gzip" in coding else None
    data, sent, pieces = bytearray(), 0, 0
    async for piece in response.aiter_raw():
        sent, pieces = sent + len(piece), pieces + 1
        if pieces > _FREE_PIECES + most // _BYTES_A_PIECE:
            return Body(bytes(data), f"the reply comes in over {pieces - 1} pieces")
        if pieces % _PIECES_A_STEP == 0:
            await asyncio.sleep(0)
        if unpack is None:
            data += piece
        else:
            try:
                # One byte above the bound is enough to refuse it: the rest of a decompression bomb stays packed.
                data += unpack.decompress(piece, most + 1 - len(data))
            except zlib.error:
                return Body(bytes(data), "the reply is not the gzip that its Content-Encoding says")
            if unpack.unused_data:
                return Body(bytes(data), "the reply goes on behind the end of its gzip")
        if max(sent, len(data)) > most:
            return Body(bytes(data), f"the reply is longer than max_bytes, {most}")
    # An empty body is no gzip, and no fault either.
    if unpack is not None and sent and not unpack.eof:
        return Body(bytes(data), "the reply's gzip is cut off")
    return Body(bytes(data))


def has_surplus(response: httpx.Response) -> bool:
    """Whether something came behind a reply that was read to its end, or nobody can say so.

    It would be read as the answer to the next request on that connection: no client may use it again.
    """
    if "transfer-encoding" in response.headers and "content-length" in response.headers:
        return True  # two ends of one body: the server and whoever stands before it may see different ones
    stream = response.extensions.get("network_stream")
    if stream is None or stream.get_extra_info("is_readable"):
        return True
    # httpcore starts the next cycle with what h11 has read and not used, and has no public way to ask for it.
    found: object = response.stream
    while found is not None:
        state = getattr(found, "_h11_state", None)
        if state is not None:
            return bool(state.trailing_data[0])
        found = next((getattr(found, name) for name in _LAYERS if hasattr(found, name)), None)
    return True
