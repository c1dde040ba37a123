"""A conversation as chat completions write it, read into parts, for APIs whose messages differ."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.naming import kind_of
from evalq.evalcore.records.answers import BadAnswer, read_messages, text_of
from evalq.evalcore.records.tool_calls import NoCall, read_call


class TextPart(NamedTuple):
    """A text."""

    text: str


class ImagePart(NamedTuple):
    """An image: its address, or its media type and its bytes in base64."""

    url: str
    media: str = ""
    data: str = ""


class ToolUse(NamedTuple):
    """A call of a tool by the model."""

    id: str
    name: str
    arguments: dict[str, Any]


class ToolResult(NamedTuple):
    """What a tool gave."""

    id: str
    name: str
    text: str
    failed: bool


class OwnPart(NamedTuple):
    """A part in another form, which is sent as it is: of the API's own forms, as a rule."""

    part: dict[str, Any]


Part = TextPart | ImagePart | ToolUse | ToolResult | OwnPart


class TalkTurn(NamedTuple):
    """What one side says; results of tools are the user's."""

    assistant: bool
    parts: list[Part]

    @property
    def only_text(self) -> str | None:
        """The text, if there is nothing else."""
        return self.parts[0].text if len(self.parts) == 1 and isinstance(self.parts[0], TextPart) else None


class Conversation(NamedTuple):
    """The system's texts, and the turns: two of one side that follow each other are one."""

    system: list[str]
    turns: list[TalkTurn]


def read_conversation(system: str, messages: Sequence[Mapping[str, Any]]) -> Conversation:
    """The parts of a conversation. Raises ConfigError for a message that cannot be read."""
    systems = [system] if system else []
    turns: list[TalkTurn] = []
    names: dict[str, str] = {}
    try:
        for message in read_messages(list(messages)):
            if message["role"] == "system":
                systems.append(text_of(message.get("content")))
                continue
            assistant = message["role"] == "assistant"
            parts = [*_parts(message, names)]
            if turns and turns[-1].assistant == assistant:
                turns[-1].parts.extend(parts)
            elif parts:
                turns.append(TalkTurn(assistant, parts))
    except (BadAnswer, NoCall) as error:
        raise ConfigError(f"the case's {error}") from None
    return Conversation([text for text in systems if text], turns)


def _parts(message: Mapping[str, Any], names: dict[str, str]) -> Iterator[Part]:
    if message["role"] == "tool":
        yield _result(message, names)
        return
    content = message.get("content")
    for part in [content] if isinstance(content, str | Mapping) else content or ():
        yield _part(part)
    for value in message.get("tool_calls") or ():
        call = read_call(value)
        if call.unread:
            raise NoCall(f"messages: tool_calls: {call.name}: {call.unread}")
        # Not each API names its calls, and some want a name.
        use = ToolUse(call.id or f"call_{len(names) + 1}", call.name, call.arguments)
        names[use.id] = use.name
        yield use


def _result(message: Mapping[str, Any], names: Mapping[str, str]) -> ToolResult:
    content, name = message.get("content"), message.get("name")
    text = text_of(content) if isinstance(content, str | list | tuple) else msgspec.json.encode(content).decode()
    # Without an id it is of the last call, as agents that make one call at a time write it.
    id_ = message.get("tool_call_id") or next(reversed([*names]), "call_1")
    named = name if isinstance(name, str) and name else names.get(str(id_), "tool")
    return ToolResult(str(id_), named, text, bool(message.get("error") or message.get("is_error")))


_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)", re.DOTALL)


def _part(part: Any) -> Part:
    if isinstance(part, str):
        return TextPart(part)
    if not isinstance(part, Mapping):
        raise BadAnswer(f"messages: content: {kind_of(part)} where a text or a part is wanted")
    if isinstance(part.get("text"), str) and part.get("type") in ("text", "input_text", "output_text", None):
        return OwnPart(dict(part)) if part.keys() - {"type", "text", "annotations"} else TextPart(part["text"])
    if part.get("type") == "image_url":
        image = part.get("image_url")
        url = image.get("url") if isinstance(image, Mapping) else image
        if not isinstance(url, str):
            raise BadAnswer("messages: content: image_url: has no url")
        found = _DATA_URL.fullmatch(url)
        return ImagePart(url, found[1], found[2]) if found else ImagePart(url)
    return OwnPart(dict(part))
