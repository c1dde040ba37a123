"""The typed answer of an agent: what it said and did, what it used, what it cost, and which model served it.

The same keys stand in an envelope that a function or a program gives, in a line of recorded outputs, and in what an
importer writes. A number that nobody stated is absent, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from evalq.evalcore.model.calls import Served, Tokens
from evalq.evalcore.naming import kind_of, shorten
from evalq.evalcore.records.message_forms import common_form, facts_of
from evalq.evalcore.records.tool_calls import NoCall, ToolCall, is_failed, read_call
from evalq.evalcore.records.usage import token_parts

ROLES = ("system", "user", "assistant", "tool")
_SYNONYMS = {"developer": "system", "human": "user", "ai": "assistant", "model": "assistant", "function": "tool"}
MOST_MESSAGES = 10_000
"""A conversation with more is damaged or malicious."""
_MOST_NUMBER = 1e15
_OLD_NAMES = {"prompt_tokens": "input", "completion_tokens": "output"}
_TOKEN_KEYS = Tokens.__struct_fields__


class BadAnswer(ValueError):
    """An envelope has a value that is not valid; the message begins with its key path."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of an agent, for a function that a target of kind python calls, and as a program's envelope.

    ``output`` is text or JSON; without it, the text of the last message of the assistant. ``messages`` are the
    conversation: ``{role, content, tool_calls, tool_call_id}``, or messages of LangChain, OpenAI's Responses or
    PydanticAI, or steps of smolagents, as objects or as data. ``tool_calls`` are ``{name, arguments, result, error,
    seconds, id, parent}`` in order; without them, those of ``messages``. ``usage`` are the tokens of all calls of
    models together (`Tokens`, or the framework's own object); without it, those that the messages after the user's
    last one state. ``cost`` is in the currency of the target's price. ``seconds`` and ``first_token_seconds`` are
    times from the begin of the call. ``finish`` says why the answer ended: stop, length, tool_calls, content_filter,
    refusal or max_turns. ``trace`` is the trace id of its spans. ``extra`` holds all else.
    """

    output: Any = msgspec.UNSET
    messages: Sequence[Any] = ()
    tool_calls: Sequence[Any] | None = None
    usage: Any = None
    cost: float | None = None
    served: Served | Mapping[str, str] | None = None
    seconds: float | None = None
    first_token_seconds: float | None = None
    turns: int | None = None
    finish: str | None = None
    trace: str | None = None
    extra: Mapping[str, Any] = {}


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """An `Answer` that was read: each value is valid, and what follows from ``messages`` is filled in."""

    output: Any
    messages: tuple[dict[str, Any], ...] = ()
    tool_calls: tuple[dict[str, Any], ...] | None = None
    usage: Tokens = Tokens()
    cost: float | None = None
    served: Served = Served()
    seconds: float | None = None
    first_token_seconds: float | None = None
    turns: int | None = None
    finish: str | None = None
    trace: str | None = None
    extra: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """The output as text: a text as it is, null as empty, other values as JSON."""
        if self.output is None:
            return ""
        return self.output if isinstance(self.output, str) else msgspec.json.encode(self.output).decode()


def read_envelope(data: Any) -> Envelope:
    """The typed answer in plain data. Raises BadAnswer with the key path, what was found, and what is wanted."""
    if not isinstance(data, Mapping):
        raise BadAnswer(f"{kind_of(data)} where an object with `output` or `messages` is wanted")
    if "output" not in data and not data.get("messages"):
        keys = ", ".join(shorten(str(key), 40) for key in [*data][:8]) or "none"
        raise BadAnswer(f"output: missing, and no messages (the keys are: {keys})")
    messages = read_messages(data.get("messages"))
    calls, said, tokens, served = data.get("tool_calls"), facts_of(messages), read_tokens(data), data.get("served")
    if tokens == Tokens() and "usage" in said:
        tokens = read_tokens(said)
    return Envelope(
        output=data["output"] if "output" in data else last_text(messages),
        messages=messages,
        tool_calls=_recorded(calls) if calls is not None else (_derived(messages) if messages else None),
        usage=tokens,
        cost=amount(data, "cost"),
        served=read_served(said.get("served") if served is None else served),
        seconds=amount(data, "seconds") if data.get("seconds") is not None else amount(data, "latency_seconds"),
        first_token_seconds=amount(data, "first_token_seconds"),
        turns=whole(data, "turns"),
        finish=said.get("finish") if data.get("finish") is None else _text(data, "finish"),
        trace=_text(data, "trace"),
        extra=_rest(data),
    )


_KNOWN = frozenset((*Answer.__struct_fields__, "latency_seconds", *_OLD_NAMES))


def _rest(data: Mapping[str, Any]) -> dict[str, Any]:
    given = data.get("extra")
    if given is not None and not isinstance(given, Mapping):
        raise BadAnswer(f"extra: {kind_of(given)} where an object is wanted")
    return {**{key: value for key, value in data.items() if key not in _KNOWN}, **(given or {})}


# -- numbers and texts --------------------------------------------------------------------------------


def amount(data: Mapping[str, Any], key: str, where: str = "") -> float | None:
    """A number from 0 under ``key``; None if it is absent. Raises BadAnswer."""
    value = data.get(key)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value < _MOST_NUMBER or not math.isfinite(value):
        raise BadAnswer(f"{where}{key}: {_found(value)} where a number from 0 is wanted")
    return float(value)


def whole(data: Mapping[str, Any], key: str, where: str = "") -> int | None:
    """A whole number from 0 under ``key``; None if it is absent. Raises BadAnswer."""
    value = data.get(key)
    if value is None:
        return None
    if type(value) is float and value.is_integer():
        value = int(value)  # writers of JSON without whole numbers
    if type(value) is not int or not 0 <= value < _MOST_NUMBER:
        raise BadAnswer(f"{where}{key}: {_found(value)} where a whole number from 0 is wanted")
    return value


def _text(data: Mapping[str, Any], key: str, where: str = "") -> str | None:
    value = data.get(key)
    if value is not None and not isinstance(value, str):
        raise BadAnswer(f"{where}{key}: {_found(value)} where a string is wanted")
    return value


def _found(value: Any) -> str:
    return shorten(repr(value), 40) if isinstance(value, int | float) else kind_of(value)


def read_tokens(data: Mapping[str, Any]) -> Tokens:
    """The tokens in ``usage``, in any form that providers have, or under the older names ``prompt_tokens`` and
    ``completion_tokens`` beside it.

    Raises BadAnswer, also for a part that is larger than its whole.
    """
    usage = data.get("usage")
    if usage is not None and not isinstance(usage, Mapping):
        raise BadAnswer(f"usage: {kind_of(usage)} where an object is wanted ({', '.join(_TOKEN_KEYS)})")
    # Libraries add keys of their own (total_tokens, requests): they are no fault.
    given = token_parts(usage or {})
    counts = {key: whole(given, key, "usage.") for key in _TOKEN_KEYS}
    for old, new in _OLD_NAMES.items():
        if counts[new] is None:
            counts[new] = whole(data, old)
    tokens = Tokens(**counts)
    if tokens.input is not None and (tokens.of_cache or 0) > tokens.input:
        raise BadAnswer(
            f"usage: {tokens.of_cache} cached tokens (cached_input, cache_write) of {tokens.input} input tokens; "
            "`input` counts all input tokens, cached ones too"
        )
    if tokens.output is not None and (tokens.reasoning or 0) > tokens.output:
        raise BadAnswer(
            f"usage: {tokens.reasoning} reasoning tokens of {tokens.output} output tokens; `output` counts both"
        )
    return tokens


def read_served(value: Any) -> Served:
    """The model that served an answer. Raises BadAnswer."""
    if value is None or isinstance(value, Served):
        return value or Served()
    if isinstance(value, str):
        return Served(model=value)
    if not isinstance(value, Mapping):
        raise BadAnswer(f"served: {kind_of(value)} where an object is wanted (model, fingerprint, provider)")
    return Served(**{key: _text(value, key, "served.") or "" for key in Served.__struct_fields__})


# -- conversations --------------------------------------------------------------------------------------


def read_messages(listed: Any) -> tuple[dict[str, Any], ...]:
    """The messages of a conversation, each with a role of `ROLES`; other keys stay. Raises BadAnswer.

    Messages of agent frameworks are read as well (`common_form`).
    """
    if listed is None:
        return ()
    if not isinstance(listed, list | tuple):
        raise BadAnswer(f"messages: {kind_of(listed)} where a list is wanted")
    if len(listed) > MOST_MESSAGES:
        raise BadAnswer(f"messages: {len(listed)} of them; {MOST_MESSAGES} are the most")
    return tuple(_message(message, f"messages[{index}]") for index, message in enumerate(common_form(listed)))


def _message(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise BadAnswer(f"{where}: {kind_of(message)} where an object with role and content is wanted")
    role = message.get("role")
    role = _SYNONYMS.get(role, role) if isinstance(role, str) else role
    if role not in ROLES:
        found = "missing" if role is None else repr(shorten(str(role), 40))
        raise BadAnswer(f"{where}.role: {found} where one of {', '.join(ROLES)} is wanted")
    content = message.get("content")
    if content is not None and not isinstance(content, str | list | Mapping):
        raise BadAnswer(f"{where}.content: {kind_of(content)} where a text or a list of parts is wanted")
    read = {**message, "role": role}
    if read.get("tool_calls") is None:
        read.pop("tool_calls", None)
    elif not isinstance(read["tool_calls"], list | tuple):
        raise BadAnswer(f"{where}.tool_calls: {kind_of(read['tool_calls'])} where a list is wanted")
    else:
        read["tool_calls"] = [
            _checked(call, f"{where}.tool_calls[{number}]") for number, call in enumerate(read["tool_calls"])
        ]
    return read


def _checked(value: Any, where: str) -> Any:
    try:
        read_call(value)
    except NoCall as error:
        raise BadAnswer(f"{where}: {error}") from None
    return value


def text_of(content: Any) -> str:
    """The text in the content of a message: a text, or the texts among its parts, joined."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, list | tuple):
        return ""
    return "".join(_part_text(part) for part in content)


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping) or part.get("type") in ("thinking", "reasoning", "redacted_thinking"):
        return ""
    text = part.get("text")
    return text if isinstance(text, str) else ""


