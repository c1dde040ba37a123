"""Replies and events with anything in any place: each is an answer, or the failure that a reader may raise."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.records.json_values import NothingThere
from evalq.workers.targets.answers import Answered, Failure, RateLimits
from evalq.workers.targets.events import EventReader, StreamFailed
from evalq.workers.targets.providers.anthropic import AnthropicClient, MessageEvents
from evalq.workers.targets.providers.bedrock import BedrockClient
from evalq.workers.targets.providers.chat import ModelClient, OtherFormat, outcome
from evalq.workers.targets.providers.gemini import ContentChunks, GenerateContentClient
from evalq.workers.targets.providers.openai import ChatChunks, ChatClient
from evalq.workers.targets.providers.responses import ResponseEvents, ResponsesClient
from evalq.workers.targets.web import Reply
from tests.agents import providers
from tests.agents.providers import Says

SAYS = Says(calls=(("weather", {"city": "Bonn"}),), thinks="hm", cached=3, written=2, reasoning=4)
APIS: dict[str, tuple[type[ModelClient], Callable[[Says], Any], type[Any] | None, Callable[[Says], list[str]] | None]]
APIS = {
    "openai": (ChatClient, providers.completion, ChatChunks, providers.completion_events),
    "responses": (ResponsesClient, providers.response, ResponseEvents, providers.response_events),
    "anthropic": (AnthropicClient, providers.message, MessageEvents, providers.message_events),
    "gemini": (GenerateContentClient, providers.content, ContentChunks, providers.content_events),
    "bedrock": (BedrockClient, providers.converse, None, None),
}
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 1.5, 1 << 70, "", "x", "{", [], [None], {}, {"x": 1}, [[]], [{"type": 3}], {"type": []}]
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values within."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, each in inner for place in places(each, (*at, key)))]


def changed(value: Any, at: tuple[Any, ...], odd: Any) -> Any:
    """A copy with ``odd`` at a place."""
    if not at:
        return odd
    copied = json.loads(json.dumps(value))
    holder = copied
    for key in at[:-1]:
        holder = holder[key]
    holder[at[-1]] = odd
    return copied


def read(client: type[ModelClient], value: Any) -> Answered | Failure | None:
    """What comes of a reply; None if it is not the API's."""
    try:
        said = client._read(client.__new__(client), value)
    except (NothingThere, OtherFormat, StreamFailed):
        return None
    text = msgspec.json.encode(value).decode()
    return outcome(Reply(value, text, RateLimits(), 0.1, 100, len(text)), said)


@pytest.mark.parametrize("api", APIS)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_anything_in_any_place_of_a_reply(api: str, data: st.DataObject) -> None:
    client, whole, _, _ = APIS[api]
    value = whole(SAYS)
    for _ in range(data.draw(st.integers(1, 2))):
        value = changed(value, data.draw(st.sampled_from(places(value))), data.draw(ODD))
    result = read(client, value)
    if result is not None:
        assert result.prompt_tokens is None or 0 <= result.prompt_tokens < 1 << 21


@pytest.mark.parametrize("api", [name for name, each in APIS.items() if each[2] is not None])
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_anything_in_any_place_of_an_event(api: str, data: st.DataObject) -> None:
    client, _, joined_type, events = APIS[api]
    assert joined_type is not None
    assert events is not None
    listed = EventReader().feed("".join(events(SAYS)).encode())
    odd_one = data.draw(st.integers(0, len(listed) - 1))
    dropped = data.draw(st.sets(st.integers(0, len(listed) - 1), max_size=2))
    joined = joined_type()
    try:
        for number, event in enumerate(listed):
            if number in dropped or event.data == "[DONE]":
                continue
            value = json.loads(event.data)
            if number == odd_one:
                value = changed(value, data.draw(st.sampled_from(places(value))), data.draw(ODD))
            joined.take(event.type, value)
        read(client, joined.value())
    except StreamFailed as failed:
        reason = failed.reason
    else:
        reason = "none"
    assert reason
