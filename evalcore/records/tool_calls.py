"""Calls of tools as agents' libraries and providers write them: one reader for checks, imports and answers.

Read are chat completions and Responses of OpenAI, Messages of Anthropic, Gemini, Bedrock's Converse, LangChain,
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
# What stands beside name and arguments, and is none of them.
_BESIDE = frozenset({
    *("id", "type", "index", "call_id", "tool_call_id", "toolCallId", "toolUseId", "parent", "status", "seconds"),
    *("result", "output", "content", "response", "error", "description", "reasoning", "view", "internal", "metadata"),
    *("caller", "cache_control", "thoughtSignature", "extra_content", "message", "expectedOutput", "parse_error"),
})  # fmt: skip
_CALLS = ("tool_calls", "toolCalls", "tools_called", "toolsCalled")
_BLOCK_CALLS = frozenset({"tool_use", "function_call", "tool_call", "tool-call", "server_tool_use", "mcp_call"})
_BLOCK_KEYS = ("functionCall", "function_call", "toolUse")


class NoCall(ValueError):
    """Something in place of a call, or of a list of calls; the message says what, and where."""


class ToolCall(NamedTuple):
    """One call of a tool: its name and arguments.

    ``unread`` says why the arguments are not known, and is empty where they are: then ``arguments`` is an object. Else
    it is what came in place of one.
    """

    name: str
    arguments: Any
    unread: str = ""


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
        return read_call(inner)
    return ToolCall(name, *_arguments_of(value))


def recorded_call(written: str | Mapping[str, Any]) -> dict[str, Any]:
    """A call of another tool's record as evalq's records have it; a name alone is a call without arguments.

    One whose arguments are not known stays as it came: a check says then that they cannot be read.
    """
    if isinstance(written, str):
        return {"name": written, "arguments": {}}
    try:
        call = read_call(written)
    except NoCall:
        return {"name": "", **written}
    return dict(written) if call.unread else {"name": call.name, "arguments": call.arguments}


def _arguments_of(call: Mapping[str, Any]) -> tuple[Any, str]:
    """A call's arguments, and why they are not known."""
    given = {key: call[key] for key in _ARGUMENTS if not _empty(call.get(key))}
    inner = call.get("function")
    if isinstance(inner, Mapping) and not _empty(inner.get("arguments")):
        given["function.arguments"] = inner["arguments"]
    if call.get("parse_error"):
        return next(iter(given.values()), {}), f"the record says {shorten(str(call['parse_error']))}"
    if not given:
        odd = [
            key
            for key, held in call.items()
            if key not in _BESIDE and key not in _NAMES and key not in _ARGUMENTS and not _empty(held)
            if isinstance(held, Mapping | list) or (isinstance(held, str) and held.lstrip()[:1] in ("{", "["))
        ]
        return (
            ({key: call[key] for key in odd}, f"{shorten(odd[0])!r} is no known key of arguments") if odd else ({}, "")
        )
    read = {key: _object(held) for key, held in given.items()}
    first = next(iter(read.values()))
    if any(other != first for other in read.values()):
        return dict(given), f"there are several arguments: {', '.join(given)}"
    return first


def _empty(held: Any) -> bool:
    """Whether this is no arguments: clients leave them out, or send null, or an empty text."""
    return held is None or (isinstance(held, str) and not held.strip()) or held in ({}, [])


def _object(held: Any) -> tuple[Any, str]:
    """Arguments as an object, and why they are none; as text where they are no JSON."""
    value = held
    for _ in range(2):  # some clients write the JSON of a text that is JSON
        if not isinstance(value, str):
            break
        try:
            value = extract(value) if value.strip() else {}
        except NoJson as error:
            return held, f"the arguments are no JSON ({error})"
    if value is None:
        return {}, ""
    return (value, "") if isinstance(value, dict) else (held, f"the arguments are {kind_of(value)}, not an object")


def calls_in(output: Any) -> list[ToolCall] | None:
    """The calls in an answer that is data; None where it says nothing of calls. Raises NoCall.

    Looked for are a list of calls under its usual names, and calls among the parts of a message.
    """
    if isinstance(output, Mapping):
        for key in _CALLS:
            if output.get(key) is not None:
                try:
                    return _read_calls(output[key])
                except NoCall as error:
                    raise NoCall(f"{key}{'' if str(error).startswith('[') else ': '}{error}") from None
    found: list[ToolCall] = []
    said = False
    for blocks in _blocks(output):
        said = True
        found += [read_call(block) for block in blocks if _is_call(block)]
    return found if said else None


def _is_call(block: Mapping[str, Any]) -> bool:
    return block.get("type") in _BLOCK_CALLS or any(isinstance(block.get(key), Mapping) for key in _BLOCK_KEYS)


def _blocks(output: Any) -> Iterator[Sequence[Mapping[str, Any]]]:
    """The lists of parts in which an answer would have its calls."""
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
