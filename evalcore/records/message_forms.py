"""Messages in the forms of agent frameworks, read into the form of `read_messages`.

It reads messages of LangChain, items of OpenAI's Responses and Agents SDK, messages of PydanticAI, and steps of
smolagents. What a message says on its call of a model stays with it, as ``usage``, ``model`` and ``finish``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from evalq.evalcore.model.calls import Served, Tokens
from evalq.evalcore.records.finish import finish_word
from evalq.evalcore.records.usage import token_parts

_Message = dict[str, Any]

_LANGCHAIN = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool"}
_ACTS = ("system_prompt", "task", "step_number", "plan", "output")
"""Keys of which each step of smolagents has one."""


def common_form(listed: Sequence[Any]) -> list[Any]:
    """The messages; those in an unknown form as they are."""
    found: list[Any] = []
    called: _Message | None = None
    for each in listed:
        if not isinstance(each, Mapping) or isinstance(each.get("role"), str):
            made: list[Any] | None = None
        else:
            made = _read(each)
        is_call = bool(made) and str(each.get("type")).endswith("_call")
        if made and is_call and called is not None:
            # Calls that one reply of a model makes are items of their own.
            called["tool_calls"] += made.pop(0)["tool_calls"]
        elif made:
            called = made[0] if is_call else None
        else:
            called = None
        found += [each] if made is None else made
    return found


def _read(given: Mapping[str, Any]) -> list[_Message] | None:
    if isinstance(given.get("parts"), list | tuple) and given.get("kind") in ("request", "response"):
        return list(_pydantic_ai(given))
    kind = given.get("type")
    if isinstance(kind, str) and (kind.endswith(("_call", "_call_output")) or kind == "reasoning"):
        return _item(given, kind)
    if kind is None and any(key in given for key in _ACTS) and "content" not in given:
        return list(_smolagents(given))
    made = langchain_message(given)
    return [made] if made is not None else None


# -- LangChain ------------------------------------------------------------------------------------------


def langchain_message(given: Mapping[str, Any]) -> _Message | None:
    """A message of LangChain as it dumps, stores or traces one; None for another thing."""
    inner = next((given[key] for key in ("kwargs", "data") if isinstance(given.get(key), Mapping)), given)
    kind = str(inner.get("role") or inner.get("type") or given.get("type") or "")
    if kind in ("", "constructor") and isinstance(given.get("id"), list) and given["id"]:
        kind = str(given["id"][-1])
    role = _LANGCHAIN.get(kind.removesuffix("Chunk").removesuffix("Message").lower())
    if role is None or not ("content" in inner or "tool_calls" in inner):
        return None
    beside = inner.get("additional_kwargs")
    listed = inner.get("tool_calls") or (beside.get("tool_calls") if isinstance(beside, Mapping) else None)
    calls = [*_objects(listed), *_objects(inner.get("invalid_tool_calls"))]
    made: _Message = {"role": role, "content": inner.get("content")}
    if calls and role == "assistant":
        made["tool_calls"] = [_call(each) for each in calls]
    for key in ("tool_call_id", "name"):
        if isinstance(inner.get(key), str):
            made[key] = inner[key]
    if inner.get("status") == "error":
        made["is_error"] = True
    facts = inner.get("response_metadata")
    facts = facts if isinstance(facts, Mapping) else {}
    return made | _facts(inner.get("usage_metadata"), facts.get("model_name") or facts.get("model"),
                         facts.get("finish_reason") or facts.get("stop_reason"))  # fmt: skip


def _call(given: Mapping[str, Any]) -> dict[str, Any]:
    if "args" not in given:
        return dict(given)
    return {key: value for key, value in (("id", given.get("id")), ("name", given.get("name"))) if value} | {
        "arguments": given["args"]
    }


# -- OpenAI's Responses, and the Agents SDK ---------------------------------------------------------------


def _item(given: Mapping[str, Any], kind: str) -> list[_Message]:
    name = given.get("call_id") or given.get("id")
    if kind == "reasoning":
        return []
    if kind.endswith("_output"):
        return [{"role": "tool", "tool_call_id": name, "content": _content(given.get("output"))}]
    # Tools that the provider runs itself have no arguments, and some have their output with them.
    call = {"id": name, "name": given.get("name") or kind.removesuffix("_call")}
    call["arguments"] = next((given[key] for key in ("arguments", "input", "action") if given.get(key)), {})
    if not isinstance(call["arguments"], str | Mapping):
        call["arguments"] = {"input": call["arguments"]}
    made: list[_Message] = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    if given.get("output") is not None or given.get("error"):
        result = given.get("output") if not given.get("error") else given["error"]
        made.append({"role": "tool", "tool_call_id": name, "content": _content(result)})
        made[-1] |= {"is_error": True} if given.get("error") else {}
    return made


# -- PydanticAI -------------------------------------------------------------------------------------------


def _pydantic_ai(given: Mapping[str, Any]) -> Iterator[_Message]:
    if given["kind"] == "response":
        yield from _response(given)
        return
    if isinstance(given.get("instructions"), str) and given["instructions"]:
        yield {"role": "system", "content": given["instructions"]}
    for part in _objects(given["parts"]):
        kind, content = part.get("part_kind"), part.get("content")
        if kind == "system-prompt":
            yield {"role": "system", "content": content}
        elif kind == "user-prompt":
            yield {"role": "user", "content": content}
        elif kind == "tool-return":
            yield _returned(part) | ({"is_error": True} if part.get("outcome") == "failed" else {})
        elif kind == "retry-prompt" and part.get("tool_name"):
            yield _returned(part) | {"is_error": True}
        elif kind == "retry-prompt":
            yield {"role": "user", "content": _content(content)}


def _response(given: Mapping[str, Any]) -> Iterator[_Message]:
    parts = list(_objects(given["parts"]))
    texts = [str(part.get("content") or "") for part in parts if part.get("part_kind") == "text"]
    made: _Message = {"role": "assistant", "content": "".join(texts) or None}
    calls = [
        {"id": part.get("tool_call_id"), "name": part.get("tool_name"), "arguments": part.get("args")}
        for part in parts
        if str(part.get("part_kind")).endswith("tool-call")
    ]
    if calls:
        made["tool_calls"] = calls
    yield made | _facts(given.get("usage"), given.get("model_name"), given.get("finish_reason"))
    yield from (_returned(part) for part in parts if str(part.get("part_kind")).endswith("tool-return"))


def _returned(part: Mapping[str, Any]) -> _Message:
    name = {"name": part["tool_name"]} if isinstance(part.get("tool_name"), str) else {}
    return {"role": "tool", "tool_call_id": part.get("tool_call_id"), **name, "content": _content(part.get("content"))}


# -- smolagents -------------------------------------------------------------------------------------------


def _smolagents(step: Mapping[str, Any]) -> Iterator[_Message]:
    if "step_number" in step:
        calls = [*_objects(step.get("tool_calls"))]
        said = step.get("model_output")
        made: _Message = {"role": "assistant", "content": said if isinstance(said, str) else None}
        error = step.get("error")
        yield made | ({"tool_calls": calls} if calls else {}) | _facts(step.get("token_usage"))
        seen = error or step.get("observations")
        # The observations of several calls are one text: it belongs to the last of them.
        if calls and seen is not None:
            result = seen.get("message", seen) if isinstance(seen, Mapping) else seen
            yield {"role": "tool", "tool_call_id": calls[-1].get("id"), "content": _content(result)} | (
                {"is_error": True} if error else {}
            )
    elif "plan" in step:
        yield {"role": "assistant", "content": _content(step["plan"])} | _facts(step.get("token_usage"))
    elif "task" in step:
        yield {"role": "user", "content": _content(step["task"])}
    elif "system_prompt" in step:
        yield {"role": "system", "content": _content(step["system_prompt"])}


# -- what they share ----------------------------------------------------------------------------------------


def _objects(listed: Any) -> Iterator[Mapping[str, Any]]:
    yield from (each for each in (listed if isinstance(listed, list | tuple) else ()) if isinstance(each, Mapping))


def _content(value: Any) -> Any:
    """A tool's result as the content of a message: a text, parts with texts, or an object; anything else as JSON."""
    if isinstance(value, list) and value and all(isinstance(each, Mapping) and "text" in each for each in value):
        return value
    return value if value is None or isinstance(value, str | Mapping) else msgspec.json.encode(value).decode()


