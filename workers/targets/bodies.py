"""The bodies of replies over HTTP, read within limits: JSON at once, and streams of events as they come."""

from __future__ import annotations

import asyncio
import contextlib
import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx
import msgspec

from evalq.evalcore.records.json_values import MAX_ANSWER_DEPTH, deeper_than
from evalq.workers.targets.answers import begin_of
from evalq.workers.targets.events import AwsEventReader, EventReader, Joined, ServerEvent, StreamFailed

_SHOWN = 200
NO_JSON = "the reply is not JSON"

# -- the body of a reply: read raw, and limited both as sent and as unpacked ----------------------------

_GZIP = 16 + zlib.MAX_WBITS
_PIECES_A_STEP = 256
"""After this many pieces other calls get their turn, because a server may send single bytes."""
# A reply with a smaller mean piece is refused: it would only keep this process busy.
_BYTES_A_PIECE = 64
_FREE_PIECES = 10_000


_LAYERS = ("_stream", "_httpcore_stream", "_connection")
"""Attributes that lead from a stream of httpx or httpcore to its connection."""


class _BadBody(Exception):
    """Ends the reading of a body; the message says why, and ``piece`` is what came last."""

    def __init__(self, why: str, piece: bytes = b"") -> None:
        super().__init__(why)
        self.piece = piece