def last_text(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """The text of the last message of the assistant that has one; None without any."""
    texts = (text_of(each.get("content")) for each in reversed(messages) if each.get("role") == "assistant")
    return next((text for text in texts if text), None)


def calls_of(messages: Sequence[Mapping[str, Any]]) -> list[ToolCall]:
    """The tool calls in a conversation, in order, each with the result that the tool's message gives. Raises NoCall."""
    results = dict(_results(messages))
    calls = []
    for message in messages:
        if message.get("role") != "assistant":
            continue
        for value in (*(message.get("tool_calls") or ()), *_parts_that_call(message.get("content"))):
            call = read_call(value)
            found = results.get(call.id) if call.id else None
            calls.append(call if found is None else call._replace(**found))
    return calls


def conversation_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """A conversation for a judge: a message in a line of JSON, so that no text in it can look like another message.

    It has what was said, the tool calls and their results; no thoughts, and no data of a library. Raises NoCall.
    """
    return "\n".join(msgspec.json.encode(_said(message)).decode() for message in messages)


def _said(message: Mapping[str, Any]) -> dict[str, Any]:
    role, content = message.get("role"), message.get("content")
    said: dict[str, Any] = {"role": role}
    calls = [read_call(value) for value in (*(message.get("tool_calls") or ()), *_parts_that_call(content))]
    if calls:
        said["tool_calls"] = [
            {"name": call.name, "arguments": call.arguments, **({"id": call.id} if call.id else {})} for call in calls
        ]
    results = [{"id": name, **outcome} for name, outcome in _results([message])]
    if results:
        said["tool_results"] = results
    text = text_of(content)
    if role == "tool" and not results:
        said["tool_results"] = [_outcome(message, content)]
    elif (text or not (calls or results)) and role != "tool":
        said["content"] = text
    return said


_CALL_PARTS = ("tool_use", "tool_call", "tool-call", "function_call")
_RESULT_PARTS = ("tool_result", "tool-result", "function_call_output")


def _parts_that_call(content: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(content, list | tuple):
        yield from (part for part in content if isinstance(part, Mapping) and part.get("type") in _CALL_PARTS)


def _results(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(id of a call, its result or error)."""
    for message in messages:
        content = message.get("content")
        if message.get("role") == "tool" and isinstance(message.get("tool_call_id"), str):
            yield message["tool_call_id"], _outcome(message, content)
        for part in content if isinstance(content, list | tuple) else ():
            if isinstance(part, Mapping) and part.get("type") in _RESULT_PARTS:
                name = next((part[key] for key in ("tool_use_id", "toolCallId", "call_id") if key in part), None)
                inner = next((part[key] for key in ("content", "result", "output") if key in part), None)
                if isinstance(name, str):
                    yield name, _outcome(part, inner)


def _outcome(holder: Mapping[str, Any], content: Any) -> dict[str, Any]:
    result = text_of(content) if isinstance(content, list | tuple) else content
    if holder.get("error") or is_failed(holder):
        error = holder.get("error")
        return {"error": error if isinstance(error, str) else result if isinstance(result, str) else "error"}
    return {"result": result}


def _derived(messages: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    return tuple(recorded_form(call) for call in calls_of(messages))


def _recorded(listed: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(listed, list | tuple):
        raise BadAnswer(f"tool_calls: {kind_of(listed)} where a list is wanted")
    return tuple(
        recorded_form(read_call(_checked(value, f"tool_calls[{index}]"))) for index, value in enumerate(listed)
    )


def recorded_form(call: ToolCall) -> dict[str, Any]:
    """A call as evalq records it: arguments that cannot be read stay as they came, and ``unread`` says why."""
    beside = {key: getattr(call, key) for key in ("result", "error", "seconds", "id", "parent", "unread")}
    given = {key: value for key, value in beside.items() if value is not None and value != ""}
    return {"name": call.name, "arguments": call.arguments, **given}


def clean(envelope: Envelope, scrub: Callable[[str], str]) -> Envelope:
    """The envelope with ``scrub`` applied to each text that stands in it, also to keys of objects."""
    parts = {
        name: clean_value(getattr(envelope, name), scrub) for name in ("output", "messages", "tool_calls", "extra")
    }
    texts = {name: scrub(value) for name in ("finish", "trace") if (value := getattr(envelope, name)) is not None}
    served = Served(*(scrub(getattr(envelope.served, name)) for name in Served.__struct_fields__))
    return msgspec.structs.replace(envelope, **parts, **texts, served=served)


def clean_value(value: Any, scrub: Callable[[str], str]) -> Any:
    """Plain data with ``scrub`` applied to each text in it."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, Mapping):
        return {scrub(key) if isinstance(key, str) else key: clean_value(each, scrub) for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple(clean_value(each, scrub) for each in value)
    return [clean_value(each, scrub) for each in value] if isinstance(value, list) else value
