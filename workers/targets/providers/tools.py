"""Tools that a model may call in a live answer: their definitions, and who answers their calls.

A provider's model gets the definitions. Canned results of the case answer its calls, or a target of kind python,
command or http that gets the tool's name and arguments. With ``stop`` nobody does: the call is the answer's end.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.contract.params import validate
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.records.json_values import NoJson, extract
from evalq.evalcore.records.tool_calls import ToolCall
from evalq.workers.targets.answers import Call, Failure
from evalq.workers.targets.target import Client, Target

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

    definitions: tuple[ToolDefinition, ...] = Field(min_length=1, description="{name, description, parameters} of each")
    answered_by: Literal["stop", "canned"] | dict[str, Any] = Field(
        default="stop",
        description="`stop`: a call ends the answer. `canned`: the case's `tool_results`. Or an entry of kind python, "
        "command or http, which gets {name, arguments, case, repeat} of a call",
    )
    max_turns: int = Field(default=10, ge=1, le=1000, description="Most calls of the model for one turn of the user")

    @field_validator("answered_by")
    @classmethod
    def _can_answer(cls, value: Any) -> Any:
        if isinstance(value, dict):
            try:
                _answering(value)
            except ConfigError as error:
                raise PydanticCustomError("tools", "{why}", {"why": str(error)}) from None
        return value

    @property
    def target(self) -> Target | None:
        """The target that answers calls; None if there is none."""
        return _answering(self.answered_by) if isinstance(self.answered_by, dict) else None

    def granted(self) -> tuple[str, ...]:
        """The environment variables that the program of its target gets."""
        target = self.target
        return target.granted() if target is not None else ()


def _answering(entry: Mapping[str, Any]) -> Target:
    """The target of an entry in ``answered_by``. Raises ConfigError."""
    kind = entry.get("kind")
    if not isinstance(kind, str) or kind not in _ANSWERING:
        raise ConfigError(f"kind: must be one of {', '.join(_ANSWERING)}; or write stop or canned")
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


class ToolBox:
    """Answers the calls of one target's tools; opened and closed with its `Caller`."""

    def __init__(self, tools: Tools, folder: Path, environment: Mapping[str, str]) -> None:
        self._tools = tools
        self._target = tools.target
        self._client: Client | None = None
        if self._target is not None:
            self._client = self._target.client(folder, None, environment)

    @property
    def max_turns(self) -> int:
        """Most calls of the model for one turn of the user."""
        return self._tools.max_turns

    @property
    def answers(self) -> bool:
        """Whether anybody answers a call: else it is the end of the answer."""
        return self._tools.answered_by != "stop"

    async def open(self) -> None:
        """Prepare for calls. Raises ConfigError."""
        if self._client is not None:
            await self._client.open()

    async def close(self) -> None:
        """Release all resources."""
        if self._client is not None:
            await self._client.close()

    async def answer(self, call: ToolCall, asked: Call, canned: Sequence[Mapping[str, Any]]) -> ToolCall:
        """The call with its result, or with the error that the model is shown. Never raises for a call."""
        if call.unread:
            return call._replace(error=f"the arguments cannot be read: {call.unread}", seconds=0.0)
        if call.name not in {each.name for each in self._tools.definitions}:
            return call._replace(error=f"there is no tool {call.name!r}", seconds=0.0)
        if self._client is None or self._target is None:
            return _canned(call, canned)
        began = time.monotonic()
        request = ToolRequest(
            prompt=msgspec.json.encode(call.arguments).decode(), case=asked.case, repeat=asked.repeat,
            traceparent=asked.traceparent, name=call.name, arguments=call.arguments,
        )  # fmt: skip
        try:
            result = await _within(self._client, request, self._target)
        except TimeoutError:
            spent = self._target.timeout_seconds
            return call._replace(error=f"no answer within {spent:g} s (timeout_seconds)", seconds=spent)
        except Exception as error:  # a tool that fails must not end the process that makes all calls
            return call._replace(error=f"{type(error).__name__}: {error}", seconds=time.monotonic() - began)
        if isinstance(result, Failure):
            return call._replace(error=result.reason, seconds=result.latency_seconds)
        return call._replace(result=_value(result.text), seconds=result.latency_seconds)


async def _within(client: Client, request: ToolRequest, target: Target) -> Any:
    import asyncio

    if target.times_itself:
        return await client.call(request)
    async with asyncio.timeout(target.timeout_seconds):
        return await client.call(request)


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
