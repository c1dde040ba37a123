"""Targets of kinds openai and embeddings: chat completions, and a vector for a text, as OpenAI's server gives them."""

from __future__ import annotations

import base64
import contextlib
import struct
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec
from pydantic import Field

from evalq.evalcore.contract.params import MAX_FILE_CHARACTERS
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.model.calls import pack_vector
from evalq.evalcore.records.answers import BadAnswer, Envelope, read_envelope, text_of
from evalq.evalcore.records.json_values import NothingThere, find_at
from evalq.evalcore.trust import Thing, Writer, allows
from evalq.workers.targets.answers import Answered, Call, Failure, begin_of
from evalq.workers.targets.http import (
    BaseUrl,
    Headers,
    PostingClient,
    bad_reply,
    fill,
    secrets_of,
    served_by,
    shown,
    text_or_none,
    token_counts,
    usage_counts,
    value_at,
)
from evalq.workers.targets.target import Client, RequestTarget, files_of, resolved, usable_name

if TYPE_CHECKING:
    from evalq.workers.targets.web import Reply  # with httpx, which takes a while to import


class _ServerTarget(RequestTarget):
    """What both kinds have."""

    kind: Literal["openai", "embeddings"]
    base_url: BaseUrl
    model: str = Field(min_length=1, description="The model's name")
    headers: Headers = Field(default_factory=dict, description="Further headers (their values are never shown)")

    def address(self) -> str:
        """Its URL without what may be secret in it, and the model."""
        return f"{shown(self.base_url)} {self.model}"

    def secrets(self) -> Iterator[str]:
        """The secrets in its headers and URL."""
        return secrets_of(self.base_url, self.headers)


class OpenAiTarget(_ServerTarget):
    """Any endpoint that speaks chat completions."""

    keys: ClassVar = ("model", "system_prompt", "json_mode", "json_schema")
    fixed: ClassVar = ("messages", "stream", "n")

    kind: Literal["openai"]
    base_url: BaseUrl = Field(description="The address before /chat/completions, such as http://127.0.0.1:8000/v1")
    system_prompt: str | None = Field(
        default=None, description="A file next to or below the targets file; {agent} stands for the call's agent"
    )
    json_mode: bool = Field(default=False, description="Ask for a JSON object by response_format")
    json_schema: str | None = Field(
        default=None, description="A JSON schema file to ask for, next to or below this one"
    )

    def files(self) -> Mapping[str, str | None]:
        """The prompt and the schema."""
        return {"system_prompt": self.system_prompt, "json_schema": self.json_schema}

    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Client:
        """How it is called."""
        return OpenAiClient(self, folder, key)


class OpenAiClient(PostingClient):
    """Calls of a target of kind openai."""

    def __init__(self, target: OpenAiTarget, folder: Path, key: str | None) -> None:
        super().__init__(target.base_url.rstrip("/") + "/chat/completions", target.headers, key, target.max_bytes)
        self._target = target
        self._folder = folder
        # Read once per process: a prompt file that is edited while a sweep runs must not change half of its calls.
        self._system = cache(self._read_system)
        self._texts: dict[Path, str] = {}
        self._fixed = {"model": target.model, **target.options, **self._response_format()}

    async def open(self) -> None:
        """Read the prompts of all agents: what is recorded has the digest of those that are there now."""
        for path in files_of(self._folder, self._target.system_prompt) if self._target.system_prompt else ():
            with contextlib.suppress(ConfigError):  # a call of that agent reports it
                self._texts[resolved(path)] = _file(self._folder, str(path))

    async def call(self, call: Call) -> Answered | Failure:
        """One completion, its first choice."""
        try:
            system = self._system(call.agent if "{agent}" in (self._target.system_prompt or "") else "")
        except ConfigError as error:
            return Failure(kind="refused", reason=str(error))
        messages = [{"role": "system", "content": fill(system, call.fillings())}] if system else []
        reply = await self._web.post({**self._fixed, "messages": [*messages, *call.chat]}, call.headers)
        return reply if isinstance(reply, Failure) else self._read(reply)

    def _read(self, reply: Reply) -> Answered | Failure:
        try:
            choice = find_at(reply.value, ("choices", 0))
            message = find_at(choice, ("message",))
        except NothingThere as error:
            # Some other service's JSON: nothing that the model wrote.
            what = f"not a chat completion: {error}; check base_url; the reply begins: {begin_of(reply.text)}"
            return bad_reply(reply, what, reply.text, kind="server")
        reason, refusal = (
            text_or_none(value_at(choice, ("finish_reason",))),
            text_or_none(value_at(message, ("refusal",))),
        )
        content = value_at(message, ("content",))
        said = text_of(content) if isinstance(content, str | list) else None
        fault: dict[str, Any] = {}
        envelope = None
        # Before the content is asked for, which a refusal may lack.
        if refusal or reason == "content_filter":
            fault = {"kind": "refused", "reason": f"the model refuses: {(refusal or 'content filter')[:200]}"}
        else:
            try:
                envelope = _envelope(message, said, reason)
            except BadAnswer as error:
                fault = {"kind": "bad_output", "reason": f"choices[0].message.{error}"}
            if envelope is None and said is None and not fault:
                fault = {"kind": "bad_output", "reason": "the completion has no text in message.content"}
        shared: dict[str, Any] = {
            "latency_seconds": reply.seconds,
            "finish_reason": reason,
            "limits": reply.limits,
            **usage_counts(reply, value_at(reply.value, ("usage",))),
            **served_by(reply.value, "model", "system_fingerprint", "provider"),
        }
        if fault:
            return Failure(text=said if said is not None else reply.text, **fault, **shared)
        return Answered(text=said or "", envelope=envelope, **shared)

    def _response_format(self) -> dict[str, Any]:
        if self._target.json_schema:
            try:
                schema = msgspec.json.decode(_file(self._folder, self._target.json_schema).encode())
            except (msgspec.DecodeError, RecursionError) as error:
                raise ConfigError(f"{self._target.json_schema}: json_schema is not JSON: {error}") from None
            return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}
        return {"response_format": {"type": "json_object"}} if self._target.json_mode else {}

    def _read_system(self, agent: str) -> str:
        """The system prompt for an agent; read once. Raises ConfigError."""
        name = self._target.system_prompt
        if name is None:
            return ""
        # An agent's name comes from a golden set: "../.." in it must not lead to another file.
        if "{agent}" in name and not usable_name(agent):
            raise ConfigError(f"system_prompt: {agent[:64]!r} cannot be an agent's name in a file name")
        file = name.replace("{agent}", agent)
        known = self._texts.get(resolved(self._folder / file))
        return _file(self._folder, file) if known is None else known