class _Unpacked:
    """The pieces of a body, unpacked: at most ``most`` bytes, both as sent and as unpacked. Raises _BadBody.

    evalq never asks for gzip, but some servers send it; one layer is read.
    """

    def __init__(self, response: httpx.Response, most: int) -> None:
        coding = response.headers.get("content-encoding", "").strip().lower()
        if coding not in ("", "identity", "gzip", "x-gzip"):
            raise _BadBody(
                f"the reply's Content-Encoding is {coding[:40]!r}: evalq asks for identity and reads gzip only"
            )
        self._unpack = zlib.decompressobj(_GZIP) if "gzip" in coding else None
        self._most = most
        self._sent = self._pieces = 0
        self.size = 0

    async def of(self, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Each piece, unpacked."""
        async for piece in pieces:
            yield self._taken(piece)
            if self._pieces % _PIECES_A_STEP == 0:
                await asyncio.sleep(0)
        # An empty body is not gzip, but it is valid.
        if self._unpack is not None and self._sent and not self._unpack.eof:
            raise _BadBody("the reply's gzip is cut off")

    def _taken(self, piece: bytes) -> bytes:
        self._sent, self._pieces = self._sent + len(piece), self._pieces + 1
        if self._pieces > _FREE_PIECES + self._most // _BYTES_A_PIECE:
            raise _BadBody(f"the reply comes in over {self._pieces - 1} pieces")
        if self._unpack is not None:
            try:
                # Unpack at most one byte beyond the limit: it is enough to refuse a decompression bomb.
                piece = self._unpack.decompress(piece, self._most + 1 - self.size)
            except zlib.error:
                raise _BadBody("the reply is not the gzip that its Content-Encoding says") from None
            if self._unpack.unused_data:
                raise _BadBody("the reply goes on behind the end of its gzip")
        self.size += len(piece)
        if max(self._sent, self.size) > self._most:
            raise _BadBody(f"the reply is longer than max_bytes, {self._most}", piece)
        return piece


class ReplyBody(msgspec.Struct, frozen=True):
    """The ``data`` that was read, and the ``fault`` that ended the reading early, or ""."""

    data: bytes
    fault: str = ""


async def read_body(response: httpx.Response, most: int) -> ReplyBody:
    """Read a body. Raises httpx.HTTPError if the connection fails."""
    data = bytearray()
    try:
        async for piece in _Unpacked(response, most).of(response.aiter_raw()):
            data += piece
    except _BadBody as error:
        return ReplyBody(bytes(data + error.piece), str(error))
    return ReplyBody(bytes(data))


# -- the body of a reply that is a stream of events ------------------------------------------------------

_EVENTS_LONGER = 8
"""A stream may be so many times longer than max_bytes: each few letters come with the names of all their keys."""
_END_SECONDS = 0.5
"""How long evalq waits for the end of the body, after the stream said its end."""
EVENT_STREAM = "text/event-stream"
AWS_STREAM = "application/vnd.amazon.eventstream"
_DONE = "[DONE]"


class StreamBody(msgspec.Struct):
    """What a stream gave: the ``value`` of the reply and its ``text``, or the failure, and how its text ``begin``s.

    ``seconds`` until it said its end; ``whole``: it was read to the end of its body.
    """

    value: Any = None
    failed: StreamFailed | None = None
    size: int = 0
    seconds: float = 0.0
    first_seconds: float | None = None
    whole: bool = False
    text: str = ""
    begin: str = ""


def media_type(response: httpx.Response) -> str:
    """What the reply says that it is."""
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower()


async def read_stream(response: httpx.Response, most: int, joined: Joined, began: float) -> StreamBody:
    """Read events until their end. Raises httpx.HTTPError if the connection fails before it."""
    reader, read = (AwsEventReader if media_type(response) == AWS_STREAM else EventReader)(most), StreamBody()
    try:
        body = _Unpacked(response, most * _EVENTS_LONGER)
        async with contextlib.aclosing(body.of(response.aiter_raw())) as pieces:
            async for piece in pieces:
                read.size = body.size
                if len(read.begin) < _SHOWN:
                    read.begin += piece[:_SHOWN].decode(errors="replace")
                for event in reader.feed(piece):
                    _take(joined, event)
                    if read.first_seconds is None and joined.written:
                        read.first_seconds = time.monotonic() - began
                if joined.done:
                    break
            else:
                read.whole = True
                for event in reader.end():
                    _take(joined, event)
            read.value, read.seconds = joined.value(), time.monotonic() - began
            read.text = msgspec.json.encode(read.value).decode()
            if len(read.text) > most:
                raise StreamFailed("bad_output", f"the reply is longer than max_bytes, {most}")
            if not read.whole:
                read.whole = await _rest_comes(pieces)
    except (StreamFailed, _BadBody) as error:
        read.failed = error if isinstance(error, StreamFailed) else StreamFailed("bad_output", str(error))
        read.seconds = time.monotonic() - began
    return read


async def _rest_comes(pieces: AsyncIterator[bytes]) -> bool:
    """Whether the end of the body follows the end of the stream; else its connection is not used again."""
    try:
        async with asyncio.timeout(_END_SECONDS):
            async for _ in pieces:
                pass
    except (TimeoutError, httpx.HTTPError, httpx.StreamError, _BadBody):
        return False
    return True


def _take(joined: Joined, event: ServerEvent) -> None:
    if joined.done:
        return
    if event.data.strip() == _DONE:
        joined.done = True
        return
    fault, value = decoded(event.data.encode(errors="replace"))
    if fault:
        raise StreamFailed("server", f"an event of the stream is not JSON: {begin_of(event.data)}")
    joined.take(event.type, value)


def has_surplus(response: httpx.Response) -> bool:
    """Whether bytes followed the reply, or that is unknown; the connection must not be used again then.

    The next request on that connection would take these bytes for its reply.
    """
    if "transfer-encoding" in response.headers and "content-length" in response.headers:
        return True  # two lengths: the server and a proxy may see different ends of the body
    stream = response.extensions.get("network_stream")
    if stream is None or stream.get_extra_info("is_readable"):
        return True
    # httpcore starts the next cycle with bytes that h11 has read but not used, and has no public access to them.
    found: object = response.stream
    while found is not None:
        state = getattr(found, "_h11_state", None)
        if state is not None:
            return bool(state.trailing_data[0])
        found = next((getattr(found, name) for name in _LAYERS if hasattr(found, name)), None)
    return True


# -- JSON, and what follows a body


def decoded(data: bytes) -> tuple[str, Any]:
    """("", the value of a reply), or (the fault, None)."""
    try:
        if deeper_than(MAX_ANSWER_DEPTH, data):
            return f"the reply nests deeper than {MAX_ANSWER_DEPTH} levels", None
        return "", msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return NO_JSON, None
