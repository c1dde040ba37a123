"""promptfoo's assertions on what an agent did, as checks of its recorded tool calls.

promptfoo takes the calls from the spans of a trace. It names a tool by a pattern with * and ?, of any case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evalq.producer.importing.patterns import NoCounterpart

Check = dict[str, Any]

DIFFERENCE = (
    "evalq takes the recorded tool calls, and their names as they are written; promptfoo takes the spans of a trace, "
    "also by the span's name, and ignores the case of names"
)


def _name(matcher: Any, what: str) -> str:
    """The name of a tool, as a check has it."""
    if isinstance(matcher, Mapping):
        if matcher.get("type") not in (None, "tool", ["tool"]):
            raise NoCounterpart("it is about other steps than tool calls")
        matcher = matcher.get("pattern") or matcher.get("name")
    if not isinstance(matcher, str) or not matcher:
        raise NoCounterpart(f"{what} needs the name of a tool")
    if "?" in matcher or "{{" in matcher:
        raise NoCounterpart("in a tool's name, only * has a meaning to evalq")
    return matcher


def _bounds(value: Mapping[str, Any], least: int) -> dict[str, int]:
    """`min` and `max` of a number of calls."""
    given = {key: value[key] for key in ("min", "max") if _is_number(value.get(key))}
    if any(not -1e9 < number < 1e9 for number in given.values()) or given.get("max", 0) < 0:
        raise NoCounterpart("no number of calls is within its bounds")
    bounds = {"min": max(0, math.ceil(given.get("min", least)))}
    return bounds | ({"max": math.floor(given["max"])} if "max" in given else {})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_used(assertion: Mapping[str, Any], value: Any) -> Check:
    if isinstance(value, Mapping):
        return {"calls-tool": _name(value, "it"), **_bounds(value, 1)}
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(each, str) for each in names):
        raise NoCounterpart("it needs the name of a tool, a list of names, or name, min and max")
    tools = [_name(each, "it") for each in names]
    if str(assertion["type"]).startswith("not-"):
        return {"not-forbidden-tools": tools}  # negated: none of them is called
    called = [{"calls-tool": tool} for tool in tools]
    return called[0] if len(called) == 1 else {"all": called}


def _in_sequence(assertion: Mapping[str, Any], value: Any) -> Check:
    steps = value.get("steps") if isinstance(value, Mapping) else value
    if not isinstance(steps, list) or not steps:
        raise NoCounterpart("it needs a list of tools, or steps and mode")
    exact = isinstance(value, Mapping) and value.get("mode") == "exact"
    return {"tool-sequence": [_name(step, "each step") for step in steps], "order": "exact" if exact else "kept"}


def _counted(assertion: Mapping[str, Any], value: Any) -> Check:
    if not isinstance(value, Mapping) or not (_is_number(value.get("min")) or _is_number(value.get("max"))):
        raise NoCounterpart("it needs min or max")
    if value.get("type") not in ("tool", ["tool"]):
        raise NoCounterpart("it counts all steps of a trace; with type: tool it would count tool calls")
    name = _name(value, "it") if value.get("pattern") or value.get("name") else "*"
    return {"calls-tool": name, **_bounds(value, 0)}


def _with_arguments(assertion: Mapping[str, Any], value: Any) -> Check:
    if not isinstance(value, Mapping):
        raise NoCounterpart("it needs a tool's name and args")
    check: Check = {"calls-tool": _name(value, "it")}
    wanted = value["args"] if "args" in value else value.get("arguments")
    if not isinstance(wanted, Mapping):
        raise NoCounterpart("a call's arguments are an object, and it names none")
    if _has_template(wanted):
        raise NoCounterpart("its args have a template, which promptfoo does not fill in, either")
    mode, defaults, ignored = value.get("mode", "partial"), value.get("defaults") or {}, value.get("ignore") or []
    ignored = [ignored] if isinstance(ignored, str) else ignored
    if mode not in ("partial", "exact") or not isinstance(defaults, Mapping) or not isinstance(ignored, list):
        raise NoCounterpart("promptfoo does not take its mode, defaults or ignore")
    if any(not isinstance(entry, str) or set("*?") & {*entry} for entry in ignored):
        raise NoCounterpart("it ignores arguments by a pattern")
    wanted = {key: each for key, each in wanted.items() if key not in ignored}
    if any(key in defaults and defaults[key] == each for key, each in wanted.items()):
        raise NoCounterpart("it wants an argument that it takes away as a default: no call passes")
    if mode == "partial":
        nested = any(isinstance(each, Mapping | list) for each in wanted.values())
        if not nested:
            return check | ({"arguments": wanted} if wanted else {})
        return check | {"schema": _part_schema(wanted)}
    if not (defaults or ignored):
        return check | {"arguments": wanted, "exact": True}
    properties = {key: {"const": each} for key, each in {**defaults, **wanted}.items()}
    properties |= dict.fromkeys(ignored, True)
    return check | {"schema": {"properties": properties, "required": sorted(wanted), "additionalProperties": False}}


def _has_template(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_template, value.values()))
    return any(map(_has_template, value)) if isinstance(value, list) else isinstance(value, str) and "{{" in value


def _part_schema(value: Any) -> dict[str, Any]:
    """A schema of what has this value in it: objects may have further members, lists have no other items."""
    if isinstance(value, Mapping):
        inner = {key: _part_schema(each) for key, each in value.items()}
        return {"type": "object", "properties": inner, "required": sorted(value)}
    if isinstance(value, list):
        items: Sequence[Any] = [_part_schema(each) for each in value]
        length = {"minItems": len(value), "maxItems": len(value)}
        return {"type": "array", **length, **({"prefixItems": items} if items else {})}
    return {"const": value}


COUNTERPARTS: Mapping[str, Callable[[Mapping[str, Any], Any], Check]] = {
    "trajectory:tool-used": _is_used,
    "trajectory:tool-sequence": _in_sequence,
    "trajectory:tool-args-match": _with_arguments,
    "trajectory:step-count": _counted,
}
"""By promptfoo's type: the check that an assertion of it is, not yet negated."""


def goal_of(value: Any) -> str:
    """The goal that the agent has to reach, as a requirement for a judge of the conversation."""
    goal = value.get("goal") if isinstance(value, Mapping) else value
    if not isinstance(goal, str) or not goal.strip() or "{{" in goal:
        raise NoCounterpart("it needs a goal, as a text")
    return f"The program reaches this goal: {goal.strip()}"
