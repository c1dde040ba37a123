"""Phoenix: spans of a project, as its API gives them, or as its data frame is written to JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.records.traces.otlp import SpanEvent, TraceSpan
from evalq.producer.importing.imported import Imported, ImportRequest
from evalq.producer.importing.transcripts import add_spans, nanoseconds, objects_of, part

_DEEP = 12
_WHOLE = ("metadata", "tag.tags", "llm.invocation_parameters", "tool.parameters", "input.value", "output.value")
"""Attributes whose values stay whole; lists and objects of others become one attribute for each value."""


def read(path: Path, request: ImportRequest, imported: Imported) -> None:
    """Fill ``imported`` with a line for each trace. Raises ConfigError for other files."""
    spans: list[tuple[str, TraceSpan]] = []
    for where, given in objects_of(path, ("data", "spans")):
        found = _span(given)
        if found is None:
            imported.note("none", where, "an entry", "it is no span of Phoenix: it has no trace id and span id")
            continue
        spans.append(found)
        if any(key.startswith(("annotations", "evaluations")) for key in given):
            imported.note("none", where, "annotations", "they are verdicts of Phoenix: write a check, or labels")
    if not spans:
        raise ConfigError(f"{path}: no span of Phoenix in it (its keys are context, span_kind, attributes)")
    add_spans(imported, spans, {})


def _span(given: Mapping[str, Any]) -> tuple[str, TraceSpan] | None:
    """(trace, span) of an object of the API, or of a row of the data frame."""
    context = part(given, "context")
    trace = context.get("trace_id") or given.get("context.trace_id")
    identity = context.get("span_id") or given.get("context.span_id")
    if not isinstance(trace, str) or not isinstance(identity, str):
        return None
    attributes: dict[str, Any] = {}
    if isinstance(given.get("attributes"), dict):
        attributes |= dict(_flat("", given["attributes"]))
    for key, value in given.items():
        if key.startswith("attributes.") and value is not None and value == value:
            attributes |= dict(_flat(key.removeprefix("attributes."), value))
    if isinstance(given.get("span_kind"), str):
        attributes.setdefault("openinference.span.kind", given["span_kind"])
    listed = given.get("events")
    events = [
        SpanEvent(str(each.get("name") or ""), nanoseconds(each.get("timestamp")),
                  each["attributes"] if isinstance(each.get("attributes"), dict) else {})
        for each in (listed if isinstance(listed, list) else ()) if isinstance(each, dict)
    ]  # fmt: skip
    failed = given.get("status_code") == "ERROR"
    parent = given.get("parent_id")
    span = TraceSpan(
        identity,
        parent if isinstance(parent, str) else "",
        str(given.get("name") or ""),
        (nanoseconds(given.get("start_time")), nanoseconds(given.get("end_time"))),
        attributes,
        events,
        str(given.get("status_message") or "") if failed else None,
    )
    return trace, span


def _flat(name: str, value: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The values of nested attributes, under flat names: llm.input_messages.0.message.role."""
    whole = name in _WHOLE or depth >= _DEEP
    if isinstance(value, dict) and value and not whole:
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}" if name else str(key), inner, depth + 1)
    elif isinstance(value, list) and not whole and any(isinstance(each, dict) for each in value):
        for index, inner in enumerate(value):
            yield from _flat(f"{name}.{index}", inner, depth + 1)
    elif value is not None:
        yield name, value
