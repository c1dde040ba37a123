"""Calls of tools are read in every form in which agents write them, and arguments are never lost in silence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalq.evalcore.evaluators.checks.answer import CheckedAnswer, Uncomputable
from evalq.evalcore.evaluators.checks.check import compile_check
from evalq.evalcore.records.tool_calls import NoCall, calls_in, read_call, recorded_call

ARGS = {"city": "Seoul", "days": 2}
TEXT = json.dumps(ARGS)
FORMS: list[dict[str, Any]] = [
    *({"name": "go", key: ARGS} for key in ("arguments", "input", "args", "parameters", "kwargs", "params")),
    *({"name": "go", key: TEXT} for key in ("arguments", "input", "args", "parameters", "kwargs", "tool_input")),
    {"id": "c1", "type": "function", "function": {"name": "go", "arguments": TEXT}},
    {"function": {"name": "go", "arguments": ARGS}},
    {"type": "function_call", "call_id": "c1", "name": "go", "arguments": TEXT, "status": "completed"},
    {"type": "tool_use", "id": "toolu_1", "name": "go", "input": ARGS},
    {"functionCall": {"name": "go", "args": ARGS}, "thoughtSignature": "x"},
    {"function_call": {"name": "go", "args": ARGS}},
    {"toolUse": {"toolUseId": "t", "name": "go", "input": ARGS}},
    {"name": "go", "args": ARGS, "id": "c", "type": "tool_call"},
    {"type": "tool-call", "toolCallId": "c", "toolName": "go", "input": ARGS},
    {"id": "c", "function": "go", "arguments": ARGS, "type": "function", "view": {"content": "x"}},
    {"name": "go", "description": "d", "reasoning": None, "output": {"a": 1}, "inputParameters": ARGS},
    {"tool": "go", "tool_input": ARGS},
    {"name": "go", "arguments": json.dumps(TEXT)},
    {"name": "go", "arguments": {}, "input": ARGS},
    {"name": "go", "args": [], "kwargs": ARGS},
]


@pytest.mark.parametrize("form", FORMS, ids=json.dumps)
def test_every_form_has_its_arguments(form: dict[str, Any]) -> None:
    """By its own name, as text or as an object; checks hold `exact` against them, and imports keep them."""
    assert read_call(form)[:3] == ("go", ARGS, "")
    assert recorded_call(form) == {"name": "go", "arguments": ARGS}
    answer = CheckedAnswer("done", tool_calls=[form])
    assert _passed({"calls-tool": "go", "exact": True, "arguments": ARGS}, answer) is True
    assert _passed({"calls-tool": "go", "exact": True}, answer) is False
    assert _passed({"tool-calls": ["go"], "exact": True}, answer) is False
    assert _passed({"tool-calls": [{"name": "go", "arguments": {"days": 2}}]}, answer) is True


ANSWERS = [
    {"tool_calls": [FORMS[0]]},
    {"content": [{"type": "text", "text": "I go"}, {"type": "tool_use", "id": "t", "name": "go", "input": ARGS}]},
    {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "go", "arguments": TEXT}}]},
    {"choices": [{"message": {"content": None, "tool_calls": [{"function": {"name": "go", "arguments": TEXT}}]}}]},
    {"candidates": [{"content": {"parts": [{"text": "x"}, {"functionCall": {"name": "go", "args": ARGS}}]}}]},
    {"output": [{"type": "reasoning", "summary": []}, {"type": "function_call", "name": "go", "arguments": TEXT}]},
    {"output": {"message": {"content": [{"text": "x"}, {"toolUse": {"name": "go", "input": ARGS}}]}}},
    {"content": "", "additional_kwargs": {"tool_calls": [{"function": {"name": "go", "arguments": TEXT}}]}},
    {"role": "assistant", "function_call": {"name": "go", "arguments": TEXT}},
    [{"type": "text", "text": "x"}, {"type": "tool_use", "name": "go", "input": ARGS}],
]  # fmt: skip


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: json.dumps(answer)[:60])
def test_an_answer_has_its_calls_where_its_provider_puts_them(answer: Any) -> None:
    """Chat completions, Messages, Responses, Gemini, Converse, LangChain."""
    assert [call[:3] for call in calls_in(answer) or ()] == [("go", ARGS, "")]
    assert [call.name for call in CheckedAnswer(answer).tool_calls] == ["go"]


@pytest.mark.parametrize("answer", ["text", 3, None, {}, {"content": "x"}, {"output": [1, 2]}, ["a"], {"content": []}])
def test_data_that_says_nothing_of_calls_is_no_empty_list(answer: Any) -> None:
    """No check of calls passes on it."""
    assert calls_in(answer) is None
    with pytest.raises(Uncomputable):
        _ = CheckedAnswer(answer).tool_calls


def test_a_message_without_calls_has_none() -> None:
    """A list of parts, none of which is a call, says so."""
    assert calls_in({"content": [{"type": "text", "text": "no tool needed"}]}) == []


LOST: list[dict[str, Any]] = [
    {"name": "go", "arguments": '{"city": "Seoul",'},
    {"name": "go", "input": "Seoul"},
    {"name": "go", "args": ["Seoul", 2]},
    {"name": "go", "payload": ARGS},
    {"name": "go", "query_json": TEXT},
    {"name": "go", "arguments": {"city": "Seoul"}, "input": {"city": "Busan"}},
    {"name": "go", "args": ["Seoul"], "kwargs": {"days": 2}},
    {"function": "go", "arguments": {}, "parse_error": "bad JSON"},
]


@pytest.mark.parametrize("form", LOST, ids=json.dumps)
def test_arguments_that_cannot_be_read_decide_nothing(form: dict[str, Any]) -> None:
    """Neither a check that rests on them nor its opposite passes; one that asks for the name alone does."""
    call = read_call(form)
    assert call.unread
    answer = CheckedAnswer("done", tool_calls=[form])
    options: tuple[dict[str, Any], ...] = ({"exact": True}, {"arguments": ARGS})
    for name, value in (("calls-tool", "go"), ("not-calls-tool", "go")):
        for more in options:
            assert "cannot be read" in str(_passed({name: value, **more}, answer))
    for name in ("tool-calls", "not-tool-calls"):
        assert "cannot be read" in str(_passed({name: ["go"], "exact": True}, answer))
    assert _passed({"calls-tool": "go"}, answer) is True
    assert _passed({"tool-calls": ["go"], "order": "exact"}, answer) is True
    assert _passed({"calls-tool": "stop", "exact": True}, answer) is False
    # Where others decide, it does not matter.
    both = CheckedAnswer("done", tool_calls=[form, FORMS[0]])
    assert _passed({"calls-tool": "go", "arguments": ARGS}, both) is True
    assert _passed({"tool-calls": [{"name": "go", "arguments": ARGS}]}, both) is True
    assert "cannot be read" in str(_passed({"calls-tool": "go", "arguments": ARGS, "max": 1}, both))
    assert recorded_call(form)["name" if "name" in form else "function"] == "go"
    assert read_call(recorded_call(form)).unread


def test_without_a_name_it_is_no_call() -> None:
    """In a list, the fault says which."""
    forms: list[Any] = [{}, {"arguments": ARGS}, {"name": 3}, {"function": {}}, 5, None]
    for form in forms:
        with pytest.raises(NoCall):
            read_call(form)
    with pytest.raises(Uncomputable, match=r"tool_calls\[1\]: "):
        _ = CheckedAnswer("x", tool_calls=[{"name": "go"}, {}]).tool_calls


def _passed(check: dict[str, Any], answer: CheckedAnswer) -> bool | str | None:
    """Whether it passes; where it could look at nothing, why."""
    said = compile_check(check).judge(answer)
    assert said.looked or said.passed is False
    return said.passed if said.looked else said.found
