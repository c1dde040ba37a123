"""The kinds of targets that are reached over HTTP: any endpoint by template and path, chat completions, embeddings."""

from __future__ import annotations

import base64
import contextlib
import struct
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from evalq.evalcore.contract.params import MAX_FILE_CHARACTERS
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.model.calls import pack_vector
from evalq.evalcore.records.json_values import NothingThere, find_at, parse_path
from evalq.evalcore.trust import Thing, Writer, allows
from evalq.workers.targets.answers import Answer, Call, Failure, FailureKind
from evalq.workers.targets.files import files_of, resolved
from evalq.workers.targets.headers import rate_limits
from evalq.workers.targets.target import usable_name
from evalq.workers.targets.template import fill
from evalq.workers.targets.web import Reply, Web

if TYPE_CHECKING:  # each of them names the class here that makes its calls
    from evalq.workers.targets.kinds.embeddings import EmbeddingsTarget
    from evalq.workers.targets.kinds.http import HttpTarget
    from evalq.workers.targets.kinds.openai import OpenAiTarget

__all__ = ["ChatEndpoint", "EmbeddingsEndpoint", "HttpEndpoint"]

_SHOWN = 2000
_HIDDEN_TOKENS = 1 << 20
"""Tokens that nobody sees: of the server's own prompt, or of thinking that is not shown."""


class HttpEndpoint:
    """A target of kind http."""

    def __init__(self, target: HttpTarget, key: str | None) -> None:
        self._target = target
        self._web = Web(target.url, _headers(target.headers, target.api_key_header, key), target.max_bytes)
        self._answer = parse_path(target.answer)

    async def open(self) -> None:
        """Nothing to do before the first call."""

    async def close(self) -> None:
        """Let go of all connections."""
        await self._web.close()

    async def call(self, call: Call) -> Answer | Failure:
        """Post the filled template; the answer is what stands at the path."""
        reply = await self._web.post(fill(self._target.body, {**self._target.parameters, **call.fillings()}))
        if isinstance(reply, Failure):
            return reply
        try:
            found = find_at(reply.value, self._answer)
        except NothingThere as error:
            return _bad(reply, str(error), reply.text)
        prompt, completion = self._target.prompt_tokens, self._target.completion_tokens
        return Answer(
            text=found if isinstance(found, str) else msgspec.json.encode(found).decode(),
            latency_seconds=reply.seconds,
            finish_reason=_text(_optional(reply, self._target.finish_reason)),
            limits=rate_limits(reply.headers),
            **_tokens(reply, _optional(reply, prompt), _optional(reply, completion)),
        )


class ChatEndpoint:
    """A target of kind openai."""

    def __init__(self, target: OpenAiTarget, folder: Path, key: str | None) -> None:
        url = target.base_url.rstrip("/") + "/chat/completions"
        self._target = target
        self._web = Web(url, _headers(target.headers, "Authorization", key), target.max_bytes)
        self._folder = folder
        # Read once per process: a prompt file that is edited while a sweep runs must not change half of its calls.
        self._system = cache(self._read_system)
        self._texts: dict[Path, str] = {}
        self._fixed = {"model": target.model, **target.options, **self._response_format()}

    async def open(self) -> None:
        """Read the prompts of all agents: what is recorded has the digest of those that are there now."""
        for path in files_of(self._folder, self._target.system_prompt) if self._target.system_prompt else ():
            with contextlib.suppress(ConfigError):  # whoever calls that agent is told
                self._texts[resolved(path)] = _file(self._folder, str(path))

    async def close(self) -> None:
        """Let go of all connections."""
        await self._web.close()

    async def call(self, call: Call) -> Answer | Failure:
        """One completion, its first choice."""
        try:
            system = self._system(call.agent if "{agent}" in (self._target.system_prompt or "") else "")
        except ConfigError as error:
            return Failure(kind="refused", reason=str(error))
        messages = [{"role": "system", "content": fill(system, call.fillings())}] if system else []
        reply = await self._web.post({**self._fixed, "messages": [*messages, *call.chat]})
        return reply if isinstance(reply, Failure) else self._read(reply)

    def _read(self, reply: Reply) -> Answer | Failure:
        try:
            choice = find_at(reply.value, ("choices", 0))
            message = find_at(choice, ("message",))
        except NothingThere as error:
            # Some other service's JSON: nothing that the model wrote.
            return _bad(reply, f"not a chat completion: {error}", reply.text, kind="server")
        prompt, completion = (_at(reply.value, ("usage", f"{part}_tokens")) for part in ("prompt", "completion"))
        reason, refusal = _text(_at(choice, ("finish_reason",))), _text(_at(message, ("refusal",)))
        content = _at(message, ("content",))
        fault: dict[str, Any] = {}
        # Before the content is asked for, which a refusal may lack.
        if refusal or reason == "content_filter":
            fault = {"kind": "refused", "reason": f"the model refuses: {(refusal or 'content filter')[:200]}"}
        elif not isinstance(content, str):
            fault = {"kind": "bad_output", "reason": "the completion has no text in message.content"}
        told: dict[str, Any] = {
            "latency_seconds": reply.seconds,
            "finish_reason": reason,
            "limits": rate_limits(reply.headers),
            **_tokens(reply, prompt, completion),
        }
        if fault:
            return Failure(text=content if isinstance(content, str) else reply.text, **fault, **told)
        return Answer(text=str(content), **told)

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


