"""The conversation of a recorded output for a page: its messages, and each tool call with what came of it.

A damaged conversation has no messages here; nothing in it stops a page.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from evalq.evalcore.model.calls import BY_USER, Served, Tokens
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.records.answers import BadAnswer, calls_of, read_messages, read_served, read_tokens, text_of
from evalq.evalcore.records.tool_calls import NoCall, ToolCall, calls_in
from evalq.evalcore.views.charts import number
from evalq.evalcore.views.markdown import plural

_MESSAGES, _CALLS = 200, 100
_UNREADABLE = (ValueError, RecursionError, TypeError, AttributeError, KeyError)


class ShownCall(NamedTuple):
    """A tool call: its arguments, and its result or error as far as the record has one."""

    name: str
    arguments: str
    outcome: str = ""
    failed: bool = False


class ShownMessage(NamedTuple):
    """A message, with the calls that it makes."""

    role: str
    text: str
    calls: tuple[ShownCall, ...] = ()


def as_text(value: Json) -> str:
    """A text as it is, and other data as indented JSON."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    except _UNREADABLE:
        return str(value)


def calls_shown(*places: Json) -> tuple[ShownCall, ...]:
    """The tool calls in the first of the ``places`` that has any."""
    for place in places:
        with contextlib.suppress(NoCall, *_UNREADABLE):
            if calls := calls_in(place):
                return tuple(map(_call, calls[:_CALLS]))
    return ()


def _call(call: ToolCall) -> ShownCall:
    if call.error is not None:
        return ShownCall(call.name, as_text(call.arguments), call.error, failed=True)
    return ShownCall(call.name, as_text(call.arguments), "" if call.result is None else as_text(call.result))


def messages_shown(listed: Json) -> tuple[ShownMessage, ...]:
    """The messages of a conversation, with their calls and results; empty if they cannot be read."""
    with contextlib.suppress(BadAnswer, NoCall, *_UNREADABLE):
        messages = read_messages(listed)[:_MESSAGES]
        return tuple(_messages(messages))
    return ()


def _messages(messages: Sequence[Mapping[str, Json]]) -> Iterator[ShownMessage]:
    calls = iter(calls_of(messages))
    answered = {call.id for call in calls_of(messages) if call.id and (call.error or call.result is not None)}
    for message in messages:
        made = tuple(_call(next(calls)) for _ in calls_of([message]))
        shown = text_of(message.get("content"))
        content = message.get("content")
        if message.get("role") == "tool":
            if message.get("tool_call_id") in answered:
                continue  # it stands beside its call
            shown = shown or as_text(content)
        if shown or made:
            yield ShownMessage(str(message.get("role")), shown, made)


_PARTS = {
    "cached_tokens": "from a cache",
    "cache_write_tokens": "written to a cache",
    "cache_write_1h_tokens": "written to a cache for an hour",
    "reasoning_tokens": "of reasoning",
}
"""The tokens of an attempt that are parts of others."""


def further_facts(record: Mapping[str, Json]) -> tuple[tuple[str, str], ...]:
    """Parts of the tokens, the model that served the answer, turns, the first token and why it ended."""
    listed = record.get("attempts")
    made = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    attempts = [each for each in made if each.get("by") != BY_USER]
    last: Mapping[str, Json] = attempts[-1] if attempts else {}
    served = Served()
    with contextlib.suppress(BadAnswer, *_UNREADABLE):
        served = read_served(record.get("served") or last.get("served"))
    first = record.get("first_token_seconds", last.get("first_token_seconds"))
    facts = [
        ("Of these tokens", _parts_of(attempts)) if attempts else ("Tokens", _tokens_of(record)),
        ("First token", number(float(first), "seconds") if isinstance(first, int | float) else ""),
        ("Turns", f"{record['turns']:,}" if isinstance(record.get("turns"), int) else ""),
        ("Finish", str(record.get("finish") or "")),
        ("Model", " ".join(filter(None, (served.model, served.fingerprint, served.provider)))),
        ("Simulated user", _user_text(record.get("user"), [each for each in made if each.get("by") == BY_USER])),
    ]
    cost = record.get("cost")
    if not attempts and isinstance(cost, int | float):
        facts.append(("Cost", f"{cost:.4g}"))
    return tuple((name, value[:1_000]) for name, value in facts if value)


def _user_text(user: Json, calls: Sequence[Mapping[str, Json]]) -> str:
    """Who simulated the user, in how many calls, and what they cost; empty without one."""
    if not isinstance(user, dict):
        return ""
    known = [cost for each in calls if isinstance(cost := each.get("cost"), int | float)]
    parts = [str(user.get("target") or ""), f"{plural(len(calls), 'call')}" if calls else ""]
    parts += [f"cost {sum(known):.4g}"] if known else []
    fault = user.get("fault")
    parts += [f"its fault: {fault if isinstance(fault, str) else 'yes'}"] if fault else []
    return ", ".join(filter(None, parts))


def _parts_of(attempts: Sequence[Mapping[str, Json]]) -> str:
    sums = {key: [count for each in attempts if isinstance(count := each.get(key), int)] for key in _PARTS}
    return ", ".join(f"{sum(counts):,} {_PARTS[key]}" for key, counts in sums.items() if counts)


def _tokens_of(record: Mapping[str, Json]) -> str:
    """The tokens that the record itself states."""
    tokens = Tokens()
    with contextlib.suppress(BadAnswer, *_UNREADABLE):
        tokens = read_tokens(record)
    counts = (
        (tokens.input, "in the prompt"),
        (tokens.cached_input, "of these from a cache"),
        (tokens.cache_write, "of these written to a cache"),
        (tokens.output, "in the answer"),
        (tokens.reasoning, "of these reasoning"),
    )
    return ", ".join(f"{count:,} {where}" for count, where in counts if count is not None)
