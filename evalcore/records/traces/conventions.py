"""What spans say, in the conventions of OpenTelemetry's GenAI (older and newer), OpenInference and OpenLLMetry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import msgspec

from evalq.evalcore.model.calls import Served
from evalq.evalcore.records.traces.otlp import TraceSpan

Kind = Literal["model", "tool", "agent", "evaluator", "other"]

_OPERATIONS: dict[str, Kind] = {
    **dict.fromkeys(("chat", "text_completion", "generate_content"), "model"),
    "execute_tool": "tool",
    **dict.fromkeys(("invoke_agent", "create_agent"), "agent"),
    **dict.fromkeys(("embeddings", "invoke_workflow", "retrieval"), "other"),
}
_OPENINFERENCE: dict[str, Kind] = {"LLM": "model", "TOOL": "tool", "AGENT": "agent", "EVALUATOR": "evaluator"}
_TRACELOOP: dict[str, Kind] = {"tool": "tool", "agent": "agent", "workflow": "other", "task": "other"}
_LANGFUSE: dict[str, Kind] = {"generation": "model", "tool": "tool", "agent": "agent", "evaluator": "evaluator"}

_OLD_EVENTS = {
    "gen_ai.system.message": "system", "gen_ai.user.message": "user", "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool", "gen_ai.choice": "",
}  # fmt: skip
_FINISHES = {
    **dict.fromkeys(("stop", "end_turn", "stop_sequence", "completed", "complete", "finish"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens"), "length"),
    **dict.fromkeys(("tool_calls", "tool_call", "tool_use", "function_call"), "tool_calls"),
    **dict.fromkeys(("content_filter", "safety", "content_filtered"), "content_filter"),
    "refusal": "refusal",
}
"""Why an answer ended, as providers say it, and as evalq does."""
_MOST_INDEX = 10_000

_INPUT_TOKENS = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt")
_OUTPUT_TOKENS = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion")
_CACHED = (
    *("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens"),
    *("llm.token_count.prompt_details.cache_read", "gen_ai.usage.details.cache_read_tokens"),
    *("gen_ai.usage.input_tokens.cached", "gen_ai.usage.cached_tokens"),
)
_CACHE_WRITE = (
    *("gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens"),
    *("llm.token_count.prompt_details.cache_write", "gen_ai.usage.details.cache_write_tokens"),
)
_REASONING = (
    *("gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens"),
    *("llm.token_count.completion_details.reasoning", "gen_ai.usage.details.reasoning_tokens"),
)
_COSTS = ("llm.cost.total", "gen_ai.usage.cost", "gen_ai.usage.total_cost", "operation.cost")
_MODELS = (
    *("gen_ai.response.model", "llm.response.model_name", "llm.model_name"),
    *("gen_ai.request.model", "llm.request.model_name"),
)
_PROVIDERS = ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system")
_FINGERPRINTS = (
    *("openai.response.system_fingerprint", "gen_ai.openai.response.system_fingerprint"),
    *("gen_ai.openai.system_fingerprint", "gen_ai.response.system_fingerprint"),
)
_FIRST_TOKENS = ("gen_ai.response.time_to_first_chunk", "gen_ai.server.time_to_first_token")
_FIRST_EVENTS = ("First Token Stream SpanEvent", "llm.content.completion.chunk", "gen_ai.content.completion.chunk")
_SESSIONS = (
    *("session.id", "gen_ai.conversation.id", "langfuse.session.id", "conversation.id", "thread.id"),
    *("traceloop.association.properties.session_id", "traceloop.association.properties.thread_id"),
    *("traceloop.association.properties.chat_id", "metadata.thread_id", "metadata.session_id"),
)


def first(attributes: Mapping[str, Any], keys: Sequence[str]) -> Any:
    """The first of the values that is there; None without one."""
    for key in keys:
        if (value := attributes.get(key)) is not None:
            return value
    return None


def kind_of_span(attributes: Mapping[str, Any]) -> Kind:
    """What a span stands for."""
    operation = attributes.get("gen_ai.operation.name")
    if isinstance(operation, str) and operation in _OPERATIONS:
        return _OPERATIONS[operation]
    for key, kinds in (("openinference.span.kind", _OPENINFERENCE), ("traceloop.span.kind", _TRACELOOP),
                       ("langfuse.observation.type", _LANGFUSE)):  # fmt: skip
        if isinstance(given := attributes.get(key), str):
            return kinds.get(given.upper() if kinds is _OPENINFERENCE else given.lower(), "other")
    if attributes.get("llm.request.type") in ("chat", "completion"):
        return "model"
    if "gen_ai.tool.name" in attributes or attributes.get("mcp.method.name") == "tools/call":
        return "tool"
    if "gen_ai.agent.name" in attributes and "gen_ai.response.model" not in attributes:
        return "agent"
    models = ("gen_ai.request.model", "gen_ai.response.model")
    return "model" if any(name in attributes for name in models) and not operation else "other"


def session_of(attributes: Mapping[str, Any]) -> str:
    """The session that a trace is a part of; "" if no attribute says it."""
    found = first(attributes, _SESSIONS)
    return str(found) if isinstance(found, str | int) else ""


def decoded(value: Any) -> Any:
    """The value of a text that is JSON; another value as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"'):
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return value
    return value


