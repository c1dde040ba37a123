"""Messages in the forms of agent frameworks, as their packages write them: one conversation, the same calls."""

from __future__ import annotations

from typing import Any

import pytest

from evalq.evalcore.model.calls import Tokens
from evalq.evalcore.records.answers import BadAnswer, read_envelope, read_messages

QUESTION = "How is the weather in Oslo?"
CALL = {"name": "weather", "args": {"city": "Oslo"}, "id": "c1", "type": "tool_call"}
USAGE = {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25, "input_token_details": {"cache_read": 8}}
ITEM = {"arguments": '{"city":"Oslo"}', "call_id": "c1", "name": "weather", "type": "function_call"}
FUNCTION = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}
PYDANTIC_USAGE = {"input_tokens": 20, "cache_write_tokens": 0, "cache_read_tokens": 8, "output_tokens": 5}


def lang(kind: str, content: str | None, **more: Any) -> dict[str, Any]:
    return {"content": content, "additional_kwargs": {}, "response_metadata": {}, "type": kind, "name": None, **more}


def part(kind: str, content: Any = None, **more: Any) -> dict[str, Any]:
    return {"part_kind": kind, "content": content, **more}


LANGCHAIN = [
    lang("human", QUESTION),
    lang("ai", "", tool_calls=[CALL], invalid_tool_calls=[], usage_metadata=USAGE),
    lang("tool", "snow", tool_call_id="c1", status="success"),
    lang("ai", "Expect snow.", tool_calls=[], usage_metadata=USAGE,
         response_metadata={"model_name": "m-1", "finish_reason": "end_turn"}),
]  # fmt: skip
FORMS: dict[str, list[Any]] = {
    "langchain": LANGCHAIN,
    "langchain-stored": [{"type": each["type"], "data": each} for each in LANGCHAIN],
    "langchain-constructors": [
        {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", name],
         "kwargs": {key: value for key, value in each.items() if key != "type"}}
        for name, each in zip(("HumanMessage", "AIMessage", "ToolMessage", "AIMessageChunk"), LANGCHAIN, strict=True)
    ],
    "responses": [
        {"content": QUESTION, "role": "user"},
        {"type": "reasoning", "id": "r1", "summary": []},
        ITEM,
        {"call_id": "c1", "output": "snow", "type": "function_call_output"},
        {"id": "m", "content": [{"annotations": [], "text": "Expect snow.", "type": "output_text"}],
         "role": "assistant", "status": "completed", "type": "message"},
    ],
    "pydantic-ai": [
        {"kind": "request", "parts": [part("user-prompt", QUESTION)], "instructions": None},
        {"kind": "response", "usage": PYDANTIC_USAGE, "model_name": "m-1", "finish_reason": None, "parts": [
            part("thinking", "hm"), part("tool-call", tool_name="weather", args={"city": "Oslo"}, tool_call_id="c1")]},
        {"kind": "request", "parts": [part("tool-return", "snow", tool_name="weather", tool_call_id="c1")]},
        {"kind": "response", "usage": PYDANTIC_USAGE, "model_name": "m-1", "finish_reason": "stop",
         "parts": [part("text", "Expect snow.")]},
    ],
    "smolagents": [
        {"task": QUESTION, "task_images": None},
        {"step_number": 1, "tool_calls": [FUNCTION], "observations": "snow", "error": None, "model_output": "",
         "token_usage": {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25}},
        {"step_number": 2, "tool_calls": None, "observations": None, "error": None, "model_output": "Expect snow.",
         "token_usage": {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25}},
        {"output": "Expect snow."},
    ],
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_one_conversation_is_the_same_in_each_form(form: str) -> None:
    read = read_envelope({"messages": FORMS[form]})
    assert [message["role"] for message in read.messages] == ["user", "assistant", "tool", "assistant"]
    assert read.output == "Expect snow."
    assert read.tool_calls is not None
    (call,) = read.tool_calls
    assert (call["name"], call["arguments"], call["result"], call["id"]) == ("weather", {"city": "Oslo"}, "snow", "c1")
    assert (read.usage.input, read.usage.output) == (
        (None, None) if form == "responses" else (40, 10)
    )  # the items of Responses state none
    if form.startswith(("langchain", "pydantic")):
        assert (read.usage.cached_input, read.served.model, read.finish) == (16, "m-1", "stop")


def test_what_the_answer_states_itself_counts() -> None:
    read = read_envelope({"messages": LANGCHAIN, "usage": {"input": 1}, "served": "other", "finish": "length"})
    assert (read.usage, read.served.model, read.finish) == (Tokens(input=1), "other", "length")


def test_tokens_that_a_message_lacks_are_unknown() -> None:
    """And those of calls before the user's last message are not of this answer."""
    *rest, last = LANGCHAIN
    silent = {key: value for key, value in last.items() if key != "usage_metadata"}
    assert read_envelope({"messages": [*rest, silent]}).usage == Tokens()
    both = read_envelope({"messages": [*LANGCHAIN, lang("human", "And now?"), last]}).usage
    assert (both.input, both.output, both.cached_input) == (20, 5, 8)
    uncached = {**last, "usage_metadata": {"input_tokens": 3, "output_tokens": 4}}
    assert read_envelope({"messages": [*rest, uncached]}).usage == Tokens(input=23, output=9)


def test_calls_of_one_reply_are_one_message_and_failures_are_errors() -> None:
    both = read_envelope({"messages": [
        {"role": "user", "content": "x"},
        ITEM, {**ITEM, "call_id": "c2", "arguments": "no json"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "seen"}]},
        {"type": "mcp_call", "id": "c3", "name": "find", "arguments": "{}", "error": "no such thing"},
        {"type": "web_search_call", "id": "c4", "action": {"query": "oslo"}},
    ]})  # fmt: skip
    assert [len(message.get("tool_calls", ())) for message in both.messages] == [0, 2, 0, 2, 0]
    assert both.tool_calls is not None
    second, third, fourth = both.tool_calls[1:]
    assert "unread" in second
    assert second["result"] == "seen"
    assert third["error"] == "no such thing"
    assert (fourth["name"], fourth["arguments"]) == ("web_search", {"query": "oslo"})
    retried = read_envelope({"messages": [
        {"kind": "response", "parts": [part("tool-call", tool_name="f", args="{}", tool_call_id="c1")]},
        {"kind": "request", "parts": [part("retry-prompt", [{"msg": "bad"}], tool_name="f", tool_call_id="c1")]},
    ]}).tool_calls  # fmt: skip
    assert retried == ({"name": "f", "arguments": {}, "error": '[{"msg":"bad"}]', "id": "c1"},)
    (failed,) = read_envelope({"messages": [
        {"step_number": 1, "tool_calls": [FUNCTION], "error": {"type": "AgentToolExecutionError", "message": "cold"}},
    ]}).tool_calls or ()  # fmt: skip
    assert failed["error"] == "cold"
    invalid = lang("ai", "", tool_calls=[], invalid_tool_calls=[{**CALL, "args": "{", "error": "cut off"}])
    (unread,) = read_envelope({"messages": [invalid]}).tool_calls or ()
    assert unread["unread"]


@pytest.mark.parametrize("given", [{}, {"type": "human"}, {"kind": "request"}, {"parts": []}, {"type": "image"}, "x"])
def test_what_has_no_known_form_is_named_by_its_place(given: Any) -> None:
    with pytest.raises(BadAnswer, match=r"messages\[1\]"):
        read_messages([{"role": "user", "content": "x"}, given])
