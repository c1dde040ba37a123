"""Tool calls in the forms of agents' libraries and providers: one reader for checks, imports and answers.

It reads chat completions and Responses of OpenAI, Messages of Anthropic, Gemini, Bedrock's Converse, LangChain,
Inspect, DeepEval, Vercel's AI SDK, and plain objects with a name and arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from evalq.evalcore.naming import kind_of, shorten
from evalq.evalcore.records.json_values import NoJson, extract

_NAMES = ("name", "tool_name", "toolName", "tool", "function")
_ARGUMENTS = (
    *("arguments", "input", "args", "parameters", "kwargs", "params", "inputParameters", "input_parameters"),
    *("tool_input", "toolInput", "raw_arguments"),
)
_INNER = ("function", "functionCall", "function_call", "toolUse", "tool_use", "tool_call", "toolCall")
_IDS = ("id", "tool_call_id", "call_id", "toolCallId", "toolUseId")
# Keys beside name and arguments.
_BESIDE = frozenset({
    *("id", "type", "index", "call_id", "tool_call_id", "toolCallId", "toolUseId", "parent", "status", "seconds"),
    *("result", "output", "content", "response", "error", "description", "reasoning", "view", "internal", "metadata"),
    *("unread", "caller", "cache_control", "thoughtSignature", "extra_content", "message"),
    *("expectedOutput", "parse_error"),
})  # fmt: skip
_CALLS = ("tool_calls", "toolCalls", "tools_called", "toolsCalled")
_BLOCK_CALLS = frozenset({"tool_use", "function_call", "tool_call", "tool-call", "server_tool_use", "mcp_call"})
_BLOCK_KEYS = ("functionCall", "function_call", "toolUse")


class NoCall(ValueError):
    """A value that is no call, or no list of calls; the message says which, and where."""


class ToolCall(NamedTuple):
    """One call of a tool: its name and arguments, and what came of it as far as the record says.

    If the arguments are known, ``arguments`` is an object. Otherwise ``unread`` says why not, and ``arguments`` is the
    value that came instead. ``result`` is what the tool gave, ``error`` why it failed; ``parent`` is the id of the call
    or span in which this one was made.
    """

    name: str
    arguments: Any
    unread: str = ""
    result: Any = None
    error: str | None = None
    seconds: float | None = None
    id: str | None = None
    parent: str | None = None


def _read_calls(listed: Any) -> list[ToolCall]:
    """The calls in a list of them. Raises NoCall."""
    if not isinstance(listed, list):
        raise NoCall(f"{kind_of(listed)} where a list is wanted")
    calls = []
    for index, value in enumerate(listed):
        try:
            calls.append(read_call(value))
        except NoCall as error:
            raise NoCall(f"[{index}]: {error}") from None
    return calls


def read_call(value: Any) -> ToolCall:
    """One call, in any of the forms. Raises NoCall for what has no name."""
    if not isinstance(value, Mapping):
        raise NoCall(f"{kind_of(value)} without a name, where a call is wanted")
    name = next((value[key] for key in _NAMES if isinstance(value.get(key), str) and value[key]), None)
    if name is None:
        inner = next((value[key] for key in _INNER if isinstance(value.get(key), Mapping)), None)
        if inner is None:
            raise NoCall(f"{kind_of(value)} without a name, where a call is wanted")
        call = read_call(inner)
        return call if call.id is not None else call._replace(id=_id_of(value))
    arguments, unread = _arguments_of(value)
    seconds, parent = value.get("seconds"), value.get("parent")
    result, error = outcome_of(value, value.get("result"))
    timed = seconds if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds >= 0 else None
    return ToolCall(
        name, arguments, unread or _said_unread(value), result, error,
        None if timed is None else float(timed), _id_of(value), parent if isinstance(parent, str) else None,
    )  # fmt: skip


def _id_of(value: Mapping[str, Any]) -> str | None:
    return next((found for key in _IDS if isinstance(found := value.get(key), str) and found), None)


_FLAGS = ("is_error", "isError")
_FAILED = ("error", "failed", "failure")


def is_failed(holder: Mapping[str, Any]) -> bool:
    """Whether a record of a call or of its result says by a flag or its status that it failed."""
    status = holder.get("status")
    flagged = any(holder.get(key) not in (None, False, 0, "", "false") for key in _FLAGS)
    return flagged or (isinstance(status, str) and status.lower() in _FAILED)


def outcome_of(holder: Mapping[str, Any], result: Any) -> tuple[Any, str | None]:
    """The result of a call and None, or None and why it failed.

    Records say it by ``error``, by a flag beside the result, or (MCP) by a flag in it; then the result says why.
    """
    error = _error_of(holder.get("error"))
    if error is not None:
        return result, error
    inner = result if isinstance(result, Mapping) and result.get("isError") is True else None
    if inner is None and not is_failed(holder):
        return result, None
    return None, _text_in(result if inner is None else inner.get("content")) or "error"


def _text_in(value: Any) -> str:
    """A result as a text: itself, or the texts among its parts."""
    if isinstance(value, list):
        parts = (part if isinstance(part, str) else part.get("text") for part in value if isinstance(part, str | dict))
        return "\n".join(part for part in parts if isinstance(part, str))
    return value if isinstance(value, str) else ""


def _error_of(value: Any) -> str | None:
    """Why the call failed: records say it as a text, as an object with a message, or only that it did."""
    if isinstance(value, Mapping):
        value = value.get("message") or value.get("error") or value.get("type") or True
    if isinstance(value, str):
        return value or None
    return "error" if value else None


def _said_unread(value: Mapping[str, Any]) -> str:
    said = value.get("unread")
    return said if isinstance(said, str) else ""


def recorded_call(written: str | Mapping[str, Any]) -> dict[str, Any]:
    """A call in another tool's record, in evalq's form; a name alone is a call without arguments.

    A call with unknown arguments stays unchanged: then a check says that it cannot read them.
    """
    if isinstance(written, str):
        return {"name": written, "arguments": {}}
    try:
        call = read_call(written)
    except NoCall:
        return {"name": "", **written}
    return dict(written) if call.unread else {"name": call.name, "arguments": call.arguments}


def _arguments_of(call: Mapping[str, Any]) -> tuple[Any, str]:
    """A call's arguments, and why they are unknown."""
    by_key = {key: call[key] for key in _ARGUMENTS if not _empty(call.get(key))}
    inner = call.get("function")
    if isinstance(inner, Mapping) and not _empty(inner.get("arguments")):
        by_key["function.arguments"] = inner["arguments"]
    if call.get("parse_error"):
        return next(iter(by_key.values()), {}), f"the record says {shorten(str(call['parse_error']))}"
    if not by_key:
        odd = [
            key
            for key, value in call.items()
            if key not in _BESIDE and key not in _NAMES and key not in _ARGUMENTS and not _empty(value)
            if isinstance(value, Mapping | list) or (isinstance(value, str) and value.lstrip()[:1] in ("{", "["))
        ]
        return (
            ({key: call[key] for key in odd}, f"{shorten(odd[0])!r} is no known key of arguments") if odd else ({}, "")
        )
    read = {key: _object(value) for key, value in by_key.items()}
    first = next(iter(read.values()))
    if any(other != first for other in read.values()):
        return dict(by_key), f"there are several arguments: {', '.join(by_key)}"
    return first


