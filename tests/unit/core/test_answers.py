"""The typed answer: what an envelope may hold, what follows from its messages, and what is refused where."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import evalq
from evalq.evalcore.model.calls import Attempt, Doings, Output, Served, Tokens
from evalq.evalcore.records.answers import BadAnswer, read_envelope
from evalq.evalcore.records.usage import token_parts

CALLS = [
    {"role": "user", "content": "weather?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"city": "Seoul"}'}},
            {"id": "b", "type": "function", "function": {"name": "look", "arguments": "{city"}},
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "sunny"},
    {"role": "tool", "tool_call_id": "b", "content": "no such city", "status": "error"},
    {"role": "assistant", "content": [{"type": "text", "text": "It is "}, {"type": "text", "text": "sunny"}]},
]


def test_the_output_and_the_calls_follow_from_the_messages() -> None:
    read = read_envelope({"messages": CALLS})
    assert read.output == "It is sunny"
    first, second = read.tool_calls or ()
    assert first == {"name": "look", "arguments": {"city": "Seoul"}, "result": "sunny", "id": "a"}
    assert (second["arguments"], second["error"]) == ("{city", "no such city")
    assert "no JSON" in second["unread"]


def test_what_an_agent_states_comes_before_what_follows() -> None:
    read = read_envelope({"messages": CALLS, "output": {"sun": True}, "tool_calls": []})
    assert read.output == {"sun": True}
    assert read.tool_calls == ()


def test_unknown_is_absent_and_never_zero() -> None:
    read = read_envelope({"output": "x"})
    assert (read.usage, read.cost, read.tool_calls, read.turns, bool(read.served)) == (
        Tokens(),
        None,
        None,
        None,
        False,
    )


def test_other_keys_stay() -> None:
    assert read_envelope({"output": "x", "score": 3, "extra": {"k": 1}}).extra == {"score": 3, "k": 1}


def test_a_public_answer_is_read_as_it_was_given() -> None:
    given = evalq.Answer(
        output="done",
        usage=evalq.Tokens(input=10, cached_input=4, output=3),
        served={"model": "m-2"},
        cost=0.5,
        turns=2,
    )
    read = read_envelope(msgspec.json.decode(msgspec.json.encode(given)))
    assert (read.usage, read.served, read.cost, read.turns) == (
        Tokens(input=10, cached_input=4, output=3), Served("m-2"), 0.5, 2,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ([], "a list"),
        ({}, "output: missing"),
        ({"answer": "x"}, "the keys are: answer"),
        ({"output": 1, "usage": 3}, "usage: a number"),
        ({"output": 1, "usage": {"input": -1}}, "usage.input: -1"),
        ({"output": 1, "usage": {"input": True}}, "usage.input: True"),
        ({"output": 1, "usage": {"input": 1, "cached_input": 2}}, "usage: 2 cached tokens"),
        ({"output": 1, "usage": {"output": 1, "reasoning": 2}}, "usage: 2 reasoning tokens"),
        ({"output": 1, "cost": float("nan")}, "cost: nan"),
        ({"output": 1, "cost": 10**400}, "cost:"),
        ({"output": 1, "turns": 1.5}, "turns: 1.5"),
        ({"output": 1, "finish": 3}, "finish: 3"),
        ({"output": 1, "served": ["m"]}, "served: a list"),
        ({"output": 1, "tool_calls": {}}, "tool_calls: an object"),
        ({"output": 1, "tool_calls": [{"arguments": {}}]}, "tool_calls[0]: an object without a name"),
        ({"output": 1, "messages": "hi"}, "messages: a string"),
        ({"messages": [{"role": "user", "content": "x"}, {"role": "robot"}]}, "messages[1].role: 'robot'"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content: a number"),
        ({"messages": [{"role": "assistant", "tool_calls": [3]}]}, "messages[0].tool_calls[0]: a number"),
        ({"output": 1, "extra": []}, "extra: a list"),
    ],
)
def test_a_fault_is_named_by_its_place(data: Any, place: str) -> None:
    with pytest.raises(BadAnswer) as raised:
        read_envelope(data)
    assert place in str(raised.value)


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}},
         (9, 4, None, None, 5, None)),
        ({"input_tokens": 9, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 4},
          "output_tokens_details": {"reasoning_tokens": 2}}, (9, 4, None, None, 5, 2)),
        ({"input_tokens": 2, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 3, "output_tokens": 5},
         (9, 4, 3, None, 5, None)),
        ({"input_tokens": 2, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 3, "output_tokens": 5,
          "cache_creation": {"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 2}}, (9, 4, 1, 2, 5, None)),
        ({"promptTokenCount": 9, "candidatesTokenCount": 3, "thoughtsTokenCount": 2, "cachedContentTokenCount": 4},
         (9, 4, None, None, 5, 2)),
        ({"inputTokens": 2, "outputTokens": 5, "cacheReadInputTokens": 4, "cacheWriteInputTokens": 3},
         (9, 4, 3, None, 5, None)),
        ({"input": 9, "output": 5}, (9, None, None, None, 5, None)),
        ({}, (None,) * 6),
    ],
)  # fmt: skip
def test_providers_count_differently_and_mean_the_same(usage: Any, tokens: tuple[int | None, ...]) -> None:
    """Whole counts hold their parts: cached and written tokens those of input, reasoning those of output."""
    assert Tokens(**token_parts(usage)) == Tokens(*tokens)


def test_a_recorded_answer_comes_back_from_its_line() -> None:
    did = Doings(tool_calls=msgspec.Raw(b'[{"name":"go","arguments":{}}]'), turns=2, finish="stop")
    attempt = Attempt(prompt_tokens=9, cached_tokens=4, served=Served("m-2", "fp"))
    output = Output(0, "c", "", 1, "p", "t", "s", msgspec.Raw(b'"x"'), attempts=(attempt,), did=did)
    line = output.line()
    assert Output.of_line(line) == output
    assert Output.from_wire(msgspec.json.encode(output)) == output
    assert b"messages" not in line
