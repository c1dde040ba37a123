"""Targets of kind responses: OpenAI's Responses, and servers that speak them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
from pydantic import Field

from evalq.workers.targets.answers import Call
from evalq.workers.targets.events import cut_off, error_of
from evalq.workers.targets.http import BaseUrls, each_of, text_or_none
from evalq.workers.targets.providers.chat import ModelClient, ModelReply, ModelTarget, OtherFormat
from evalq.workers.targets.providers.turns import ImagePart, TalkTurn, TextPart, ToolResult, ToolUse, read_conversation
from evalq.workers.targets.target import Client


class ResponsesTarget(ModelTarget):
    """Any endpoint that speaks OpenAI's Responses."""

    keys: ClassVar[tuple[str, ...]] = ("model", "system_prompt", "json_mode", "json_schema")
    fixed: ClassVar[tuple[str, ...]] = ("input", "instructions", "stream", "background", "previous_response_id")

    kind: Literal["responses"]
    base_url: BaseUrls = Field(default="https://api.openai.com/v1", description="The address before /responses")
    json_mode: bool = Field(default=False, description="Ask for a JSON object by text.format")

    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Client:
        """How it is called."""
        return ResponsesClient(self, folder, key)


class ResponsesClient(ModelClient):
    """Calls of a target of kind responses."""

    what: ClassVar[str] = "a response of this API"

    def __init__(self, target: ResponsesTarget, folder: Path, key: str | None) -> None:
        urls = [f"{url.rstrip('/')}/responses" for url in each_of(target.base_url)]
        super().__init__(target, folder, urls, key)
        # Nothing of a call is needed after it: evalq sends each conversation whole.
        self._fixed: dict[str, Any] = {"model": target.model, "store": False, **target.options}
        if target.json_schema:
            form = {"type": "json_schema", "name": "answer", "schema": target.read_schema(folder)}
            self._fixed["text"] = {**self._fixed.get("text", {}), "format": form}
        elif target.json_mode:
            self._fixed["text"] = {**self._fixed.get("text", {}), "format": {"type": "json_object"}}
        self.offer(target.tool_list)
        if target.stream:
            self._fixed["stream"] = True

    def _offer(self, tools: Sequence[Mapping[str, Any]]) -> None:
        self._fixed["tools"] = [{"type": "function", **tool} for tool in tools]

    def _body(self, system: str, call: Call) -> dict[str, Any]:
        talk = read_conversation(system, call.chat)
        instructions = {"instructions": "\n\n".join(talk.system)} if talk.system else {}
        return {**self._fixed, **instructions, "input": [item for turn in talk.turns for item in _items(turn)]}

    def _read(self, value: Any) -> ModelReply:
        if not isinstance(value, Mapping):
            raise OtherFormat("no object")
        if value.get("status") == "failed" or (value.get("error") and "output" not in value):
            raise error_of(value.get("error"), "the response failed")
        output = value.get("output")
        if not isinstance(output, list):
            raise OtherFormat("it has no output")
        items = [item for item in output if isinstance(item, Mapping)]
        messages = [item for item in items if item.get("type") == "message"]
        contents = [content for message in messages if isinstance(content := message.get("content"), list)]
        parts = [part for content in contents for part in content if isinstance(part, Mapping)]
        calls = [_call(item) for item in items if item.get("type") in ("function_call", "custom_tool_call")]
        refusals = [str(part.get("refusal")) for part in parts if part.get("type") == "refusal"]
        texts = [part["text"] for part in parts if part.get("type") == "output_text" and "text" in part]
        return ModelReply(
            text="".join(map(str, texts)) if messages else None,
            tool_calls=calls,
            own=_own(items),
            finish=_finish(value, bool(calls)),
            refusal=" ".join(refusals),
            usage=value.get("usage"),
            served={"model": value.get("model"), "provider": value.get("provider")},
        )

    @staticmethod
    def _joining() -> ResponseEvents:
        return ResponseEvents()


