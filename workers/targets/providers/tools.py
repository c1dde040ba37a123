"""Tools that a model may call in a live answer: their definitions, and who answers their calls.

A provider's model gets the definitions. Canned results of the case answer its calls, or a target of kind python,
command or http that gets the tool's name and arguments, or an MCP server, which defines its tools itself. With
``stop`` nobody does: the call is the answer's end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import msgspec
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.contract.params import validate
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.naming import shorten
from evalq.evalcore.records.json_values import NoJson, extract
from evalq.evalcore.records.tool_calls import ToolCall
from evalq.workers.targets.answers import Answered, Call, Failure
from evalq.workers.targets.providers.mcp_server import McpServer, McpTools
from evalq.workers.targets.target import Client, Target

_Answering = Literal["stop", "canned"] | dict[str, Any]
_ANSWERING = {"python": "PythonTarget", "command": "CommandTarget", "http": "HttpTarget"}
"""{kind: its model} of the targets that may answer calls of tools."""


class ToolDefinition(Params):
    """A tool as the model learns of it."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,63}$")]
    description: str = ""
    parameters: dict[str, Any] = Field(
        default_factory=lambda: {"type": "object", "properties": {}}, description="JSON schema of its arguments"
    )


class Tools(Params):
    """The tools of a target, who answers their calls, and how often the model may go on."""

    answered_by: _Answering | tuple[_Answering, ...] = Field(
        default="stop",
        description="`stop`: a call ends the answer. `canned`: the case's `tool_results`. An entry of kind python, "
        "command or http, which gets {name, arguments, case, repeat} of a call. An entry of kind mcp: a server, which "
        "has definitions of its own. Or a list of servers, and of one that answers `definitions`",
    )
    definitions: tuple[ToolDefinition, ...] = Field(
        default=(), validate_default=True, description="{name, description, parameters} of each tool"
    )
    max_turns: int = Field(default=10, ge=1, le=1000, description="Most calls of the model for one turn of the user")

    @field_validator("answered_by", mode="before")
    @classmethod
    def _names_somebody(cls, value: Any) -> Any:
        for each in value if isinstance(value, list | tuple) else (value,):
            if not isinstance(each, Mapping) and each not in ("stop", "canned"):
                wanted = "stop, canned, an entry such as {kind: mcp, argv: [...]}, or a list of these"
                raise PydanticCustomError("tools", "{found} where one of these is wanted: {wanted}",
                                          {"found": shorten(repr(each), 40), "wanted": wanted})  # fmt: skip
        return tuple(value) if isinstance(value, list) else value

    @field_validator("answered_by")
    @classmethod
    def _can_answer(cls, value: Any) -> Any:
        try:
            others = [each for each in _entries(value) if not isinstance(_answering(each), McpServer)]
        except ConfigError as error:
            raise PydanticCustomError("tools", "{why}", {"why": str(error)}) from None
        if isinstance(value, tuple) and not value:
            raise PydanticCustomError("tools", "names nobody: write stop, canned or an entry")
        if len(others) > 1:
            raise PydanticCustomError("tools", "has {n} that answer `definitions`; one can", {"n": len(others)})
        return value

    @field_validator("definitions")
    @classmethod
    def _are_answered(cls, value: tuple[ToolDefinition, ...], info: ValidationInfo) -> tuple[ToolDefinition, ...]:
        names = [each.name for each in value]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise PydanticCustomError("tools", "{name} is defined twice", {"name": twice})
        if "answered_by" in info.data:
            entries = [_answering(each) for each in _entries(info.data["answered_by"])]
            servers = sum(isinstance(each, McpServer) for each in entries)
            if value and servers == len(entries):
                raise PydanticCustomError(
                    "tools", "nobody answers these: add stop, canned or an entry to `answered_by`, beside the server"
                )
            if not value and servers < len(entries):
                raise PydanticCustomError("tools", "Must have at least one; only MCP servers have tools of their own")
        return value

    @property
    def servers(self) -> list[McpServer]:
        """The MCP servers."""
        return [each for each in map(_answering, _entries(self.answered_by)) if isinstance(each, McpServer)]

    @property
    def other(self) -> str | Target | None:
        """Who answers calls of ``definitions``: `stop`, `canned` or a target; None without definitions."""
        entries = map(_answering, _entries(self.answered_by))
        return next((each for each in entries if not isinstance(each, McpServer)), None)

    def granted(self) -> tuple[str, ...]:
        """The environment variables that its programs get."""
        target = self.other
        return (
            *(target.granted() if isinstance(target, Target) else ()),
            *(name for server in self.servers for name in server.env),
        )


