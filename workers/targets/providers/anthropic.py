"""Targets of kind anthropic: Messages, as Anthropic's server and others speak them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from evalq.workers.targets.answers import Call
from evalq.workers.targets.events import cut_off, error_of
from evalq.workers.targets.http import BaseUrls, each_of, text_or_none, value_at
from evalq.workers.targets.providers.chat import ModelClient, ModelReply, ModelTarget, OtherFormat
from evalq.workers.targets.providers.turns import (
    ImagePart,
    Part,
    TalkTurn,
    TextPart,
    ToolResult,
    ToolUse,
    read_conversation,
)
from evalq.workers.targets.target import Client

_FORMER = "2023-06-01"
_REMOVED = ("temperature", "top_p", "top_k")
"""Members of the request that the version after `_FORMER` refuses."""


class AnthropicTarget(ModelTarget):
    """Any endpoint that speaks Anthropic's Messages.

    The key is a bearer in Authorization; with version 2023-06-01 it goes into the header x-api-key.
    """

    keys: ClassVar[tuple[str, ...]] = ("model", "system_prompt", "json_schema", "max_tokens")
    fixed: ClassVar[tuple[str, ...]] = ("messages", "system", "stream")

    kind: Literal["anthropic"]
    base_url: BaseUrls = Field(default="https://api.anthropic.com", description="The address before /v1/messages")
    api_version: str = Field(
        default="2026-10-21",
        pattern=r"^\d{4}-\d\d-\d\d$",
        description="The header anthropic-version; 2023-06-01 takes temperature, top_p and top_k",
    )
    max_tokens: int = Field(default=4096, gt=0, description="The longest answer, in tokens; the API demands a limit")
    cache: Literal["5m", "1h"] | None = Field(default=None, description="Have the system prompt cached for so long")

    @model_validator(mode="after")
    def _takes_options(self) -> AnthropicTarget:
        removed = next((name for name in _REMOVED if name in self.options), None)
        if removed and self.api_version > _FORMER:
            raise PydanticCustomError(
                "removed",
                "options.{name}: this API takes it no more; set api_version: 2023-06-01, or leave it out",
                {"name": removed},
            )
        return self

    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Client:
        """How it is called."""
        return AnthropicClient(self, folder, key)


class AnthropicClient(ModelClient):
    """Calls of a target of kind anthropic."""

    what: ClassVar[str] = "a message of this API"

    def __init__(self, target: AnthropicTarget, folder: Path, key: str | None) -> None:
        urls = [f"{url.rstrip('/').removesuffix('/v1')}/v1/messages" for url in each_of(target.base_url)]
        header = "x-api-key" if target.api_version <= _FORMER else "Authorization"
        version = {"anthropic-version": target.api_version}
        super().__init__(target, folder, urls, key, key_header=header, headers=version)
        self._fixed: dict[str, Any] = {"model": target.model, "max_tokens": target.max_tokens, **target.options}
        self._cache = target.cache
        if target.json_schema:
            form = {"type": "json_schema", "schema": target.read_schema(folder)}
            self._fixed["output_config"] = {**self._fixed.get("output_config", {}), "format": form}
        self.offer(target.tool_list)
        if target.stream:
            self._fixed["stream"] = True

    def _offer(self, tools: Sequence[Mapping[str, Any]]) -> None:
        self._fixed["tools"] = [
            {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
            for tool in tools
        ]

    def _body(self, system: str, call: Call) -> dict[str, Any]:
        talk = read_conversation(system, call.chat)
        return {**self._fixed, **self._system(talk.system), "messages": [_message(turn) for turn in talk.turns]}

    def _system(self, texts: list[str]) -> dict[str, Any]:
        if not texts:
            return {}
        text = "\n\n".join(texts)
        if self._cache is None:
            return {"system": text}
        # Five minutes are what the API does without a time.
        kept = {"type": "ephemeral"} if self._cache == "5m" else {"type": "ephemeral", "ttl": self._cache}
        return {"system": [{"type": "text", "text": text, "cache_control": kept}]}

    def _read(self, value: Any) -> ModelReply:
        if not isinstance(value, Mapping):
            raise OtherFormat("no object")
        if value.get("type") == "error":
            raise error_of(value.get("error"), "the reply is an error")
        content = value.get("content")
        if not isinstance(content, list):
            raise OtherFormat("it has no content")
        blocks = [block for block in content if isinstance(block, Mapping)]
        texts = [
            block["text"] for block in blocks if block.get("type") == "text" and isinstance(block.get("text"), str)
        ]
        reason = text_or_none(value.get("stop_reason"))
        details = value.get("stop_details")
        why = (
            text_or_none(details.get("explanation") or details.get("category")) if isinstance(details, Mapping) else ""
        )
        return ModelReply(
            text="".join(texts) if texts or reason == "end_turn" else None,
            tool_calls=[
                {"id": block.get("id"), "name": block.get("name"), "arguments": block.get("input")}
                for block in blocks
                if block.get("type") == "tool_use"
            ],
            own=blocks,
            finish=reason,
            refusal=(why or "stop_reason refusal") if reason == "refusal" else "",
            usage=value.get("usage"),
            served={"model": value.get("model")},
        )

    @staticmethod
    def _joining() -> MessageEvents:
        return MessageEvents()


def _message(turn: TalkTurn) -> dict[str, Any]:
    content = turn.only_text if turn.only_text is not None else [_block(part) for part in turn.parts]
    return {"role": "assistant" if turn.assistant else "user", "content": content}


def _block(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ToolUse):
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": part.arguments}
    if isinstance(part, ToolResult):
        failed = {"is_error": True} if part.failed else {}
        return {"type": "tool_result", "tool_use_id": part.id, "content": part.text, **failed}
    if isinstance(part, ImagePart):
        inline = {"type": "base64", "media_type": part.media, "data": part.data}
        return {"type": "image", "source": inline if part.data else {"type": "url", "url": part.url}}
    return part.part


class MessageEvents:
    """The events of a streamed message, joined."""

    def __init__(self) -> None:
        self.done = self.written = False
        self._message: dict[str, Any] | None = None
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, list[str]] = {}

    def take(self, event: str, value: Any) -> None:
        """Add an event; those of other types are skipped, as the API asks."""
        if not isinstance(value, Mapping):
            return
        kind = value.get("type") or event
        if kind == "error":
            raise error_of(value.get("error") or value, "the stream ended with an error")
        if kind == "message_start" and isinstance(value.get("message"), Mapping):
            self._message = dict(value["message"])
        elif kind == "content_block_start" and isinstance(value.get("content_block"), Mapping):
            self._blocks[_index(value)] = dict(value["content_block"])
            self.written = self.written or value["content_block"].get("type") == "tool_use"
        elif kind == "content_block_delta" and isinstance(value.get("delta"), Mapping):
            self._add(_index(value), value["delta"])
        elif kind == "message_delta" and self._message is not None:
            self._message |= {key: each for key, each in _mapping(value.get("delta")).items() if each is not None}
            # The counts are of the whole message; that of the begin has more parts.
            counts = {key: each for key, each in _mapping(value.get("usage")).items() if each is not None}
            self._message["usage"] = {**_mapping(self._message.get("usage")), **counts}
        elif kind == "message_stop":
            self.done = True

    def _add(self, index: int, delta: Mapping[str, Any]) -> None:
        block = self._blocks.setdefault(index, {})
        for key in ("text", "thinking", "signature"):
            if isinstance(delta.get(key), str):
                block[key] = f"{block.get(key) or ''}{delta[key]}"
                self.written = self.written or (bool(delta[key]) and key != "signature")
        if isinstance(delta.get("partial_json"), str):
            self._inputs.setdefault(index, []).append(delta["partial_json"])
            self.written = True
        if "citation" in delta:
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]

    def value(self) -> Any:
        """The message."""
        if self._message is None:
            return None
        if not self.done and value_at(self._message, ("stop_reason",)) is None:
            raise cut_off("it has neither a stop_reason nor message_stop")
        for index, parts in self._inputs.items():
            self._blocks[index]["input"] = _input("".join(parts), self._blocks[index].get("input"))
        return {**self._message, "content": [self._blocks[index] for index in sorted(self._blocks)]}


def _index(value: Mapping[str, Any]) -> int:
    index = value.get("index")
    return index if type(index) is int else 0


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _input(text: str, otherwise: Any) -> Any:
    """The arguments of a call; as text if what the model wrote is no JSON."""
    if not text:
        return otherwise
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
