"""MCP servers that answer calls of tools, by the standard input and output of a process.

A server lists its own tools. One process of it serves all conversations of a `Caller`, and ends with that. If the
process dies, calls in flight have failed, and the next call starts another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import msgspec
from pydantic import Field

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.naming import shorten
from evalq.workers.processes.system import require_forks
from evalq.workers.targets.answers import Answered, Failure, begin_of
from evalq.workers.targets.command import (
    BASIC_VARIABLES,
    NOT_STARTED,
    Argument,
    how_ended,
    start_advice,
    tail_of,
)
from evalq.workers.targets.group import Group, Guard
from evalq.workers.targets.target import Name

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

    # The packages are imported when a server is started: few targets have one, and the import takes a second.
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp import Client
    from mcp.shared.message import SessionMessage
    from mcp.types import RequestParamsMeta

    Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]

_EXTRA = "an MCP server needs the package mcp, version 2: pip install 'evalq[mcp]'"
_START_SECONDS = 60.0
"""For the program to start, to greet and to list its tools."""
_REPLY_SECONDS = 20.0
"""For a reply to the greeting: a server that leaves the newer one unanswered may answer the older one."""
_GRACE_SECONDS = 2.0
"""For a server to end by itself once its input has ended."""
_MOST_TOOLS = 512
_MOST_PAGES = 100
_LEAST_LINE = 1 << 18  # the list of tools is a line, too
_ESCAPED = 4
"""A line has a result twice, as text and as data, with escapes."""


class McpServer(Params):
    """An MCP server that is started here: its program, and which of its tools the model gets."""

    kind: Literal["mcp"]
    argv: tuple[Argument, ...] = Field(min_length=1, description="The program and its arguments; no shell reads them")
    env: tuple[Name, ...] = Field(default=(), description="Variables it gets besides PATH, HOME, LANG and TMPDIR")
    only: tuple[str, ...] = Field(default=(), description="The tools that the model gets; by default all it lists")
    prefix: Annotated[str, Field(pattern=r"^([A-Za-z_][A-Za-z0-9_-]{0,31})?$")] = Field(
        default="", description="What its tools' names begin with for the model, if two servers have the same names"
    )
    timeout_seconds: float = Field(default=120.0, gt=0, le=3600, description="Longest time of a call")
    max_concurrency: int = Field(default=0, ge=0, le=100_000, description="Most calls at once; 0: no limit")
    max_bytes: int = Field(default=1 << 20, ge=1024, le=8 << 20, description="The longest result")
    max_megabytes: int = Field(default=4096, ge=16, description="Most memory of its own that it may take")


class McpTools:
    """The tools of one server; ``folder`` is that of the targets file. Opened and closed with its `ToolBox`."""

    def __init__(self, server: McpServer, folder: Path, environment: Mapping[str, str]) -> None:
        require_forks("MCP servers as tools", "have a server answer (kind: http)")
        self.server = server
        self._folder = folder
        self._environment = {name: environment[name] for name in (*BASIC_VARIABLES, *server.env) if name in environment}
        self._guard: Guard | None = None
        self._process: _Process | None = None
        self._ending: set[_Process] = set()
        self._room = asyncio.Semaphore(server.max_concurrency) if server.max_concurrency else contextlib.nullcontext()
        self._tools: list[dict[str, Any]] = []

    @property
    def address(self) -> str:
        """The program, for messages."""
        return shlex.join(self.server.argv[:3])[:100]

    @property
    def definitions(self) -> list[dict[str, Any]]:
        """{name, description, parameters} of each tool of the model, as the server listed them at `open`."""
        return self._tools

    async def open(self) -> None:
        """Start the server, and have it list its tools. Raises ConfigError."""
        try:
            await asyncio.to_thread(_import)
        except ImportError:
            raise ConfigError(_EXTRA) from None
        self._guard = Guard()
        try:
            process = await self._running()
        except _NotStarted as error:
            raise ConfigError(f"the MCP server {self.address} {error}") from None
        self._tools = self._chosen(process.tools)

    async def close(self) -> None:
        """End the process: by the end of its input, or after `_GRACE_SECONDS` by force."""
        processes = {*self._ending, *filter(None, (self._process,))}
        await asyncio.gather(*(process.close() for process in processes))
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    async def use(self, name: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]) -> Answered | Failure:
        """Call a tool by the name that the model has for it. Raises TimeoutError."""
        async with self._room:
            began = time.monotonic()
            try:
                process = await self._running()
                began = time.monotonic()
                async with asyncio.timeout(self.server.timeout_seconds):
                    result = await process.use(name.removeprefix(self.server.prefix), arguments, meta)
            except _NotStarted as error:
                return Failure(kind="server", reason=f"the MCP server {error}", latency_seconds=_since(began))
            except _CallFailed as error:
                return Failure(kind="server", reason=str(error), latency_seconds=_since(began))
        text, failed = _text_of(result)
        if len(text.encode(errors="replace")) > self.server.max_bytes:
            reason = f"the result is longer than max_bytes, {self.server.max_bytes}"
            return Failure(kind="bad_output", reason=reason, latency_seconds=_since(began))
        if failed:
            return Failure(kind="server", reason=text or "the tool failed", latency_seconds=_since(began))
        return Answered(text=text, latency_seconds=_since(began))

    def _chosen(self, listed: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The tools that the model gets. Raises ConfigError."""
        names = [str(tool["name"]) for tool in listed]
        has = ", ".join(names[:20]) or "none"
        for wanted in self.server.only:
            if wanted not in names:
                raise ConfigError(f"only: the MCP server {self.address} has no tool {wanted!r}; it has: {has}")
        if not names:
            raise ConfigError(f"the MCP server {self.address} lists no tools")
        chosen = [tool for tool in listed if not self.server.only or tool["name"] in self.server.only]
        return [
            {
                "name": f"{self.server.prefix}{tool['name']}",
                "description": tool.get("description") or tool.get("title") or "",
                # Some APIs take no object without properties.
                "parameters": {"type": "object", "properties": {}, **tool["inputSchema"]},
            }
            for tool in chosen
        ]

    async def _running(self) -> _Process:
        """The process, ready for calls: another one if it has ended. Raises _NotStarted."""
        if self._process is None or self._process.over:
            assert self._guard is not None
            self._ending = {each for each in (*self._ending, self._process) if each is not None and not each.reaped}
            self._process = _Process(self.server, self._folder, self._environment, self._guard)
        process = self._process
        # Others wait for the same start: a cancelled call does not end it.
        await asyncio.shield(process.ready)
        return process


