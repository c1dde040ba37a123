"""Traces of other tools as lines of recorded outputs: from spans of their own forms, and from transcripts of agents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.records.answers import BadAnswer, calls_of, last_text, recorded_form, text_of
from evalq.evalcore.records.tool_calls import NoCall
from evalq.evalcore.records.traces.answers import answer_of
from evalq.evalcore.records.traces.otlp import Trace, TraceSpan
from evalq.producer.importing.imported import Imported, valid_unicode
from evalq.producer.importing.reading import read_json, read_lines


def nanoseconds(given: Any) -> int:
    """A time as nanoseconds since 1970; 0 if it is unknown. It is ISO 8601 (UTC without a zone), or a number: seconds,
    milliseconds, or more.
    """
    if isinstance(given, int | float) and not isinstance(given, bool) and given > 0:
        value = float(given)
        while value < 1e17:
            value *= 1e3
        return int(value)
    if not isinstance(given, str) or not given:
        return 0
    try:
        time = datetime.fromisoformat(given.strip().replace("Z", "+00:00").replace(" UTC", "+00:00"))
    except ValueError:
        return 0
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1_000


def part(holder: Any, key: str) -> dict[str, Any]:
    """The object under ``key``; an empty one if there is none."""
    found = holder.get(key) if isinstance(holder, dict) else None
    return found if isinstance(found, dict) else {}


def objects_in(listed: Any) -> list[dict[str, Any]]:
    """The objects in a list; none if it is no list."""
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def objects_of(path: Path, holders: Sequence[str] = ("data",)) -> list[tuple[str, dict[str, Any]]]:
    """(location, object) of a file of JSON: lines of objects, a list of them, or an object with a list in one of
    ``holders``. Raises ConfigError.
    """
    if path.suffix in (".jsonl", ".ndjson"):
        listed = [(f"{path}:{line}", value) for line, value in read_lines(path)]
    else:
        data = read_json(path)
        if isinstance(data, dict):
            inner = next((data[name] for name in holders if isinstance(data.get(name), list)), None)
            data = [data] if inner is None else inner
        if not isinstance(data, list):
            raise ConfigError(f"{path}: neither a JSON object nor a list of them")
        listed = [(f"{path}: [{index}]", value) for index, value in enumerate(data)]
    return [(where, valid_unicode(value)) for where, value in listed if isinstance(value, dict)]


def add_spans(imported: Imported, spans: Iterable[tuple[str, TraceSpan]], facts: Mapping[str, dict[str, Any]]) -> None:
    """Add a line for each trace of ``spans``, each (trace, span). ``facts`` are further keys of a line, by trace."""
    traces: dict[str, dict[str, TraceSpan]] = {}
    for trace, span in spans:
        traces.setdefault(trace, {})[span.id] = span
    for trace in dict.fromkeys((*traces, *facts)):
        ordered = sorted(traces.get(trace, {}).values(), key=lambda each: each.rank)
        if not ordered:
            continue
        line, more = answer_of(Trace(trace, ordered)), dict(facts.get(trace, {}))
        extra = {**line.get("extra", {}), **more.pop("extra", {})}
        imported.add_trace({**line, **more, "extra": extra})


def add_transcript(
    imported: Imported, case: str, messages: Sequence[dict[str, Any]], calls: Sequence[dict[str, Any]] | None = None,
    **more: Any,
) -> None:  # fmt: skip
    """Add the line of a conversation; ``calls`` are its calls of tools, else those in ``messages``. None in ``more`` is
    unknown.
    """
    line: dict[str, Any] = {"case": case, "input": _first_question(messages), "output": last_text(messages)}
    if calls is None:
        try:
            calls = [recorded_form(call) for call in calls_of(messages)]
        except (NoCall, BadAnswer) as error:
            line["error"] = f"its calls of tools cannot be read: {error}"
    line |= {"messages": list(messages), "tool_calls": list(calls or ())}
    line |= {key: value for key, value in more.items() if value not in (None, {}, "")}
    if line["output"] is None and "error" not in line:
        line["error"] = "the agent gave no answer"
    if "error" in line:
        del line["output"]
    imported.add_trace(line)


def _first_question(messages: Sequence[Mapping[str, Any]]) -> str | None:
    texts = (text_of(each.get("content")) for each in messages if each.get("role") == "user")
    return next((text for text in texts if text), None)


def summed(usages: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The tokens of several calls together: of a whole only if each call counts it, of a part as far as known."""
    listed, total = list(usages), {}
    for name in ("input", "output"):
        if listed and all(name in each for each in listed):
            total[name] = sum(each[name] for each in listed)
    for name, whole in (("cached_input", "input"), ("cache_write", "input"), ("cache_write_1h", "input"),
                        ("reasoning", "output")):  # fmt: skip
        if whole in total and any(each.get(name) for each in listed):
            total[name] = sum(each.get(name, 0) for each in listed)
    return total


def span_of(times: Sequence[int]) -> dict[str, Any]:
    """The keys for the begin and length of a transcript with these times."""
    known = [time for time in times if time]
    if not known:
        return {}
    length = (max(known) - min(known)) / 1e9
    return {"start": min(known), **({"seconds": length} if length else {})}