# -- messages -------------------------------------------------------------------------------------------


class Said:
    """The messages that went into a call of a model, those that came out, and why it ended; each read when asked."""

    def __init__(self, span: TraceSpan) -> None:
        self._span, self._attributes = span, span.attributes
        self._from_events: list[dict[str, Any]] | None = None
        for event in span.events:
            # Newer instrumentations put the content of a call into one event.
            if "gen_ai.input.messages" in event.attributes or "gen_ai.output.messages" in event.attributes:
                self._attributes = {**self._attributes, **event.attributes}

    @cached_property
    def inputs(self) -> list[dict[str, Any]]:
        """What the model was asked."""
        given = self._attributes
        found = _newer(given, "gen_ai.input.messages", given.get("gen_ai.system_instructions"))
        found = (
            found
            or _openinference(self._indexed.get("llm.input_messages"))
            or _older(self._indexed.get("gen_ai.prompt"))
        )
        keys = ("gen_ai.prompt", "langfuse.observation.input", "input.value")
        found = found or self._events[0] or _contents(given, keys, "user")
        for message in found:
            message.pop("finish_reason", None)
        return found

    @cached_property
    def outputs(self) -> list[dict[str, Any]]:
        """What the model answered."""
        return [{key: value for key, value in each.items() if key != "finish_reason"} for each in self._ended]

    @cached_property
    def finish(self) -> str | None:
        """Why the answer ended, in evalq's words where there is one."""
        return finish_of(self._attributes, [each.get("finish_reason") for each in self._ended])

    @cached_property
    def _ended(self) -> list[dict[str, Any]]:
        found = _newer(self._attributes, "gen_ai.output.messages", None)
        found = (
            found
            or _openinference(self._indexed.get("llm.output_messages"))
            or _older(self._indexed.get("gen_ai.completion"))
        )
        keys = ("gen_ai.completion", "langfuse.observation.output", "output.value")
        return found or self._events[1] or _contents(self._attributes, keys, "assistant")

    @cached_property
    def _indexed(self) -> dict[str, list[dict[str, Any]]]:
        return _indexed(self._attributes)

    @cached_property
    def _events(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Messages that stand in events, one each: (inputs, outputs)."""
        inputs: list[dict[str, Any]] = []
        outputs: list[dict[str, Any]] = []
        for event in self._span.events:
            if event.name not in _OLD_EVENTS:
                continue
            content = event.body if event.body is not None else event.attributes.get("gen_ai.event.content")
            fields = decoded(content) if content is not None else event.attributes
            fields = dict(fields) if isinstance(fields, dict) else {"content": fields}
            if isinstance(inner := decoded(fields.get("message")), dict):
                fields |= inner
            message = _message(_OLD_EVENTS[event.name] or str(fields.get("role") or "assistant"), fields)
            if event.name == "gen_ai.choice":
                outputs.append({**message, "finish_reason": fields.get("finish_reason")})
            else:
                inputs.append(message)
        return inputs, outputs


def _newer(attributes: Mapping[str, Any], key: str, instructions: Any) -> list[dict[str, Any]]:
    """Messages of the newer conventions: a role, and parts of several types."""
    listed, system = decoded(attributes.get(key)), decoded(instructions)
    messages = []
    if isinstance(system, list | str) and system:
        messages.append({"role": "system", "content": system if isinstance(system, str) else _texts(system)})
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict):
            messages += _with_parts(each)
    return messages


def _texts(parts: Sequence[Any]) -> str:
    return "\n".join(text for part in parts if isinstance(part, dict) and isinstance(text := part.get("content"), str))


def _with_parts(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    parts = given.get("parts")
    if not isinstance(parts, list):
        return [_message(str(given.get("role") or "user"), given)]
    content: list[dict[str, Any]] = []
    calls, answers = [], []
    for part in parts:
        if not isinstance(part, dict):
            continue
        kind = part.get("type")
        if kind == "tool_call":
            calls.append(_call(part.get("id"), part.get("name"), part.get("arguments")))
        elif kind == "tool_call_response":
            result = part.get("response", part.get("result"))
            answers.append({"role": "tool", "tool_call_id": str(part.get("id") or ""), "content": _as_content(result)})
        elif kind == "text":
            content.append({"type": "text", "text": str(part.get("content") or "")})
        elif kind in ("reasoning", "thinking"):
            content.append({"type": "reasoning", "text": str(part.get("content") or "")})
        else:
            content.append(dict(part))
    role = str(given.get("role") or "user")
    if answers and not content and not calls:
        return answers
    made: dict[str, Any] = {"role": role, "content": _plain_content(content)}
    if calls:
        made["tool_calls"] = calls
    if given.get("finish_reason"):
        made["finish_reason"] = given["finish_reason"]
    return [made, *answers]


def _plain_content(parts: list[dict[str, Any]]) -> Any:
    if all(part.get("type") == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _as_content(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value or ""
    return msgspec.json.encode(value).decode()


def _call(identity: Any, name: Any, arguments: Any) -> dict[str, Any]:
    made = {"name": str(name or "tool"), "arguments": {} if arguments is None else decoded(arguments)}
    return {"id": str(identity), **made} if identity else made


def _message(role: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """A message in the form of chat completions, as the older conventions have it."""
    content = fields.get("content")
    parts = decoded(content) if isinstance(content, str) and content[:1] == "[" else content
    known = isinstance(parts, list) and parts and all(isinstance(part, dict) and "type" in part for part in parts)
    made: dict[str, Any] = {"role": role, "content": parts if known else _as_content(content)}
    listed = decoded(fields.get("tool_calls"))
    calls = []
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict):
            function = each["function"] if isinstance(each.get("function"), dict) else each
            calls.append(_call(each.get("id"), function.get("name"), function.get("arguments")))
    if calls:
        made["tool_calls"] = calls
    identity = fields.get("tool_call_id") or (fields.get("id") if role == "tool" else None)
    if identity:
        made["tool_call_id"] = str(identity)
    return made


_INDEXED = ("llm.input_messages", "llm.output_messages", "gen_ai.prompt", "gen_ai.completion")


def _indexed(attributes: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Lists of objects that stand as one attribute for each value: {name: {index: {key: value}}} in order."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for key, value in attributes.items():
        for name in _INDEXED:
            if key.startswith(name) and key[len(name) : len(name) + 1] == ".":
                index, _, rest = key[len(name) + 1 :].partition(".")
                if index.isdecimal() and int(index) < _MOST_INDEX and rest:
                    found.setdefault(name, {}).setdefault(int(index), {})[rest] = value
    return {name: [each for _, each in sorted(entries.items())] for name, entries in found.items()}


def _inner(entry: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """The list of objects under ``prefix`` of a flat entry."""
    found: dict[int, dict[str, Any]] = {}
    for key, value in entry.items():
        if key.startswith(prefix):
            index, _, rest = key[len(prefix) :].partition(".")
            if index.isdecimal() and int(index) < _MOST_INDEX and rest:
                found.setdefault(int(index), {})[rest] = value
    return [each for _, each in sorted(found.items())]


def _openinference(entries: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    messages = []
    for entry in entries or ():
        calls = _inner(entry, "message.tool_calls.")
        parts = []
        for part in _inner(entry, "message.contents."):
            kind = part.get("message_content.type")
            if kind == "tool_use":
                calls.append(part)
            elif kind in ("text", "reasoning"):
                parts.append({"type": kind, "text": str(part.get("message_content.text") or "")})
            else:
                parts.append({"type": str(kind), **{key: value for key, value in part.items() if key != "type"}})
        content = entry.get("message.content")
        made: dict[str, Any] = {
            "role": str(entry.get("message.role") or "user"),
            "content": _as_content(content) if content is not None or not parts else _plain_content(parts),
        }
        if calls:
            name, arguments = "tool_call.function.name", "tool_call.function.arguments"
            made["tool_calls"] = [
                _call(each.get("tool_call.id"), each.get(name), each.get(arguments)) for each in calls
            ]
        if entry.get("message.tool_call_id"):
            made["tool_call_id"] = str(entry["message.tool_call_id"])
        messages.append(made)
    return messages


def _older(entries: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """Messages of OpenLLMetry: gen_ai.prompt.0.role and so on."""
    messages = []
    for entry in entries or ():
        calls = _inner(entry, "tool_calls.")
        message = _message(str(entry.get("role") or "user"), {**entry, "tool_calls": calls})
        if entry.get("finish_reason"):
            message["finish_reason"] = entry["finish_reason"]
        messages.append(message)
    return messages


def _contents(attributes: Mapping[str, Any], keys: Sequence[str], role: str) -> list[dict[str, Any]]:
    """Messages from the value of a whole input or output: a list of them, an object with one, or a text."""
    value = first(attributes, keys)
    if value is None:
        return []
    data = decoded(value)
    if isinstance(data, dict) and isinstance(data.get("messages"), list):
        data = data["messages"]
    if isinstance(data, dict) and isinstance(data.get("role"), str):
        data = [data]
    if isinstance(data, list) and data and all(isinstance(each, dict) and "role" in each for each in data):
        return [message for each in data for message in _with_parts(each)]
    return [{"role": role, "content": value if isinstance(value, str) else _as_content(value)}]


# -- numbers and names ------------------------------------------------------------------------------------


def finish_of(attributes: Mapping[str, Any], ends: Sequence[Any] = ()) -> str | None:
    """Why the answer ended, in evalq's words where there is one."""
    listed = first(attributes, ("gen_ai.response.finish_reasons", "llm.finish_reason", "gen_ai.response.stop_reason"))
    listed = decoded(listed)
    given = next(iter([*(listed if isinstance(listed, list) else [listed]), *ends]), None)
    given = given or next((each for each in ends if each), None)
    if not isinstance(given, str) or not given:
        return None
    return _FINISHES.get(given.lower(), given)


def tokens_of(attributes: Mapping[str, Any]) -> dict[str, int]:
    """The tokens of a call, in the fields of `Tokens`; unknown ones are absent."""
    named = (("input", _INPUT_TOKENS), ("output", _OUTPUT_TOKENS), ("cached_input", _CACHED),
             ("cache_write", _CACHE_WRITE), ("reasoning", _REASONING))  # fmt: skip
    found = {name: count for name, keys in named if (count := _count(first(attributes, keys))) is not None}
    # Some instrumentations of Anthropic count the tokens of a cache beside the input.
    cached = found.get("cached_input", 0) + found.get("cache_write", 0)
    if "input" in found and cached > found["input"]:
        found["input"] += cached
    if "output" in found and found.get("reasoning", 0) > found["output"]:
        found["output"] += found["reasoning"]
    return found


def _count(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 0 else None


def cost_of(attributes: Mapping[str, Any]) -> float | None:
    """The cost that the call states."""
    value = first(attributes, _COSTS)
    if value is None and isinstance(details := decoded(attributes.get("langfuse.observation.cost_details")), dict):
        value = details.get("total")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None


def served_by(attributes: Mapping[str, Any]) -> Served:
    """The model that served a call."""
    named = (first(attributes, keys) for keys in (_MODELS, _FINGERPRINTS, _PROVIDERS))
    return Served(*(value if isinstance(value, str) else "" for value in named))


def first_token(span: TraceSpan) -> float | None:
    """Seconds from the begin of a call to its first token."""
    value = first(span.attributes, _FIRST_TOKENS)
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    times = [event.time for event in span.events if event.name in _FIRST_EVENTS and event.time >= span.start > 0]
    return (min(times) - span.start) / 1e9 if times else None


# -- tools ----------------------------------------------------------------------------------------------


def tool_call(span: TraceSpan) -> dict[str, Any]:
    """The call of a tool, with its result or error."""
    given = span.attributes
    named = first(given, ("gen_ai.tool.name", "tool.name", "traceloop.entity.name"))
    bare = span.name.removeprefix("execute_tool ").removesuffix(".tool")
    call: dict[str, Any] = {
        "name": str(named or bare or "tool"),
        "arguments": _arguments(given),
    }
    result = first(given, ("gen_ai.tool.call.result", "gen_ai.tool.message", "output.value", "traceloop.entity.output",
                           "langfuse.observation.output"))  # fmt: skip
    if span.error is not None:
        call["error"] = span.error or exception_of(span) or "error"
    elif result is not None:
        call["result"] = _result(result)
    if span.end > span.start > 0:
        call["seconds"] = (span.end - span.start) / 1e9
    identity = first(given, ("gen_ai.tool.call.id", "tool_call.id", "tool.id"))
    if isinstance(identity, str) and identity:
        call["id"] = identity
    return call


def exception_of(span: TraceSpan) -> str:
    """The message of the exception that the span recorded; "" without one."""
    found = (event.attributes.get("exception.message") for event in span.events if event.name == "exception")
    return next((each for each in found if isinstance(each, str)), "")


def _arguments(given: Mapping[str, Any]) -> Any:
    value = first(given, ("gen_ai.tool.call.arguments", "input.value", "traceloop.entity.input", "tool.parameters",
                          "langfuse.observation.input"))  # fmt: skip
    data = decoded(value)
    if data is None:
        return {}
    if isinstance(data, dict) and value == given.get("traceloop.entity.input"):
        # The decorator of functions, and the callback of LangChain, wrap the arguments.
        if isinstance(data.get("inputs"), dict):
            return data["inputs"]
        if isinstance(data.get("kwargs"), dict) and "args" in data:
            return {**({"args": data["args"]} if data["args"] else {}), **data["kwargs"]}
    return data


def _result(value: Any) -> Any:
    data = decoded(value)
    if isinstance(data, dict) and set(data) <= {"output", "kwargs"} and "output" in data:
        return data["output"]  # LangChain's callback
    return data if isinstance(data, str) else value