def _import() -> None:
    from mcp import Client  # noqa: F401 - version 1 has none


def _since(began: float) -> float:
    return time.monotonic() - began


def _text_of(result: Mapping[str, Any]) -> tuple[str, bool]:
    """A result as the text that the model reads, and whether it is an error."""
    parts = [_part(part) for part in result.get("content") or ()]
    if not parts and result.get("structuredContent") is not None:
        parts = [msgspec.json.encode(result["structuredContent"]).decode()]
    return "\n".join(parts), bool(result.get("isError"))


def _part(part: Mapping[str, Any]) -> str:
    held = part.get("resource")
    resource = held if isinstance(held, Mapping) else {}
    text = part.get("text", resource.get("text"))
    if isinstance(text, str):
        return text
    # No text: what it is, without its data.
    about = [part.get("type"), part.get("mimeType") or resource.get("mimeType"), part.get("uri") or resource.get("uri")]
    data = part.get("data") or resource.get("blob")
    size = f"{len(data)} characters of base64" if isinstance(data, str) else None
    return f"[{', '.join(str(each) for each in (*about, size) if each)}]"


# -- the process ----------------------------------------------------------------------------------------


class _NotStarted(Exception):
    """The server did not start; the message says why."""


class _CallFailed(Exception):
    """A call has no result; the message says why."""


