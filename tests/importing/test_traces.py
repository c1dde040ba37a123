"""Traces and transcripts of other tools become lines of one form, which `--traces` takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.fold import evaluate_files
from evalq.evalcore.records.answers import read_envelope
from evalq.producer.importing import sources
from evalq.producer.importing.imported import Imported, ImportRequest, write

CALL = {"name": "weather", "arguments": {"city": "Seoul"}, "result": "21", "id": "c1"}
TIMES = [f"2026-03-01T10:00:0{second}.000Z" for second in range(6)]


def _lines(path: Path, values: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def _json(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def claude_code(folder: Path) -> Path:
    """A session with a call of a tool; the second reply stands on two lines, each with the whole usage."""
    asks = {"id": "m1", "model": "claude-x", "role": "assistant", "stop_reason": "tool_use",
            "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Seoul"}}],
            "usage": {"input_tokens": 10, "cache_read_input_tokens": 15, "cache_creation_input_tokens": 5,
                      "output_tokens": 6}}  # fmt: skip
    usage = {"input_tokens": 20, "cache_read_input_tokens": 5, "output_tokens": 12}
    answers = {"id": "m2", "model": "claude-x", "role": "assistant", "usage": usage, "stop_reason": "end_turn"}
    result = [{"type": "tool_result", "tool_use_id": "c1", "content": "21"}]
    said = [
        ("user", {"role": "user", "content": "How warm is Seoul?"}),
        ("assistant", asks),
        ("user", {"role": "user", "content": result}),
        ("assistant", {**answers, "content": [{"type": "thinking", "thinking": "easy"}]}),
        ("assistant", {**answers, "content": [{"type": "text", "text": "Seoul has 21 degrees."}]}),
    ]
    lines: list[dict[str, Any]] = [{"type": "summary", "summary": "Weather", "leafUuid": "u4"}]
    for number, (kind, message) in enumerate(said):
        lines.append({"type": kind, "uuid": f"u{number}", "sessionId": "s-1", "timestamp": TIMES[number],
                      "cwd": "/w", "gitBranch": "main", "message": message})  # fmt: skip
    return _lines(folder / "session.jsonl", lines)


def codex(folder: Path) -> Path:
    """A rollout: the usage of the session is that of the last count."""
    total = {"input_tokens": 55, "cached_input_tokens": 20, "output_tokens": 18, "reasoning_output_tokens": 4}
    payloads = [
        ("session_meta", {"id": "s-1", "cwd": "/w", "cli_version": "1.0", "model_provider": "openai"}),
        ("turn_context", {"model": "gpt-x"}),
        ("response_item", {"type": "message", "role": "user",
                           "content": [{"type": "input_text", "text": "<environment_context>linux"}]}),
        ("response_item", {"type": "message", "role": "user",
                           "content": [{"type": "input_text", "text": "How warm is Seoul?"}]}),
        ("response_item", {"type": "reasoning", "summary": [], "encrypted_content": "x"}),
        ("response_item", {"type": "function_call", "name": "weather", "arguments": '{"city": "Seoul"}',
                           "call_id": "c1"}),
        ("event_msg", {"type": "token_count", "info": {"total_token_usage": {"input_tokens": 5, "output_tokens": 1}}}),
        ("response_item", {"type": "function_call_output", "call_id": "c1", "output": "21"}),
        ("event_msg", {"type": "token_count", "info": {"total_token_usage": total}}),
        ("response_item", {"type": "message", "role": "assistant",
                           "content": [{"type": "output_text", "text": "Seoul has 21 degrees."}]}),
    ]  # fmt: skip
    lines = [{"timestamp": TIMES[0], "type": kind, "payload": payload} for kind, payload in payloads]
    return _lines(folder / "rollout.jsonl", [*lines[:-1], {**lines[-1], "timestamp": TIMES[4]}])


def atif(folder: Path) -> Path:
    """A trajectory under the folder of its trial, whose result stands above."""
    (folder / "agent").mkdir()
    _json(folder / "result.json", {"trial_name": "s-1", "task_name": "weather",
                                   "verifier_result": {"rewards": {"reward": 1.0}}})  # fmt: skip
    call = {"tool_call_id": "c1", "function_name": "weather", "arguments": {"city": "Seoul"}}
    counts = {"prompt_tokens": 30, "completion_tokens": 9, "cached_tokens": 20, "cost_usd": 0.01}
    steps = [
        {"step_id": 1, "timestamp": TIMES[0], "source": "user", "message": "How warm is Seoul?"},
        {"step_id": 2, "timestamp": TIMES[1], "source": "agent", "message": "", "model_name": "m-1",
         "tool_calls": [call], "metrics": counts,
         "observation": {"results": [{"source_call_id": "c1", "content": "21"}]}},
        {"step_id": 3, "timestamp": TIMES[4], "source": "agent", "message": "Seoul has 21 degrees.",
         "metrics": {"prompt_tokens": 25, "completion_tokens": 9, "cost_usd": 0.02}},
    ]  # fmt: skip
    agent = {"name": "bot", "version": "1", "model_name": "m-1"}
    whole = {"schema_version": "ATIF-v1.4", "session_id": "s-1", "agent": agent, "steps": steps}
    return _json(folder / "agent" / "trajectory.json", whole)


def swe_agent(folder: Path) -> Path:
    """A trajectory whose submission is the answer."""
    step = {"action": "weather Seoul", "observation": "21", "response": "", "thought": "", "execution_time": 0.5}
    history = [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": [{"type": "text", "text": "How warm is Seoul?"}]},
        {"role": "assistant", "content": "Let me look."},
    ]
    stats = {"instance_cost": 0.03, "tokens_sent": 55, "tokens_received": 18, "api_calls": 2}
    info = {"exit_status": "submitted", "submission": "Seoul has 21 degrees.", "model_stats": stats}
    whole = {"environment": "main", "trajectory": [step], "history": history, "info": info}
    return _json(folder / "s-1.traj", whole)


def langfuse(folder: Path) -> Path:
    """A trace as its API gives it, with its observations and a score."""
    model = {"type": "GENERATION", "traceId": "s-1", "model": "m-1", "parentObservationId": None}
    asks = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "weather",
            "arguments": '{"city": "Seoul"}'}}], "content": None}  # fmt: skip
    question = {"role": "user", "content": "How warm is Seoul?"}
    result = {"role": "tool", "tool_call_id": "c1", "content": "21"}
    observations = [
        {**model, "id": "o1", "startTime": TIMES[0], "endTime": TIMES[1], "input": [question], "output": asks,
         "usageDetails": {"input": 10, "input_cached_tokens": 20, "output": 9, "total": 39}},
        {"type": "TOOL", "traceId": "s-1", "id": "o2", "name": "weather", "startTime": TIMES[1], "endTime": TIMES[2],
         "input": {"city": "Seoul"}, "output": "21", "parentObservationId": None},
        {**model, "id": "o3", "startTime": TIMES[2], "endTime": TIMES[4], "input": [question, asks, result],
         "output": {"role": "assistant", "content": "Seoul has 21 degrees."},
         "usageDetails": {"input": 25, "output": 9}},
    ]  # fmt: skip
    trace = {"id": "s-1", "timestamp": TIMES[0], "name": "chat", "sessionId": "s-9", "tags": ["prod"],
             "input": "How warm is Seoul?", "output": "Seoul has 21 degrees.", "metadata": {"tier": "gold"},
             "observations": observations, "scores": [{"name": "helpful", "value": 1}], "totalCost": 0.03}  # fmt: skip
    return _json(folder / "trace.json", trace)


def langsmith(folder: Path) -> Path:
    """The runs of a trace, as JSON lines."""
    human = {"type": "human", "content": "How warm is Seoul?"}
    asks = {"type": "ai", "content": "", "tool_calls": [{"id": "c1", "name": "weather", "args": {"city": "Seoul"}}],
            "usage_metadata": {"input_tokens": 30, "output_tokens": 9, "input_token_details": {"cache_read": 20}},
            "response_metadata": {"model_name": "m-1", "finish_reason": "tool_calls"}}  # fmt: skip
    answer = {"type": "ai", "content": "Seoul has 21 degrees.",
              "usage_metadata": {"input_tokens": 25, "output_tokens": 9},
              "response_metadata": {"model_name": "m-1", "finish_reason": "stop"}}  # fmt: skip
    result = {"type": "tool", "tool_call_id": "c1", "content": "21"}
    top: dict[str, Any] = {"trace_id": "s-1", "parent_run_id": "s-1", "session_id": "project"}
    runs: list[dict[str, Any]] = [
        {"id": "s-1", "trace_id": "s-1", "run_type": "chain", "name": "agent", "parent_run_id": None,
         "start_time": TIMES[0], "end_time": TIMES[4], "inputs": {"messages": [human]},
         "outputs": {"messages": [human, asks, result, answer]}, "extra": {"metadata": {"thread_id": "s-9"}},
         "tags": ["prod"]},
        {**top, "id": "r1", "run_type": "llm", "name": "model", "start_time": TIMES[0], "end_time": TIMES[1],
         "inputs": {"messages": [[human]]}, "outputs": {"generations": [[{"text": "", "message": {"kwargs": asks}}]]}},
        {**top, "id": "r2", "run_type": "tool", "name": "weather", "start_time": TIMES[1], "end_time": TIMES[2],
         "inputs": {"city": "Seoul"}, "outputs": {"output": result}},
        {**top, "id": "r3", "run_type": "llm", "name": "model", "start_time": TIMES[2], "end_time": TIMES[4],
         "inputs": {"messages": [[human, asks, result]]},
         "outputs": {"generations": [[{"text": "", "message": {"kwargs": answer}}]]}},
    ]  # fmt: skip
    return _lines(folder / "runs.jsonl", runs)


def phoenix(folder: Path) -> Path:
    """Spans as the API gives them, with nested and with flat attributes."""
    asks = {"message": {"role": "assistant", "tool_calls": [{"tool_call": {"id": "c1", "function": {
            "name": "weather", "arguments": '{"city": "Seoul"}'}}}]}}  # fmt: skip
    question = {"message": {"role": "user", "content": "How warm is Seoul?"}}

    def one(number: int, kind: str, attributes: dict[str, Any], parent: str | None, at: int, end: int) -> Any:
        return {"id": f"x{number}", "context": {"trace_id": "s-1", "span_id": f"p{number}"}, "span_kind": kind,
                "parent_id": parent, "start_time": TIMES[at], "end_time": TIMES[end], "status_code": "OK",
                "attributes": attributes, "name": kind, "events": []}  # fmt: skip

    spans = [
        one(0, "AGENT", {"input.value": "How warm is Seoul?", "output.value": "Seoul has 21 degrees.",
                         "session.id": "s-9"}, None, 0, 4),
        one(1, "LLM", {"llm": {"model_name": "m-1", "input_messages": [question], "output_messages": [asks],
                               "token_count": {"prompt": 30, "completion": 9,
                                               "prompt_details": {"cache_read": 20}}}}, "p0", 0, 1),
        one(2, "TOOL", {"tool": {"name": "weather"}, "input": {"value": '{"city": "Seoul"}'},
                        "output": {"value": "21"}}, "p0", 1, 2),
        one(3, "LLM", {"llm.model_name": "m-1", "llm.input_messages": [question],
                       "llm.output_messages": [{"message": {"role": "assistant", "content": "Seoul has 21 degrees."}}],
                       "llm.token_count.prompt": 25, "llm.token_count.completion": 9}, "p0", 2, 4),
    ]  # fmt: skip
    return _json(folder / "spans.json", {"data": spans, "next_cursor": None})


MADE = {"claude-code": claude_code, "codex": codex, "atif": atif, "swe-agent": swe_agent, "langfuse": langfuse,
        "langsmith": langsmith, "phoenix": phoenix}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_each_source_gives_the_same_answer(name: str, tmp_path: Path) -> None:
    """The conversation with its call and result, all tokens, the cost where it is known, and the length."""
    imported = sources.read(name, MADE[name](tmp_path), ImportRequest())
    (line,) = imported.traces
    assert (line["case"], line["input"], line["output"]) == ("s-1", "How warm is Seoul?", "Seoul has 21 degrees.")
    (call,) = line["tool_calls"]
    if name == "swe-agent":
        assert (call["name"], call["arguments"], call["result"]) == ("weather", {"command": "weather Seoul"}, "21")
    else:
        assert {key: call[key] for key in CALL} == CALL
    assert (line["usage"]["input"], line["usage"]["output"], line["turns"]) == (55, 18, 2)
    if name != "swe-agent":
        assert line["usage"]["cached_input"] == 20
        assert line["seconds"] == 4
        assert line["served"]["model"] in ("claude-x", "gpt-x", "m-1")
    if name in ("atif", "swe-agent", "langfuse"):
        assert line["cost"] == pytest.approx(0.03)
    read_envelope({key: value for key, value in line.items() if key not in ("case", "input")})


@pytest.mark.parametrize("name", MADE)
def test_a_file_is_known_and_its_traces_can_be_checked(name: str, tmp_path: Path) -> None:
    """Without its tool's name; the written checks run over the written traces."""
    found = sources.guess(MADE[name](tmp_path), ImportRequest())
    assert list(found) == [name]
    write(found[name], tmp_path / "evals", force=False)
    checks = tmp_path / "checks.yaml"
    checks.write_text("defaults: {checks: [{contains: 21 degrees}, {calls-tool: weather}, {max-tokens: 73}]}")
    for each in (checks, tmp_path / "evals" / "checks.yaml"):
        evaluation = evaluate_files("checks", each, options={"traces": [tmp_path / "evals" / "traces.jsonl"]})
        assert evaluation.report["results"]["outputs"] == {"total": 1, "passed": 1, "failed": 0, "errors": 0}


def test_verdicts_of_others_and_shortened_conversations_are_listed(tmp_path: Path) -> None:
    """Nothing is left out in silence."""
    notes = {name: Imported() for name in ("langfuse", "codex")}
    notes["langfuse"] = sources.read("langfuse", langfuse(tmp_path), ImportRequest())
    path = codex(tmp_path)
    path.write_text(path.read_text() + json.dumps({"type": "compacted", "payload": {"message": "short"}}) + "\n")
    notes["codex"] = sources.read("codex", path, ImportRequest())
    assert [note.what for note in notes["langfuse"].notes] == ["the score helpful"]
    assert [(note.kind, note.what) for note in notes["codex"].notes] == [("differs", "compacted")]


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("content", ["[]", "{}", "7", '{"type": "user"}', '[{"id": 1}]', '{"steps": [1]}'])
def test_other_files_are_refused(name: str, content: str, tmp_path: Path) -> None:
    """With the keys that the tool's files have."""
    for ending in ("json", "jsonl"):
        (tmp_path / f"x.{ending}").write_text(content)
        with pytest.raises(ConfigError, match=r"x\.json"):
            sources.read(name, tmp_path / f"x.{ending}", ImportRequest())