class EmbeddingsEndpoint:
    """A target of kind embeddings."""

    def __init__(self, target: EmbeddingsTarget, key: str | None) -> None:
        url = target.base_url.rstrip("/") + "/embeddings"
        self._web = Web(url, _headers(target.headers, "Authorization", key), target.max_bytes)
        self._fixed = {"model": target.model, "encoding_format": "float", **target.options}

    async def open(self) -> None:
        """Nothing to do before the first call."""

    async def close(self) -> None:
        """Let go of all connections."""
        await self._web.close()

    async def call(self, call: Call) -> Answer | Failure:
        """The vector of the prompt: of floats as JSON, or as base64 of those of 32 bits."""
        reply = await self._web.post({**self._fixed, "input": call.prompt})
        if isinstance(reply, Failure):
            return reply
        try:
            vector = pack_vector(_floats(find_at(reply.value, ("data", 0, "embedding"))))
        except (NothingThere, ValueError) as error:
            return _bad(reply, f"not an embedding: {error}", reply.text[:_SHOWN])
        return Answer(
            text=msgspec.json.encode({"vector": vector}).decode(),
            latency_seconds=reply.seconds,
            limits=rate_limits(reply.headers),
            **_tokens(reply, _at(reply.value, ("usage", "prompt_tokens")), None),
        )


def _floats(found: Any) -> list[float]:
    """Raises ValueError."""
    if isinstance(found, str):
        data = base64.b64decode(found, validate=True)
        return [value for (value,) in struct.iter_unpack("<f", data)] if len(data) % 4 == 0 else []
    if not isinstance(found, list):
        raise ValueError(f"{type(found).__name__} where a list of numbers is wanted")
    return found


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


def _headers(given: dict[str, str], name: str, key: str | None) -> dict[str, str]:
    if key is None:
        return given
    return {**given, name: f"Bearer {key}" if name.lower() == "authorization" else key}


def _bad(reply: Reply, reason: str, text: str, kind: FailureKind = "bad_output") -> Failure:
    return Failure(kind=kind, reason=reason, text=text, latency_seconds=reply.seconds,
                   limits=rate_limits(reply.headers))  # fmt: skip


def _optional(reply: Reply, path: str | None) -> Any:
    return None if path is None else _at(reply.value, parse_path(path))


def _at(value: Any, steps: tuple[str | int, ...]) -> Any:
    try:
        return find_at(value, steps)
    except NothingThere:
        return None


def _tokens(reply: Reply, prompt: Any, completion: Any) -> dict[str, Any]:
    """Counts as told; one that a call of this size cannot have is left out, and the note says so.

    A token is a byte at least. Costs and the fleet's pace go by these numbers: a server's word alone is not enough.
    """
    told = {"prompt_tokens": (prompt, reply.asked_bytes), "completion_tokens": (completion, reply.told_bytes)}
    # By its very type: True is an int to isinstance.
    usable = {name: type(value) is int and 0 <= value <= size + _HIDDEN_TOKENS for name, (value, size) in told.items()}
    notes = [
        f"{name} of the reply ignored: {_shown(value)} is no number that a call of {size} bytes can have"
        for name, (value, size) in told.items()
        if value is not None and not usable[name]
    ]
    counts = {name: value if usable[name] else None for name, (value, _) in told.items()}
    return {**counts, "note": "; ".join(notes)}


def _shown(value: Any) -> str:
    return repr(value)[:40] if isinstance(value, int | float) else f"a {type(value).__name__}"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
