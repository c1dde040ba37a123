"""Targets of kinds openai and embeddings: chat completions, and a vector for a text, as OpenAI's server gives them."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec
from pydantic import Field

from evalq.evalcore.model.calls import pack_vector
from evalq.evalcore.records.answers import text_of
from evalq.evalcore.records.json_values import NothingThere, find_at
from evalq.workers.targets.answers import Answered, Call, Failure, begin_of, chat_form
from evalq.workers.targets.events import cut_off, error_of
from evalq.workers.targets.http import (
    BaseUrls,
    PostingClient,
    bad_reply,
    each_of,
    text_or_none,
    token_counts,
    value_at,
)
from evalq.workers.targets.providers.chat import ModelClient, ModelReply, ModelTarget, ServerTarget
from evalq.workers.targets.target import Client

if TYPE_CHECKING:
    from evalq.workers.targets.web import Sign


class ChatTarget(ModelTarget):
    """A model that is asked by chat completions."""

    keys: ClassVar = ("model", "system_prompt", "json_mode", "json_schema")
    fixed: ClassVar = ("messages", "stream", "n")

    json_mode: bool = Field(default=False, description="Ask for a JSON object by response_format")


class OpenAiTarget(ChatTarget):
    """Any endpoint that speaks chat completions."""

    kind: Literal["openai"]
    base_url: BaseUrls = Field(description="The address before /chat/completions, such as http://127.0.0.1:8000/v1")

    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Client:
        """How it is called."""
        urls = [f"{url.rstrip('/')}/chat/completions" for url in each_of(self.base_url)]
        return ChatClient(self, folder, urls, key)


class ChatClient(ModelClient):
    """Chat completions."""

    what: ClassVar = "a chat completion"

    def __init__(
        self,
        target: ChatTarget,
        folder: Path,
        urls: list[str],
        key: str | None,
        key_header: str = "Authorization",
        sign: Sign | None = None,
    ) -> None:
        super().__init__(target, folder, urls, key, key_header=key_header, sign=sign)
        self._fixed = {"model": target.model, **target.options, **_response_format(target, folder)}
        self.offer(target.tool_list)
        if target.stream:
            options = self._fixed.get("stream_options")
            counted = {"include_usage": True, **(options if isinstance(options, dict) else {})}
            self._fixed |= {"stream": True, "stream_options": counted}

    def _offer(self, tools: Sequence[Mapping[str, Any]]) -> None:
        self._fixed["tools"] = [{"type": "function", "function": tool} for tool in tools]

    def _body(self, system: str, call: Call) -> dict[str, Any]:
        messages = [{"role": "system", "content": system}] if system else []
        return {**self._fixed, "messages": [*messages, *map(chat_form, call.chat)]}

    def _read(self, value: Any) -> ModelReply:
        if isinstance(value, Mapping) and value.get("error") and not value.get("choices"):
            raise error_of(value["error"], "the reply is an error")
        choice = find_at(value, ("choices", 0))
        message = find_at(choice, ("message",))
        content = value_at(message, ("content",))
        calls = value_at(message, ("tool_calls",)) or ()
        called = value_at(message, ("function_call",))  # before there were tools
        return ModelReply(
            text=text_of(content) if isinstance(content, str | list) else None,
            tool_calls=[*calls, called] if called and isinstance(calls, list | tuple) else calls,
            finish=text_or_none(value_at(choice, ("finish_reason",))),
            refusal=text_or_none(value_at(message, ("refusal",))) or "",
            usage=value_at(value, ("usage",)),
            served={
                "model": value_at(value, ("model",)),
                "fingerprint": value_at(value, ("system_fingerprint",)),
                "provider": value_at(value, ("provider",)),
            },
        )

    @staticmethod
    def _joining() -> ChatChunks:
        return ChatChunks()


def _response_format(target: ChatTarget, folder: Path) -> dict[str, Any]:
    if target.json_schema:
        schema = {"name": "answer", "schema": target.read_schema(folder)}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    return {"response_format": {"type": "json_object"}} if target.json_mode else {}


class ChatChunks:
    """The chunks of a streamed completion, joined; only its first choice counts."""

    def __init__(self) -> None:
        self.done = self.written = False
        self._whole: dict[str, Any] = {}
        self._finish: str | None = None
        self._texts: dict[str, list[str]] = {}
        self._calls: list[dict[str, Any]] = []
        self._chosen = False

    def take(self, event: str, value: Any) -> None:
        """Add a chunk."""
        if not isinstance(value, Mapping):
            return
        if value.get("error") or event == "error":
            raise error_of(value.get("error") or value, "the stream ended with an error")
        kept = ("id", "created", "model", "system_fingerprint", "service_tier", "provider", "usage")
        self._whole |= {key: value[key] for key in kept if value.get(key) is not None}
        choices = value.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, Mapping) and choice.get("index") in (0, None):
                self._chosen = True
                self._finish = text_or_none(choice.get("finish_reason")) or self._finish
                delta = choice.get("delta") or choice.get("message")
                self._add(delta if isinstance(delta, Mapping) else {})

    def _add(self, delta: Mapping[str, Any]) -> None:
        for key in ("content", "refusal", "reasoning_content", "reasoning"):
            said = delta.get(key)
            text = text_of(said) if isinstance(said, str | list) else ""
            if text or (key == "content" and said is not None):
                self._texts.setdefault(key, []).append(text)
            self.written = self.written or bool(said)
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, Mapping):
                self._add_call(call)
                self.written = True

    def _add_call(self, call: Mapping[str, Any]) -> None:
        index, id_ = call.get("index"), text_or_none(call.get("id"))
        # Some servers give all calls one index, or none.
        known = [each for each in self._calls if each["index"] == index] if index is not None else self._calls[-1:]
        if not known or (id_ and known[-1]["id"] and known[-1]["id"] != id_):
            known = [{"index": index, "id": id_, "type": "function", "function": {"name": "", "arguments": ""}}]
            self._calls += known
        held = known[-1]
        held["id"] = held["id"] or id_
        for key in ("name", "arguments"):
            more = _written(value_at(call, ("function", key)))
            # Some servers repeat the name with each part of the arguments.
            if key == "arguments" or more != held["function"]["name"]:
                held["function"][key] += more

    def value(self) -> Any:
        """The completion."""
        if not self._chosen:
            return self._whole  # no completion, as will be reported
        if not self.done and self._finish is None:
            raise cut_off("it has neither a finish_reason nor [DONE]")
        message: dict[str, Any] = {"role": "assistant", "content": None}
        message |= {key: "".join(texts) for key, texts in self._texts.items()}
        if self._calls:
            message["tool_calls"] = [{key: call[key] for key in ("id", "type", "function")} for call in self._calls]
        choice = {"index": 0, "message": message, "finish_reason": self._finish}
        return {**self._whole, "object": "chat.completion", "choices": [choice]}


def _written(part: Any) -> str:
    """A part of a name or of arguments; a server may send the arguments as the object itself."""
    return part if isinstance(part, str) else msgspec.json.encode(part).decode() if part else ""


# -- the kind embeddings ---------------------------------------------------------------------------

_SHOWN = 2000


class EmbeddingsTarget(ServerTarget):
    """Any endpoint that gives embeddings. Its answers are {"vector": ...}, a signed byte a dimension in base64."""

    keys: ClassVar = ("model",)
    fixed: ClassVar = ("input",)

    kind: Literal["embeddings"]
    base_url: BaseUrls = Field(description="The address before /embeddings, such as http://127.0.0.1:8000/v1")

    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Client:
        """How it is called."""
        return EmbeddingsClient(self, key)


class EmbeddingsClient(PostingClient):
    """Calls of a target of kind embeddings."""

    def __init__(self, target: EmbeddingsTarget, key: str | None) -> None:
        urls = [f"{url.rstrip('/')}/embeddings" for url in each_of(target.base_url)]
        super().__init__(urls, target.headers, key, target.max_bytes)
        self._fixed = {"model": target.model, "encoding_format": "float", **target.options}

    async def call(self, call: Call) -> Answered | Failure:
        """The vector of the prompt: of floats as JSON, or as base64 of those of 32 bits."""
        reply = await self.post({**self._fixed, "input": call.prompt}, call.headers)
        if isinstance(reply, Failure):
            return reply
        try:
            vector = pack_vector(_floats(find_at(reply.value, ("data", 0, "embedding"))))
        except NothingThere as error:
            # Some other service's JSON: nothing that the model gave.
            reason = f"not an embedding: {error}; check base_url; the reply begins: {begin_of(reply.text)}"
            return bad_reply(reply, reason, reply.text[:_SHOWN], kind="server")
        except ValueError as error:
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
