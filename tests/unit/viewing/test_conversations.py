"""The conversation of an answer on a page: messages in order, calls with what came of them, and what it took."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalq.producer.page.answers import answer_of
from evalq.producer.page.conversation import ShownCall, ShownMessage
from evalq.producer.page.render import answer_block

TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "<b>Tea</b>?"},
    {"role": "assistant", "content": "One moment.", "tool_calls": [
        {"id": "a", "name": "stock", "arguments": {"of": "tea"}}, {"id": "b", "name": "price", "arguments": "{tea"},
    ]},
    {"role": "tool", "tool_call_id": "b", "content": "no such <i>thing</i>", "is_error": True},
    {"role": "tool", "tool_call_id": "a", "content": '{"left": 9}'},
    {"role": "tool", "content": "nobody asked"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Nine cups."}]},
]  # fmt: skip


def line(**record: Any) -> bytes:
    return json.dumps({"case": "a", **record}).encode()


def test_messages_stand_in_order_with_the_results_of_their_calls() -> None:
    """A result stands beside its call; one without a call stands by itself; thoughts are left out."""
    answer = answer_of(line(messages=TALK))
    assert answer.text == "Nine cups."
    assert answer.messages == (
        ShownMessage("user", "<b>Tea</b>?"),
        ShownMessage("assistant", "One moment.", (
            ShownCall("stock", '{\n  "of": "tea"\n}', '{"left": 9}'),
            ShownCall("price", "{tea", "no such <i>thing</i>", failed=True),
        )),
        ShownMessage("tool", "nobody asked"),
        ShownMessage("assistant", "Nine cups."),
    )  # fmt: skip
    shown = str(answer_block(answer))
    assert "Conversation: 4 messages, 2 tool calls" in shown
    assert "<b>Tea" not in shown
    assert "<i>thing" not in shown
    places = [shown.index(text) for text in ("One moment", "stock", "left", "price", "no such", "nobody asked")]
    assert places == sorted(places)
    assert '<details class="conversation" open>' in shown
    assert '<details class="conversation">' in str(answer_block(answer_of(line(messages=TALK * 4))))


def test_a_record_says_what_an_answer_took() -> None:
    """Tokens by part, the model, turns, the first token and the end: of a recorded output, and of attempts."""
    usage = {"input": 1200, "cached_input": 900, "output": 50, "reasoning": 20}
    stated = {"usage": usage, "served": {"model": "m", "fingerprint": "f"}, "finish": "stop", "turns": 2, "cost": 0.5}
    facts = dict(answer_of(line(output="x", **stated)).facts())
    assert facts["Tokens"] == "1,200 in the prompt, 900 of these from a cache, 50 in the answer, 20 of these reasoning"
    assert (facts["Model"], facts["Finish"], facts["Turns"], facts["Cost"]) == ("m f", "stop", "2", "0.5")
    attempts = [
        {"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 8, "cost": 1, "served": {"model": "old"}},
        {"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 9, "cost": 1, "served": {"model": "new"}},
    ]
    facts = dict(answer_of(line(output="x", attempts=attempts)).facts())
    assert facts["Tokens"] == "20 in the prompt, 10 in the answer"
    assert (facts["Of these tokens"], facts["Model"], facts["Cost"]) == ("17 from a cache", "new", "2")


@pytest.mark.parametrize(
    "messages",
    [7, "x", [7], [{"role": "narrator"}], [{"role": "assistant", "tool_calls": [{"no": "name"}]}], [[]], {}, None],
    ids=str,
)
def test_a_damaged_conversation_is_none(messages: Any) -> None:
    """The answer is shown as it is."""
    answer = answer_of(line(output="x", messages=messages, usage=[3], served=4, finish=5, turns="x", cost="y"))
    assert (answer.text, answer.messages) == ("x", ())
    assert "x" in str(answer_block(answer))


def test_calls_without_messages_have_their_outcome() -> None:
    """As a record's own list has it."""
    calls = [{"name": "go", "arguments": {}, "result": [1]}, {"name": "go", "error": "down"}]
    shown = str(answer_block(answer_of(line(output="x", tool_calls=calls))))
    assert "Result" in shown
    assert "down" in shown
