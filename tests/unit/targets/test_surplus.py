"""Servers that send more than one reply to a request, or less: nothing of it answers another call."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from evalq.workers.targets import Answered, Call, Caller, Failure
from evalq.workers.targets.providers.openai import OpenAiTarget
from evalq.workers.targets.target import NamedTarget
from tests.agents.server import completion

CALLS = 12
Reply = Callable[[asyncio.StreamWriter, bytes, str], Awaitable[None]]


def http(content: str, length: int | None = None, headers: str = "") -> bytes:
    """A whole reply with a completion, of the ``length`` that it claims."""
    body = json.dumps(completion(content)).encode()
    size = len(body) if length is None else len(body) + length
    return (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n{headers}\r\n".encode() + body
    )


@contextlib.asynccontextmanager
async def serving(reply: Reply) -> AsyncIterator[tuple[str, list[int]]]:
    """The address of a server, and its connections so far: how many requests each had."""
    connections: list[int] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(connections)
        connections.append(0)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                asked = json.loads(await reader.readexactly(length))["messages"][-1]["content"]
                connections[number] += 1
                await reply(writer, http(asked), asked)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", connections


def called(reply: Reply, seconds: float = 5.0) -> tuple[list[Answered | Failure], list[int]]:
    """What becomes of calls c0, c1, ..., one after the other, and the connections that they took."""

    async def go() -> tuple[list[Answered | Failure], list[int]]:
        async with serving(reply) as (url, connections):
            entry = {"kind": "openai", "base_url": url, "model": "m", "output": "text", "timeout_seconds": seconds}
            async with Caller(NamedTarget("t", OpenAiTarget.model_validate(entry), Path())) as caller:
                return [await caller.call(Call(f"c{number}")) for number in range(CALLS)], connections

    return asyncio.run(go())


async def plain(writer: asyncio.StreamWriter, right: bytes, asked: str) -> None:
    writer.write(right)
    await writer.drain()


async def two_at_once(writer: asyncio.StreamWriter, right: bytes, asked: str) -> None:
    writer.write(right + http(f"SMUGGLED by {asked}"))
    await writer.drain()


async def surplus_bytes(writer: asyncio.StreamWriter, right: bytes, asked: str) -> None:
    writer.write(right + b"\r\nHTTP/1.1 200 OK\r\nContent-Le")
    await writer.drain()


async def in_pieces(writer: asyncio.StreamWriter, right: bytes, asked: str) -> None:
    for start in range(0, len(right), 7):
        writer.write(right[start : start + 7])
        await writer.drain()
        await asyncio.sleep(0)
    writer.write(http(f"SMUGGLED by {asked}"))
    await writer.drain()


async def too_short(writer: asyncio.StreamWriter, right: bytes, asked: str) -> None:
    """The length claimed ends within the JSON; what is left begins another reply."""
    writer.write(http(asked, length=-20) + http(f"SMUGGLED by {asked}"))
    await writer.drain()


async def two_lengths(writer: asyncio.StreamWriter, right: bytes, asked: str) -> None:
    """Chunked, and with a length: the end of the body is where one likes."""
    body = json.dumps(completion(asked)).encode()
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"
    writer.write(head + f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n" + http(f"SMUGGLED by {asked}"))
    await writer.drain()


async def no_content(writer: asyncio.StreamWriter, right: bytes, asked: str) -> None:
    """A status that has no body, with one."""
    writer.write(b"HTTP/1.1 204 No Content\r\n\r\n" + http(f"SMUGGLED by {asked}"))
    await writer.drain()


async def failing(writer: asyncio.StreamWriter, right: bytes, asked: str) -> None:
    """An error with a reply behind it."""
    writer.write(b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n{}" + http(f"SMUGGLED by {asked}"))
    await writer.drain()


@pytest.mark.parametrize("reply", [two_at_once, surplus_bytes, in_pieces, too_short, two_lengths, no_content, failing])
def test_what_is_sent_behind_a_reply_answers_no_other_call(reply: Reply) -> None:
    """The connection goes with it: each call has its own answer, or none."""
    results, connections = called(reply)
    for number, result in enumerate(results):
        assert "SMUGGLED" not in result.text
        if isinstance(result, Answered):
            assert result.text == f"c{number}"
    assert max(connections) == 1, "no connection was used again"


def test_a_late_reply_answers_no_other_call() -> None:
    """After a time-out the server still answers, with what was asked before: nobody reads it."""

    async def late(writer: asyncio.StreamWriter, right: bytes, asked: str) -> None:
        if asked in ("c0", "c3"):
            await asyncio.sleep(0.6)
        writer.write(right)
        await writer.drain()

    results, _ = called(late, seconds=0.3)
    for number, result in enumerate(results):
        assert isinstance(result, Failure) == (number in (0, 3))
        assert isinstance(result, Failure) or result.text == f"c{number}"


def test_a_body_that_is_too_short_answers_no_call() -> None:
    """The server claims more than it sends, and answers the next request on the same connection: there is none."""

    async def too_long(writer: asyncio.StreamWriter, right: bytes, asked: str) -> None:
        writer.write(http(asked, length=50))
        await writer.drain()

    results, connections = called(too_long, seconds=0.1)
    assert all(isinstance(result, Failure) for result in results)
    assert max(connections) == 1


def test_a_server_that_keeps_to_http_keeps_its_connection() -> None:
    """All calls over one: that the rest is found does not cost the others anything."""
    results, connections = called(plain)
    assert [result.text for result in results] == [f"c{number}" for number in range(CALLS)]
    assert connections == [CALLS]
