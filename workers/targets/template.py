"""Filling a JSON template with a call, and finding an answer by its path in a JSON reply."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["Missing", "fill", "find", "parse_path"]

_PLACEHOLDER = re.compile(r"\{(prompt|agent|case|repeat)\}")
_STEP = re.compile(r"(?:\.|\A)(?P<key>[^.\[\]]+)|\[(?P<index>\d+)\]|\[(?P<quote>['\"])(?P<name>.*?)(?P=quote)\]")


class Missing(LookupError):
    """Nothing is at a path; the message says how far it leads."""


def fill(template: Any, values: Mapping[str, Any]) -> Any:
    """``template`` with its placeholders replaced in one pass, so a value's own braces stay what they are.

    Text that is nothing but a placeholder becomes the value itself: {repeat} a number.
    """
    if isinstance(template, str):
        whole = _PLACEHOLDER.fullmatch(template)
        if whole:
            return values[whole[1]]
        return _PLACEHOLDER.sub(lambda match: str(values[match[1]]), template)
    if isinstance(template, dict):
        return {key: fill(value, values) for key, value in template.items()}
    if isinstance(template, list | tuple):
        return [fill(value, values) for value in template]
    return template


def parse_path(path: str) -> tuple[str | int, ...]:
    """The steps of a path such as ``$.choices[0].message.content``; "" or ``$`` is the whole. Raises ValueError."""
    rest = path.removeprefix("$").removeprefix(".")
    steps: list[str | int] = []
    at = 0
    while at < len(rest):
        match = _STEP.match(rest, at) if at == 0 or rest[at] in ".[" else None
        if match is None:
            raise ValueError(f"not a path at character {at + 1}; write it like choices[0].message.content")
        key = match["key"] if match["key"] is not None else match["name"]
        steps.append(int(match["index"]) if match["index"] is not None else str(key))
        at = match.end()
    return tuple(steps)


def find(reply: Any, steps: tuple[str | int, ...]) -> Any:
    """What is at the path. Raises Missing."""
    for number, step in enumerate(steps):
        listed = isinstance(step, int) and isinstance(reply, list) and step < len(reply)
        if listed or (isinstance(step, str) and isinstance(reply, dict) and step in reply):
            reply = reply[step]
        else:
            shown = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in steps[: number + 1])
            raise Missing(f"the reply has nothing at {shown.removeprefix('.')}")
    return reply