class _Process:
    """One process of a server, which starts at once, and the session with it."""

    def __init__(self, server: McpServer, folder: Path, environment: Mapping[str, str], guard: Guard) -> None:
        self._server = server
        self._folder = folder
        self._environment = environment
        self._guard = guard
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.tools: list[dict[str, Any]] = []
        self.over = False
        """Whether it takes no more calls."""
        self._how = self._noise = ""
        self._hung_up = False
        self._errors = b""
        self._client: Client | None = None
        self._end = asyncio.Event()
        # A session is entered and left in one task, as its library wants it.
        self._task = asyncio.create_task(self._run(), name="evalq-mcp")

    @property
    def reaped(self) -> bool:
        """Whether nothing of it is left."""
        return self._task.done()

    async def close(self) -> None:
        """End it, and wait until it has ended."""
        self._end.set()
        if not self.ready.done():
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def use(self, name: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
        """A tool's result as the protocol has it. Raises _CallFailed."""
        from mcp import MCPError

        assert self._client is not None
        try:
            result = await self._client.call_tool(
                name, dict(arguments), self._server.timeout_seconds + 1, meta=cast("RequestParamsMeta", dict(meta))
            )
        except Exception as error:  # of many kinds: of the server, of the connection, of a result that is none
            if self.over:
                await asyncio.gather(asyncio.shield(self._task), return_exceptions=True)
                raise _CallFailed(f"during the call the MCP server {self._how}") from None
            said = error.message if isinstance(error, MCPError) else f"{type(error).__name__}: {begin_of(str(error))}"
            raise _CallFailed(said) from None
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)

    async def _run(self) -> None:
        try:
            command = self._guard.command(self._server.argv, data_megabytes=self._server.max_megabytes)
            group = Group(
                *command, env=self._environment, limit=_LEAST_LINE + _ESCAPED * self._server.max_bytes,
                cwd=self._folder, pass_fds=self._guard.descriptors,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            self._fail(f"cannot be started: {error}")
            return
        try:
            async with asyncio.timeout(_START_SECONDS) as limit:
                await self._serve(group, limit)
        except TimeoutError:
            self._how = f"did not list its tools within {_START_SECONDS:g} s"
        except Exception as error:  # the session's library raises what it may, in groups
            if not self._hung_up:
                self._how = self._how or f"cannot be used as an MCP server: {_first(error)}"
        finally:
            self.over = True
            # Shielded: a cancelled task has to reap the process, too.
            self._how = self._said(await asyncio.shield(group.end()))
            self._fail(self._how)

    async def _serve(self, group: Group, limit: asyncio.Timeout) -> None:
        """Greet, list the tools, and keep the session until either side ends it."""
        from mcp import Client

        async with Client(self._streams(group), read_timeout_seconds=_REPLY_SECONDS, cache=None) as client:
            self._client = client
            self.tools = await _listed(client)
            limit.reschedule(None)
            if not self.ready.done():
                self.ready.set_result(None)
            await self._end.wait()

    def _said(self, code: int) -> str:
        """How it ended, with what it said last."""
        program = self._server.argv[0]
        missing = code in NOT_STARTED and start_advice(program, self._folder, self._environment.get("PATH"))
        # Killed by this process, for what it did: then the exit code says nothing.
        how = self._how or ("cannot be started" if missing else how_ended(code))
        said = tail_of(self._errors.decode(errors="replace"))
        noisy = self._noise and not self.tools
        noise = f"its standard output has what is no message: {self._noise!r}" if noisy else ""
        return "; ".join(part for part in (f"{how}: {said}" if said else how, missing, noise) if part)

    def _fail(self, reason: str) -> None:
        self.over = True
        if not self.ready.done():
            self.ready.set_exception(_NotStarted(reason))
            self.ready.exception()  # nobody may wait for it

    @contextlib.asynccontextmanager
    async def _streams(self, group: Group) -> AsyncIterator[Streams]:
        """The messages of the session, from and to the process's pipes."""
        import anyio

        stdin, (stdout, stderr) = await group.pipes()
        arriving, read = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
        write, leaving = anyio.create_memory_object_stream["SessionMessage"](0)
        tasks = [
            asyncio.create_task(work, name="evalq-mcp-pipe")
            for work in (self._receive(stdout, arriving), self._send(leaving, stdin), self._note(stderr))
        ]
        try:
            yield read, write
        finally:
            self.over = True
            stdin.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_SECONDS):
                    await group.ended()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for stream in (read, write, arriving, leaving):
                stream.close()

    async def _receive(
        self, stdout: StreamReader, arriving: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        """Pass on what the server says; the end of its output is the end of the session."""
        from mcp.shared.message import SessionMessage
        from mcp.types import jsonrpc_message_adapter

        most = f"the result is longer than max_bytes, {self._server.max_bytes}"
        try:
            async for line, whole in _lines(stdout):
                if not whole and (found := _ID.search(line)) is not None:
                    # So that its call fails, and no other.
                    line = b'{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"%s"}}' % (
                        found[1], most.encode(),
                    )  # fmt: skip
                elif not whole:
                    self._how = f"was ended: it wrote a line that is longer than max_bytes, {self._server.max_bytes}"
                    break
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    self._noise = self._noise or shorten(begin_of(line.decode(errors="replace")), 80)
                    continue
                await arriving.send(SessionMessage(message))
            else:
                self._hung_up = not self.over
        finally:
            self.over = True
            arriving.close()
            self._end.set()

    async def _send(self, leaving: MemoryObjectReceiveStream[SessionMessage], stdin: StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):  # `_receive` sees the end
            async for each in leaving:
                stdin.write(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await stdin.drain()

    async def _note(self, stderr: StreamReader) -> None:
        """Keep the end of what it says to its standard error: a server whose pipe is full would stand still."""
        while piece := await stderr.read(1 << 16):
            self._errors = (self._errors + piece)[-1000:]


_ID = re.compile(rb'^.{0,100}?"id"\s*:\s*(\d{1,15})[,}]', re.DOTALL)
"""The number of the call that a reply answers, near the begin of its line."""


async def _lines(stdout: StreamReader) -> AsyncIterator[tuple[bytes, bool]]:
    """(line, True) of each line that is not blank; (its begin, False) of one that is longer than the reader takes."""
    begin = b""
    while True:
        try:
            line = await stdout.readuntil(b"\n")
        except asyncio.LimitOverrunError as error:
            dropped = await stdout.readexactly(error.consumed)
            begin = begin or dropped[:200]
            continue
        except asyncio.IncompleteReadError as error:
            if error.partial.strip() and not begin:
                yield error.partial, True
            return
        if begin:
            yield begin, False
            begin = b""
        elif line.strip():
            yield line, True


async def _listed(client: Client) -> list[dict[str, Any]]:
    """The tools of a server, as the protocol has them."""
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return found
        if len(found) > _MOST_TOOLS:
            break
    raise ValueError(f"it lists more than {_MOST_TOOLS} tools, or more than {_MOST_PAGES} pages of them")


def _first(error: BaseException) -> str:
    """The message of an error, or of the first in a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return begin_of(str(error)) or type(error).__name__
