"""LangSmith: runs with their children, as its client lists them and its exports write them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.records.message_forms import langchain_message
from evalq.evalcore.records.traces.otlp import SpanEvent, TraceSpan
from evalq.producer.importing.imported import Imported, ImportRequest
from evalq.producer.importing.transcripts import add_spans, nanoseconds, objects_in, objects_of, part

_KINDS = {"llm": "LLM", "tool": "TOOL", "retriever": "RETRIEVER", "embedding": "EMBEDDING"}


def read(path: Path, request: ImportRequest, imported: Imported) -> None:
    """Fill ``imported`` with a line for each trace. Raises ConfigError for other files."""
    spans: list[tuple[str, TraceSpan]] = []
    waiting = list(reversed(objects_of(path, ("runs", "data"))))
    while waiting:
        where, given = waiting.pop()
        if not isinstance(given.get("run_type"), str) or "id" not in given:
            imported.note("none", where, "an entry", "it is no run of LangSmith: it has no id or run_type")
            continue
        waiting += [(where, child) for child in objects_in(given.get("child_runs"))]
        spans.append(_span(given))
        if given.get("feedback_stats"):
            imported.note("none", where, "feedback", "it is a verdict of LangSmith: write a check, or labels")
    if not spans:
        raise ConfigError(f"{path}: no run of LangSmith in it (its keys are id, run_type, inputs, outputs)")
    add_spans(imported, spans, {})


def _span(run: Mapping[str, Any]) -> tuple[str, TraceSpan]:
    """(trace, span) of a run."""
    kind, outputs = str(run["run_type"]), run.get("outputs")
    metadata = part(part(run, "extra"), "metadata")
    top = not run.get("parent_run_id")
    attributes: dict[str, Any] = {
        "openinference.span.kind": _KINDS.get(kind, "CHAIN"),
        "metadata": {key: value for key, value in metadata.items() if not str(key).startswith("ls_")},
        "tag.tags": run.get("tags") or None,
        "session.id": next((metadata[key] for key in ("session_id", "thread_id", "conversation_id")
                            if isinstance(metadata.get(key), str)), None),
    }  # fmt: skip
    if kind == "llm":
        attributes |= _of_model(run, metadata)
    else:
        attributes |= {"input.value": _json(run.get("inputs")), "output.value": _json(outputs)}
        if kind == "tool":
            attributes["tool.name"] = run.get("name")
            attributes["input.value"] = _json(_tool_input(run.get("inputs")))
            attributes["output.value"] = _tool_output(outputs)
    named = run.get("events")
    events = [
        SpanEvent("llm.content.completion.chunk", nanoseconds(each.get("time")), {})
        for each in (named if isinstance(named, list) else ())
        if isinstance(each, dict) and each.get("name") == "new_token"
    ]
    failed = run.get("error")
    span = TraceSpan(
        str(run["id"]),
        "" if top else str(run["parent_run_id"]),
        str(run.get("name") or ""),
        (nanoseconds(run.get("start_time")), nanoseconds(run.get("end_time"))),
        {name: value for name, value in attributes.items() if value is not None},
        events,
        None if not failed else str(failed).partition("\n")[0],
    )
    return str(run.get("trace_id") or run["id"]), span


def _of_model(run: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    inputs, outputs = part(run, "inputs"), part(run, "outputs")
    asked = inputs.get("messages")
    asked = asked[0] if isinstance(asked, list) and asked and isinstance(asked[0], list) else asked
    answer, usage, reply = _reply(outputs)
    details = {**part(usage, "input_token_details"), **part(usage, "output_token_details")}
    counts = {
        "gen_ai.usage.input_tokens": usage.get("input_tokens", run.get("prompt_tokens")),
        "gen_ai.usage.output_tokens": usage.get("output_tokens", run.get("completion_tokens")),
        "gen_ai.usage.cache_read.input_tokens": details.get("cache_read"),
        "gen_ai.usage.cache_creation.input_tokens": details.get("cache_creation"),
        "gen_ai.usage.reasoning.output_tokens": details.get("reasoning"),
    }
    cost = run.get("total_cost")
    return {
        "gen_ai.input.messages": [_message(each) for each in objects_in(asked)] or None,
        "gen_ai.output.messages": [_message(answer)] if answer else None,
        "input.value": _json(run.get("inputs")),
        "output.value": _json(run.get("outputs")),
        "gen_ai.response.model": reply.get("model_name") or reply.get("model") or metadata.get("ls_model_name"),
        "gen_ai.openai.response.system_fingerprint": reply.get("system_fingerprint"),
        "gen_ai.provider.name": metadata.get("ls_provider"),
        "gen_ai.response.finish_reasons": [reason] if (reason := _finish(reply)) else None,
        "llm.cost.total": float(cost) if isinstance(cost, int | float | str) and str(cost).replace(".", "").isdigit()
        else None,
        **{name: count for name, count in counts.items() if type(count) is int},
    }  # fmt: skip


def _finish(reply: Mapping[str, Any]) -> Any:
    return reply.get("finish_reason") or reply.get("stop_reason")


def _reply(outputs: Mapping[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any], dict[str, Any]]:
    """The message of the assistant, its usage, and the provider's facts on the reply."""
    generations = outputs.get("generations")
    while isinstance(generations, list) and generations:
        generations = generations[0]
    found: Any = generations.get("message", generations) if isinstance(generations, dict) else None
    choices = outputs.get("choices")
    if found is None and isinstance(choices, list) and choices and isinstance(choices[0], dict):
        # The wrapper of OpenAI's client keeps the reply as it is.
        first, counts = choices[0], part(outputs, "usage")
        renamed = {"input_tokens": counts.get("prompt_tokens"), "output_tokens": counts.get("completion_tokens")}
        facts = {"model": outputs.get("model"), "finish_reason": first.get("finish_reason"),
                 "system_fingerprint": outputs.get("system_fingerprint")}  # fmt: skip
        return part(first, "message") or None, renamed, facts
    if not isinstance(found, dict):
        found = part(outputs, "output") or outputs
    inner = found["kwargs"] if isinstance(found.get("kwargs"), dict) else found
    usage = inner.get("usage_metadata") or outputs.get("usage_metadata")
    facts = inner.get("response_metadata")
    known = isinstance(inner, dict) and ("content" in inner or "tool_calls" in inner)
    return inner if known else None, usage if isinstance(usage, dict) else {}, facts if isinstance(facts, dict) else {}