def _facts(usage: Any, model: Any = None, finish: Any = None) -> _Message:
    made: _Message = {"usage": dict(usage)} if isinstance(usage, Mapping) else {}
    made |= {"model": model} if isinstance(model, str) and model else {}
    return made | ({"finish": finish} if isinstance(finish, str) and finish else {})


def facts_of(messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the messages say on the calls of models since the user's last one: ``usage``, ``served`` and ``finish``.

    Earlier ones are those that the agent was given, or of an earlier call. A count that one of the messages lacks is
    unknown.
    """
    roles = [message.get("role") for message in messages]
    begin = len(roles) - roles[::-1].index("user") if "user" in roles else 0
    own = [message for message in messages[begin:] if message.get("role") == "assistant"]
    found: dict[str, Any] = {}
    if own and all(isinstance(message.get("usage"), Mapping) for message in own):
        found["usage"] = _sum(token_parts(message["usage"]) for message in own)
    if own and isinstance(own[-1].get("model"), str):
        found["served"] = Served(model=own[-1]["model"])
    if own and isinstance(own[-1].get("finish"), str):
        found["finish"] = finish_word(own[-1]["finish"])
    return found


def _sum(usages: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    listed = list(usages)
    names = [name for name in Tokens.__struct_fields__ if all(type(usage.get(name)) is int for usage in listed)]
    return {name: sum(usage[name] for usage in listed) for name in names}
