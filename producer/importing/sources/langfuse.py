"""Langfuse: traces with their observations, or observations alone, as its API and its exports write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.records.traces.conventions import decoded
from evalq.evalcore.records.traces.otlp import TraceSpan
from evalq.producer.importing.imported import Imported, ImportRequest
from evalq.producer.importing.transcripts import add_spans, nanoseconds, objects_of

_USAGE = {
    "gen_ai.usage.input_tokens": ("input", "prompt_tokens", "input_tokens", "promptTokens"),
    "gen_ai.usage.output_tokens": ("output", "completion_tokens", "output_tokens", "completionTokens"),
    "gen_ai.usage.cache_read.input_tokens": ("input_cached_tokens", "cache_read_input_tokens", "input_cache_read"),
    "gen_ai.usage.cache_creation.input_tokens": ("cache_creation_input_tokens", "input_cache_creation"),
    "gen_ai.usage.reasoning.output_tokens": ("output_reasoning_tokens", "output_reasoning"),
}
"""Tokens in OpenTelemetry's names, and in those of an observation's usage, which has parts beside their whole."""
_PARTS = {"gen_ai.usage.input_tokens": ("input_cached_tokens", "input_cache_read"),
          "gen_ai.usage.output_tokens": ("output_reasoning_tokens", "output_reasoning")}  # fmt: skip


def read(path: Path, request: ImportRequest, imported: Imported) -> None:
    """Fill ``imported`` with a line for each trace. Raises ConfigError for other files."""
    spans: list[tuple[str, TraceSpan]] = []
    facts: dict[str, dict[str, Any]] = {}
    for where, given in objects_of(path, ("data", "traces")):
        if isinstance(given.get("trace"), dict) and isinstance(given.get("observations"), list):
            given = {**given["trace"], "observations": given["observations"]}  # a download of one trace
        if isinstance(given.get("traceId", given.get("trace_id")), str) and "type" in given:
            spans.append(_span(given))
        elif isinstance(given.get("id"), str) and ({"observations", "sessionId", "timestamp"} & given.keys()):
            spans += _of_trace(given, facts)
            _note_scores(given, where, imported)
        else:
            imported.note("none", where, "an entry", "it is neither a trace nor an observation of Langfuse")
    if not spans:
        raise ConfigError(f"{path}: no trace of Langfuse in it (its keys are id, timestamp, observations)")
    add_spans(imported, spans, facts)


def _of_trace(trace: Mapping[str, Any], facts: dict[str, dict[str, Any]]) -> Iterator[tuple[str, TraceSpan]]:
    """A span for the trace itself, and one for each of its observations."""
    identity, listed = str(trace["id"]), trace.get("observations")
    observations = [_span(each)[1] for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    begin = nanoseconds(trace.get("timestamp"))
    latency = trace.get("latency")
    end = max([span.end for span in observations], default=0)
    if not observations and isinstance(latency, int | float):
        end = begin + int(latency * 1e9)
    metadata = decoded(trace.get("metadata"))
    attributes = {
        "langfuse.trace.input": trace.get("input"),
        "langfuse.trace.output": trace.get("output"),
        "langfuse.trace.name": trace.get("name"),
        "langfuse.trace.tags": trace.get("tags"),
        "session.id": trace.get("sessionId"),
        "user.id": trace.get("userId"),
        "version": trace.get("version"),
        "release": trace.get("release"),
        "environment": trace.get("environment"),
        "metadata": metadata if isinstance(metadata, dict) else None,
    }
    given = {name: value for name, value in attributes.items() if value is not None}
    yield identity, TraceSpan(f"trace-{identity}", "", str(trace.get("name") or ""), (begin, end), given)
    for span in observations:
        span.parent = span.parent or f"trace-{identity}"
        yield identity, span
    cost = trace.get("totalCost")
    more = {"cost": float(cost)} if isinstance(cost, int | float) and cost > 0 else {}
    facts[identity] = {"trace": identity, **more}


def _span(given: Mapping[str, Any]) -> tuple[str, TraceSpan]:
    """(trace, span) of an observation."""
    kind = str(given.get("type") or "span").lower()
    usage = given.get("usageDetails") or given.get("usage") or {}
    attributes = {
        "langfuse.observation.type": kind,
        "langfuse.observation.input": given.get("input"),
        "langfuse.observation.output": given.get("output"),
        "gen_ai.response.model": given.get("model") or given.get("providedModelName"),
        "gen_ai.tool.name": given.get("name") if kind == "tool" else None,
        "gen_ai.usage.cost": _cost(given),
        **_tokens(usage if isinstance(usage, dict) else {}),
    }
    begin, first = nanoseconds(given.get("startTime")), nanoseconds(given.get("completionStartTime"))
    if first >= begin > 0:
        attributes["gen_ai.response.time_to_first_chunk"] = (first - begin) / 1e9
    failed = given.get("level") == "ERROR"
    span = TraceSpan(
        str(given.get("id") or ""),
        str(given.get("parentObservationId") or ""),
        str(given.get("name") or ""),
        (begin, nanoseconds(given.get("endTime"))),
        {name: value for name, value in attributes.items() if value is not None},
        error=str(given.get("statusMessage") or "") if failed else None,
    )
    return str(given.get("traceId") or given.get("trace_id") or ""), span


def _tokens(usage: Mapping[str, Any]) -> dict[str, int]:
    found = {
        name: next((usage[key] for key in keys if type(usage.get(key)) is int), None) for name, keys in _USAGE.items()
    }
    for name, parts in _PARTS.items():
        # Langfuse counts cached and reasoning tokens beside the others.
        whole = found[name]
        if whole is not None:
            found[name] = whole + sum(usage[key] for key in parts if type(usage.get(key)) is int)
    return {name: count for name, count in found.items() if count is not None}


def _cost(given: Mapping[str, Any]) -> float | None:
    details = given.get("costDetails")
    value = details.get("total") if isinstance(details, dict) else None
    value = given.get("calculatedTotalCost") if value is None else value
    return float(value) if isinstance(value, int | float) and value > 0 else None


def _note_scores(trace: Mapping[str, Any], where: str, imported: Imported) -> None:
    scores = trace.get("scores")
    for score in scores if isinstance(scores, list) else ():
        if isinstance(score, dict):
            name = str(score.get("name") or "a score")
            imported.note("none", where, f"the score {name}", "it is a verdict of Langfuse: write a check, or labels")
