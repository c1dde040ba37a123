"""Targets of kind gemini: generateContent, as Google's Gemini API serves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import quote

from pydantic import Field

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

if TYPE_CHECKING:
    from evalq.workers.targets.web import Sign

_MEMBERS = frozenset(
    ("tools", "toolConfig", "safetySettings", "generationConfig", "cachedContent", "labels", "serviceTier", "store")
)
"""Members of the request; all other options are settings of the generation."""


class GenerateContentTarget(ModelTarget):
    """A model that is asked by generateContent."""

    keys: ClassVar[tuple[str, ...]] = ("model", "system_prompt", "json_mode", "json_schema")
    fixed: ClassVar[tuple[str, ...]] = ("contents", "systemInstruction", "stream")

    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Settings of the generation (temperature, maxOutputTokens, thinkingConfig, ...), and further "
        "members of the request (tools, safetySettings, ...)",
    )
    json_mode: bool = Field(default=False, description="Ask for JSON by responseMimeType")


class GeminiTarget(GenerateContentTarget):
    """A model of the Gemini API; the key goes into the header x-goog-api-key."""

    kind: Literal["gemini"]
    base_url: BaseUrls = Field(
        default="https://generativelanguage.googleapis.com", description="The address before /v1/models/..."
    )
    api_version: str = Field(default="v1", pattern=r"^[a-z0-9]+$", description="The version in the address")

    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Client:
        """How it is called."""
        name = self.model if "/" in self.model else f"models/{self.model}"
        bases = [f"{url.rstrip('/')}/{self.api_version}/{quote(name)}" for url in each_of(self.base_url)]
        return GenerateContentClient(self, folder, bases, key)


class GenerateContentClient(ModelClient):
    """Calls by generateContent."""

    what: ClassVar[str] = "a reply of generateContent"

    def __init__(
        self,
        target: GenerateContentTarget,
        folder: Path,
        bases: list[str],
        key: str | None,
        sign: Sign | None = None,
    ) -> None:
        verb = "streamGenerateContent?alt=sse" if target.stream else "generateContent"
        urls = [f"{base}:{verb}" for base in bases]
        super().__init__(target, folder, urls, key, key_header="x-goog-api-key", sign=sign)
        settings, self._fixed = target.split_options(_MEMBERS)
        if target.json_schema or target.json_mode:
            settings["responseMimeType"] = "application/json"
        if target.json_schema:
            settings["responseJsonSchema"] = target.read_schema(folder)
        if settings:
            self._fixed["generationConfig"] = {**self._fixed.get("generationConfig", {}), **settings}
        self._own_tools = self._fixed.get("tools", ())
        self.offer(target.tool_list)

    def _offer(self, tools: Sequence[Mapping[str, Any]]) -> None:
        listed = [
            {"name": tool["name"], "description": tool["description"], "parametersJsonSchema": tool["parameters"]}
            for tool in tools
        ]
        self._fixed["tools"] = [*self._own_tools, {"functionDeclarations": listed}]

    def _body(self, system: str, call: Call) -> dict[str, Any]:
        talk = read_conversation(system, call.chat)
        instruction = {"systemInstruction": {"parts": [{"text": text} for text in talk.system]}} if talk.system else {}
        return {**self._fixed, **instruction, "contents": [_content(turn) for turn in talk.turns]}

    def _read(self, value: Any) -> ModelReply:
        if not isinstance(value, Mapping):
            raise OtherFormat("no object")
        if value.get("error") and "candidates" not in value:
            raise error_of(value["error"], "the reply is an error")
        shared: dict[str, Any] = {
            "usage": value.get("usageMetadata"),
            "served": {"model": value.get("modelVersion")},
        }
        blocked = text_or_none(value_at(value, ("promptFeedback", "blockReason")))
        candidate = value_at(value, ("candidates", 0))
        if blocked and not isinstance(candidate, Mapping):
            return ModelReply(text=None, finish="content_filter", refusal=f"the prompt is blocked: {blocked}", **shared)
        if not isinstance(candidate, Mapping):
            raise OtherFormat("it has no candidates")
        reason = text_or_none(candidate.get("finishReason"))
        parts = value_at(candidate, ("content", "parts"))
        listed = [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []
        said = [part["text"] for part in listed if isinstance(part.get("text"), str) and not part.get("thought")]
        calls = [part["functionCall"] for part in listed if isinstance(part.get("functionCall"), Mapping)]
        why = text_or_none(candidate.get("finishMessage")) or ""
        odd = reason is not None and reason not in ("STOP", "MAX_TOKENS", "FINISH_REASON_UNSPECIFIED")
        return ModelReply(
            text="".join(said) if said else None,
            tool_calls=[
                {"name": call.get("name"), "arguments": call.get("args"), "id": call.get("id")} for call in calls
            ],
            own=listed,
            finish="tool_calls" if calls and reason == "STOP" else reason,
            fault=f"the model ended with {reason}{why and ': '}{why[:200]}" if odd and not said else "",
            **shared,
        )

    @staticmethod
    def _joining() -> ContentChunks:
        return ContentChunks()


def _content(turn: TalkTurn) -> dict[str, Any]:
    return {"role": "model" if turn.assistant else "user", "parts": [_part(part) for part in turn.parts]}


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"text": part.text}
    if isinstance(part, ToolUse):
        return {"functionCall": {"name": part.name, "args": part.arguments}}
    if isinstance(part, ToolResult):
        return {"functionResponse": {"name": part.name, "response": {"error" if part.failed else "result": part.text}}}
    if isinstance(part, ImagePart):
        if part.data:
            return {"inlineData": {"mimeType": part.media, "data": part.data}}
        return {"fileData": {"fileUri": part.url}}
    return part.part


class ContentChunks:
    """The chunks of a streamed generateContent, joined: each is a reply with the next parts."""

    def __init__(self) -> None:
        self.done = self.written = False
        self._whole: dict[str, Any] = {}
        self._candidate: dict[str, Any] = {}
        self._parts: list[dict[str, Any]] = []
        self._content: dict[str, Any] = {}

    def take(self, event: str, value: Any) -> None:
        """Add a chunk."""
        if not isinstance(value, Mapping):
            return
        if value.get("error"):
            raise error_of(value["error"], "the stream ended with an error")
        self._whole |= {key: each for key, each in value.items() if key != "candidates" and each is not None}
        candidate = value_at(value, ("candidates", 0))
        if not isinstance(candidate, Mapping):
            return
        self._candidate |= {key: each for key, each in candidate.items() if key != "content" and each is not None}
        content = candidate.get("content")
        if isinstance(content, Mapping):
            self._content |= {key: each for key, each in content.items() if key != "parts"}
            parts = content.get("parts")
            for part in parts if isinstance(parts, list) else ():
                if isinstance(part, Mapping):
                    self._add(dict(part))

    def _add(self, part: dict[str, Any]) -> None:
        self.written = self.written or bool(part.get("text") or part.get("functionCall"))
        last = self._parts[-1] if self._parts else {}
        # Pieces of one text, unless one of them has more to say.
        if isinstance(part.get("text"), str) and isinstance(last.get("text"), str) and _beside(part) == _beside(last):
            last["text"] += part["text"]
        else:
            self._parts.append(part)

    def value(self) -> Any:
        """The reply."""
        if not self._whole and not self._candidate:
            return None
        if not self._candidate.get("finishReason") and not value_at(self._whole, ("promptFeedback", "blockReason")):
            raise cut_off("it has no finishReason")
        if not self._candidate:
            return self._whole
        content = {**self._content, "parts": self._parts}
        return {**self._whole, "candidates": [{**self._candidate, "content": content}]}


def _beside(part: Mapping[str, Any]) -> dict[str, Any]:
    """What a part has beside its text."""
    return {key: value for key, value in part.items() if key != "text"}