def _entries(answered_by: Any) -> tuple[Any, ...]:
    return answered_by if isinstance(answered_by, tuple) else (answered_by,)


def _answering(entry: str | Mapping[str, Any]) -> str | Target | McpServer:
    """What an entry in ``answered_by`` says. Raises ConfigError."""
    if isinstance(entry, str):
        return entry
    kind = entry.get("kind")
    if kind == "mcp":
        return validate(McpServer, dict(entry), "answered_by", show_values=False)
    if not isinstance(kind, str) or kind not in _ANSWERING:
        raise ConfigError(f"kind: must be one of {', '.join(_ANSWERING)}, mcp; or write stop or canned")
    model: type[Target] = getattr(import_module(f"evalq.workers.targets.{kind}"), _ANSWERING[kind])
    target = validate(model, dict(entry), "answered_by", show_values=False)
    if target.api_key_env is not None:
        raise ConfigError("api_key_env: a tool gets no key; have its program read one that `env` names")
    return target


class ToolRequest(Call, frozen=True):
    """A call of a tool, for the target that answers it."""

    name: str = ""
    arguments: Any = None

    def __hash__(self) -> int:
        """The hash, without the arguments, which are not hashable; the prompt is their JSON."""
        return hash((self.name, self.prompt, self.case, self.repeat))

    def values(self, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What a program or a function gets."""
        known = {"name": self.name, "arguments": self.arguments, "case": self.case, "repeat": self.repeat}
        more: dict[str, Any] = {"traceparent": self.traceparent} if self.traceparent else {}
        return {**known, **more, **({"parameters": dict(parameters)} if parameters else {})}


class TakesTools(Protocol):
    """A client of a model that can be offered tools."""

    def offer(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """Send these {name, description, parameters} with each call."""


class ToolBox:
    """Answers the calls of one target's tools; opened and closed with its `Caller`."""

    def __init__(self, tools: Tools, folder: Path, environment: Mapping[str, str]) -> None:
        self._tools = tools
        self._stops, self._canned = tools.other == "stop", tools.other == "canned"
        self._target = tools.other if isinstance(tools.other, Target) else None
        self._client: Client | None = None
        if self._target is not None:
            self._client = self._target.client(folder, None, environment)
        self._servers = [McpTools(server, folder, environment) for server in tools.servers]
        self._by_name: dict[str, McpTools | None] = {each.name: None for each in tools.definitions}

    @property
    def max_turns(self) -> int:
        """Most calls of the model for one turn of the user."""
        return self._tools.max_turns

    @property
    def answers(self) -> bool:
        """Whether anybody answers calls: else each is the end of the answer."""
        return bool(self._servers) or not self._stops

    def ends(self, names: Iterable[str]) -> bool:
        """Whether calls of tools with these ``names`` are the end of the answer, as nobody answers one of them."""
        if not self._servers:
            return not self.answers
        return self._stops and any(name in self._by_name and self._by_name[name] is None for name in names)

    def repeats(self, call: ToolCall) -> bool:
        """Whether a call may be answered twice, with the same result and without effects."""
        return self._canned and self._by_name.get(call.name) is None

    async def open(self, client: TakesTools) -> None:
        """Prepare for calls, and offer the ``client`` the tools that servers have. Raises ConfigError."""
        if self._client is not None:
            await self._client.open()
        if not self._servers:
            return
        # All at once: a server may take seconds to start.
        opened = await asyncio.gather(*(server.open() for server in self._servers), return_exceptions=True)
        for error in filter(None, opened):
            raise error
        offered = [each.model_dump() for each in self._tools.definitions]
        for server in self._servers:
            for tool in server.definitions:
                if tool["name"] in self._by_name:
                    raise ConfigError(
                        f"the tool {tool['name']!r} of the MCP server {server.address} has the name of another one; "
                        "choose tools with `only`, or give the server's names a `prefix`"
                    )
                offered.append(_defined(tool, server.address))
                self._by_name[tool["name"]] = server
        client.offer(offered)

    async def close(self) -> None:
        """Release all resources."""
        try:
            await asyncio.gather(*(server.close() for server in self._servers))
        finally:
            if self._client is not None:
                await self._client.close()

    async def answer(self, call: ToolCall, asked: Call, canned: Sequence[Mapping[str, Any]]) -> ToolCall:
        """The call with its result, or with the error that the model is shown. Never raises for a call."""
        if call.unread:
            return call._replace(error=f"the arguments cannot be read: {call.unread}", seconds=0.0)
        if call.name not in self._by_name:
            return call._replace(error=f"there is no tool {call.name!r}", seconds=0.0)
        server = self._by_name[call.name]
        answerer = self._target if server is None else server.server
        if answerer is None:
            return _canned(call, canned)
        began = time.monotonic()
        try:
            result = await (self._asked(call, asked) if server is None else _served(server, call, asked))
        except TimeoutError:
            spent = answerer.timeout_seconds
            return call._replace(error=f"no answer within {spent:g} s (timeout_seconds)", seconds=spent)
        except Exception as error:  # a tool that fails must not end the process that makes all calls
            return call._replace(error=f"{type(error).__name__}: {error}", seconds=time.monotonic() - began)
        if isinstance(result, Failure):
            return call._replace(error=result.reason, seconds=result.latency_seconds)
        return call._replace(result=_value(result.text), seconds=result.latency_seconds)

    async def _asked(self, call: ToolCall, asked: Call) -> Answered | Failure:
        assert self._client is not None
        assert self._target is not None
        request = ToolRequest(
            prompt=msgspec.json.encode(call.arguments).decode(), case=asked.case, repeat=asked.repeat,
            traceparent=asked.traceparent, name=call.name, arguments=call.arguments,
        )  # fmt: skip
        async with asyncio.timeout(None if self._target.times_itself else self._target.timeout_seconds):
            return await self._client.call(request)


async def _served(server: McpTools, call: ToolCall, asked: Call) -> Answered | Failure:
    meta = {"evalq/case": asked.case, "evalq/repeat": asked.repeat, **asked.headers}
    return await server.use(call.name, call.arguments, meta)


def _defined(tool: dict[str, Any], address: str) -> dict[str, Any]:
    """The definition of a server's tool. Raises ConfigError for one that no model may get."""
    try:
        return validate(ToolDefinition, tool, "tool", show_values=False).model_dump()
    except ConfigError:
        raise ConfigError(
            f"the MCP server {address} has a tool whose name no model takes: {shorten(tool['name'], 80)!r}; leave it "
            "out with `only`"
        ) from None


def _value(text: str) -> Any:
    """What a tool gave: an object or a list as data, anything else as the text that it is."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return extract(text)
    except NoJson:
        return text


def _canned(call: ToolCall, canned: Sequence[Mapping[str, Any]]) -> ToolCall:
    """The call with the first canned result for its name and arguments."""
    for each in canned:
        if each.get("name") != call.name:
            continue
        wanted = each.get("arguments") or {}
        if all(key in call.arguments and _same(call.arguments[key], value) for key, value in wanted.items()):
            if each.get("error") is not None:
                return call._replace(error=str(each["error"]), seconds=0.0)
            return call._replace(result=each.get("result"), seconds=0.0)
    return call._replace(error=f"the case has no result for this call of {call.name}", seconds=0.0)


def _same(one: Any, other: Any) -> bool:
    return canonical_json(one) == canonical_json(other)