def _empty(arguments: Any) -> bool:
    """Whether there are no arguments: clients leave them out, or send null, or an empty text."""
    return arguments is None or (isinstance(arguments, str) and not arguments.strip()) or arguments in ({}, [])


def _object(arguments: Any) -> tuple[Any, str]:
    """Arguments as an object, and "" or why they are not one; as text if they are no JSON."""
    value = arguments
    for _ in range(2):  # some clients write the JSON of a text that is JSON
        if not isinstance(value, str):
            break
        try:
            value = extract(value) if value.strip() else {}
        except NoJson as error:
            return arguments, f"the arguments are no JSON ({error})"
    if value is None:
        return {}, ""
    return (value, "") if isinstance(value, dict) else (arguments, f"the arguments are {kind_of(value)}, not an object")


def calls_in(output: Any) -> list[ToolCall] | None:
    """The calls in an answer that is data; None if it has no place for calls. Raises NoCall.

    It looks for a list of calls under its usual names, and for calls among the parts of a message.
    """
    if isinstance(output, Mapping):
        for key in _CALLS:
            if output.get(key) is not None:
                try:
                    return _read_calls(output[key])
                except NoCall as error:
                    raise NoCall(f"{key}{'' if str(error).startswith('[') else ': '}{error}") from None
    calls: list[ToolCall] | None = None
    for blocks in _blocks(output):
        calls = [*(calls or ()), *(read_call(block) for block in blocks if _is_call(block))]
    return calls


def _is_call(block: Mapping[str, Any]) -> bool:
    return block.get("type") in _BLOCK_CALLS or any(isinstance(block.get(key), Mapping) for key in _BLOCK_KEYS)


def _blocks(output: Any) -> Iterator[Sequence[Mapping[str, Any]]]:
    """The lists of parts in which an answer may have calls."""
    if isinstance(output, list):
        if any(isinstance(each, Mapping) and _is_call(each) for each in output):
            yield [each for each in output if isinstance(each, Mapping)]
        return
    if not isinstance(output, Mapping):
        return
    # Anthropic's and LangChain's content, Gemini's parts, the items of OpenAI's Responses.
    for key in ("content", "parts", "output"):
        inner = output.get(key)
        if isinstance(inner, Mapping):
            yield from _blocks(inner)
        elif isinstance(inner, list) and inner and all(_is_block(each) for each in inner):
            yield inner
    if isinstance(output.get("function_call"), Mapping):  # chat completions before there were tools
        yield [{"function_call": output["function_call"]}]
    for key in ("message", "additional_kwargs"):
        if isinstance(output.get(key), Mapping):
            yield from _within(output[key])
    for key in ("choices", "candidates"):
        if isinstance(output.get(key), list) and output[key] and isinstance(output[key][0], Mapping):
            yield from _within(output[key][0])


def _within(inner: Mapping[str, Any]) -> Iterator[Sequence[Mapping[str, Any]]]:
    for key in _CALLS:
        if isinstance(inner.get(key), list):
            yield [{"type": "tool_call", **each} for each in inner[key] if isinstance(each, Mapping)]
    yield from _blocks(inner)


def _is_block(value: Any) -> bool:
    return isinstance(value, Mapping) and (
        isinstance(value.get("type"), str) or "text" in value or any(key in value for key in _BLOCK_KEYS)
    )
