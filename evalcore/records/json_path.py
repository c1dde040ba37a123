"""Finding a value by its path in JSON."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["NothingThere", "find", "parse_path"]

_STEP = re.compile(r"(?:\.|\A)(?P<key>[^.\[\]]+)|\[(?P<index>\d+)\]|\[(?P<quote>['\"])(?P<name>.*?)(?P=quote)\]")


class NothingThere(LookupError):
    """Nothing is at a path; the message says how far it leads."""


def parse_path(path: str) -> tuple[str | int, ...]:
    """The steps of a path such as ``$.choices[0].message.content``; "" or ``$`` is the whole. Raises ValueError."""
    rest = path.removeprefix("$").removeprefix(".")
    if rest.startswith("."):
        raise ValueError("not a path: '..' is not understood; write it like choices[0].message.content")
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


def find(value: Any, steps: tuple[str | int, ...], what: str = "the reply") -> Any:
    """What is at the path in ``value``, which messages call ``what``. Raises NothingThere."""
    for number, step in enumerate(steps):
        listed = isinstance(step, int) and isinstance(value, list) and step < len(value)
        if listed or (isinstance(step, str) and isinstance(value, dict) and step in value):
            value = value[step]
        else:
            shown = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in steps[: number + 1])
            raise NothingThere(f"{what} has nothing at {shown.removeprefix('.')}")
    return value