def _message(given: Mapping[str, Any]) -> dict[str, Any]:
    """A message of LangChain or OpenAI."""
    made = langchain_message(given)
    if made is not None:
        return made
    inner = given["kwargs"] if isinstance(given.get("kwargs"), dict) else given
    kind = str(inner.get("role") or inner.get("type") or "assistant")
    made = {"role": kind, "content": inner.get("content")}
    calls = list(objects_in(inner.get("tool_calls") or part(inner, "additional_kwargs").get("tool_calls")))
    made |= {"tool_calls": calls} if calls else {}
    return made | ({"tool_call_id": inner["tool_call_id"]} if inner.get("tool_call_id") else {})


def _tool_input(inputs: Any) -> Any:
    given = inputs.get("input", inputs) if isinstance(inputs, dict) and len(inputs) == 1 else inputs
    if isinstance(given, str) and given[:1] == "{" and "'" in given:
        return {"input": given}  # LangChain's callback writes the arguments as Python does
    return given


def _tool_output(outputs: Any) -> Any:
    found = outputs.get("output", outputs) if isinstance(outputs, dict) else outputs
    inner = found.get("kwargs", found) if isinstance(found, dict) else found
    content = inner.get("content", inner) if isinstance(inner, dict) else inner
    return content if isinstance(content, str) or content is None else _json(content)


def _json(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()