def _envelope(message: Any, said: str | None, reason: str | None) -> Envelope | None:
    """What a message does beside its text; None for a text alone. Raises BadAnswer."""
    calls = value_at(message, ("tool_calls",)) or ()
    called = value_at(message, ("function_call",))  # before there were tools
    listed = [*calls, called] if called and isinstance(calls, list | tuple) else calls
    if not listed:
        return None
    return read_envelope({"output": said or None, "tool_calls": listed, "finish": reason})


def _file(folder: Path, name: str) -> str:
    """A file of the targets file's folder; a link out of it does not lead there. Raises ConfigError."""
    path = resolved(folder / name)
    if not allows(Writer.CASES_FILE, Thing.PATH, path, (folder,)):
        raise ConfigError(f"{name}: not in the targets file's folder")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    if len(text) > MAX_FILE_CHARACTERS:
        raise ConfigError(f"{name}: longer than {MAX_FILE_CHARACTERS >> 20} MiB")
    return text


# -- the kind embeddings ---------------------------------------------------------------------------

_SHOWN = 2000


class EmbeddingsTarget(_ServerTarget):
    """Any endpoint that gives embeddings. Its answers are {"vector": ...}, a signed byte a dimension in base64."""

    keys: ClassVar = ("model",)
    fixed: ClassVar = ("input",)

    kind: Literal["embeddings"]
    base_url: BaseUrl = Field(description="The address before /embeddings, such as http://127.0.0.1:8000/v1")

    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Client:
        """How it is called."""
        return EmbeddingsClient(self, key)


class EmbeddingsClient(PostingClient):
    """Calls of a target of kind embeddings."""

    def __init__(self, target: EmbeddingsTarget, key: str | None) -> None:
        super().__init__(target.base_url.rstrip("/") + "/embeddings", target.headers, key, target.max_bytes)
        self._fixed = {"model": target.model, "encoding_format": "float", **target.options}

    async def call(self, call: Call) -> Answered | Failure:
        """The vector of the prompt: of floats as JSON, or as base64 of those of 32 bits."""
        reply = await self._web.post({**self._fixed, "input": call.prompt})
        if isinstance(reply, Failure):
            return reply
        try:
            vector = pack_vector(_floats(find_at(reply.value, ("data", 0, "embedding"))))
        except (NothingThere, ValueError) as error:
            return bad_reply(reply, f"not an embedding: {error}", reply.text[:_SHOWN])
        return Answered(
            text=msgspec.json.encode({"vector": vector}).decode(),
            latency_seconds=reply.seconds,
            limits=reply.limits,
            **token_counts(reply, value_at(reply.value, ("usage", "prompt_tokens")), None),
        )


def _floats(found: Any) -> list[float]:
    """Raises ValueError."""
    if isinstance(found, str):
        data = base64.b64decode(found, validate=True)
        return [value for (value,) in struct.iter_unpack("<f", data)] if len(data) % 4 == 0 else []
    if not isinstance(found, list):
        raise ValueError(f"{type(found).__name__} where a list of numbers is wanted")
    return found