def _items(turn: TalkTurn) -> Iterator[dict[str, Any]]:
    """The input items of a turn: its texts as one message, calls and results as items of their own."""
    if turn.only_text is not None:
        yield {"role": "assistant" if turn.assistant else "user", "content": turn.only_text}
        return
    content: list[dict[str, Any]] = []
    role = "assistant" if turn.assistant else "user"
    for part in turn.parts:
        if isinstance(part, ToolUse | ToolResult) and content:
            yield {"role": role, "content": content}
            content = []
        if isinstance(part, ToolUse):
            arguments = msgspec.json.encode(part.arguments).decode()
            yield {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": arguments}
        elif isinstance(part, ToolResult):
            yield {"type": "function_call_output", "call_id": part.id, "output": part.text}
        elif isinstance(part, TextPart):
            content.append({"type": "output_text" if turn.assistant else "input_text", "text": part.text})
        elif isinstance(part, ImagePart):
            content.append({"type": "input_image", "image_url": part.url})
        elif str(part.part.get("type")).startswith(_PARTS):
            content.append(part.part)
        else:  # an item of its own
            if content:
                yield {"role": role, "content": content}
                content = []
            yield part.part
    if content:
        yield {"role": role, "content": content}


_PARTS = ("input_", "output_", "refusal")
"""How the types of the parts of a message begin; all others are items."""
_REPEATED = {
    "reasoning": ("type", "summary", "content", "encrypted_content"),
    "message": ("type", "role", "content", "phase"),
    "function_call": ("type", "call_id", "name", "arguments"),
}
"""What of an item goes back to a server that keeps none of them: its id would mean nothing there."""


def _own(items: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The items that the next call has to repeat: only if the model's thoughts came with them, sealed."""
    if not any(item.get("encrypted_content") for item in items):
        return []
    kept = [item for item in items if item.get("type") != "reasoning" or item.get("encrypted_content")]
    return [_item(item, _REPEATED.get(str(item.get("type")))) for item in kept]


def _item(item: Mapping[str, Any], keys: tuple[str, ...] | None) -> dict[str, Any]:
    return {
        key: value
        for key, value in item.items()
        if value is not None and (key in keys if keys is not None else key not in ("id", "status"))
    }


def _call(item: Mapping[str, Any]) -> dict[str, Any]:
    arguments = item.get("arguments") if "arguments" in item else {"input": item.get("input")}
    return {"id": item.get("call_id") or item.get("id"), "name": item.get("name"), "arguments": arguments}


def _finish(value: Mapping[str, Any], calls: bool) -> str | None:
    if value.get("status") == "incomplete":
        details = value.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, Mapping) else None
        return text_or_none(reason) or "incomplete"
    return "tool_calls" if calls else text_or_none(value.get("status"))


_ENDS = ("response.completed", "response.incomplete", "response.failed")


class ResponseEvents:
    """The events of a streamed response: its last one has the response."""

    def __init__(self) -> None:
        self.done = self.written = False
        self._response: Any = None
        self._items: list[Any] = []
        self._seen = 0

    def take(self, event: str, value: Any) -> None:
        """Look at an event."""
        if not isinstance(value, Mapping):
            return
        self._seen += 1
        kind = value.get("type") or event
        if kind == "error":
            raise error_of(value.get("error") or value, "the stream ended with an error")
        if isinstance(kind, str) and kind.endswith(".delta"):
            self.written = self.written or bool(value.get("delta"))
        if kind == "response.output_item.done":
            self._items.append(value.get("item"))
        if kind in _ENDS:
            self._response = value.get("response")
            self.done = True

    def value(self) -> Any:
        """The response."""
        if not self._seen:
            return None
        if self._response is None:
            raise cut_off("it has no response.completed")
        if isinstance(self._response, Mapping) and not self._response.get("output") and self._items:
            return {**self._response, "output": self._items}  # servers that do not repeat what they sent
        return self._response
