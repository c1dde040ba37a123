"""Filling placeholders such as ``{{name}}`` in the values of a case, within a bound on what they may come to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.naming import shorten

__all__ = ["Room", "UnknownPlaceholder", "fill"]

_PLACEHOLDER = re.compile(r"(\\?)\{\{\s*([A-Za-z_][\w.-]*)\s*\}\}", re.ASCII)
_MOST_WRITTEN_OUT = 256 << 20
_VALUE = 8
"""Bytes that any value counts for beside its text: a list of a billion empty texts is not free."""


class Room:
    """How much cases may hold with their layers and placeholders written out, where a few lines can mean terabytes."""

    def __init__(self) -> None:
        self._left = _MOST_WRITTEN_OUT

    def take_one(self, characters: int = 0) -> None:
        """Count a value that holds no others. Raises ConfigError."""
        self._left -= _VALUE + characters
        if self._left < 0:
            most = f"{_MOST_WRITTEN_OUT >> 20} MiB"
            raise ConfigError(f"the cases hold more than {most} with defaults, templates and placeholders filled in")

    def take(self, value: Any) -> Any:
        """``value``, counted. Raises ConfigError."""
        waiting = [value]
        while waiting:
            part = waiting.pop()
            self.take_one(len(part) if isinstance(part, str) else 0)
            if isinstance(part, dict):
                waiting += (*part, *part.values())
            elif isinstance(part, list):
                waiting += part
        return value


class UnknownPlaceholder(ValueError):
    """A placeholder names nothing that is known."""


def fill(value: Any, values: Mapping[str, Any], room: Room) -> Any:
    """``value`` with its placeholders replaced in one pass, so that a variable's own braces stay what they are.

    Text that is nothing but a placeholder becomes the value itself. Raises UnknownPlaceholder.
    """
    if isinstance(value, str):
        room.take_one(len(value))
        if "{{" not in value:
            return value
        whole = _PLACEHOLDER.fullmatch(value)
        # Not as text: a number or a list of a variable stays one, so that checks compare it as such.
        if whole and not whole[1]:
            return room.take(_value(whole[2], values))
        return _PLACEHOLDER.sub(lambda match: str(room.take(_inside(match, values))), value)
    room.take_one()
    if isinstance(value, dict):
        return {key: fill(inner, values, room) for key, inner in value.items()}
    if isinstance(value, list):
        return [fill(inner, values, room) for inner in value]
    return value


def _inside(match: re.Match[str], values: Mapping[str, Any]) -> str:
    # Behind a backslash it is meant as it stands.
    if match[1]:
        return match[0][1:]
    found = _value(match[2], values)
    return found if isinstance(found, str) else msgspec.json.encode(found).decode()


def _value(name: str, values: Mapping[str, Any]) -> Any:
    # A variable whose name has a dot in it goes before a path into another one.
    if name in values:
        return values[name]
    found: Any = values
    for part in name.split("."):
        if not isinstance(found, Mapping) or part not in found:
            # Refused, not left empty: a misspelt name would ask every repeat for nothing, and nobody would see it.
            known = ", ".join(sorted(values))
            what = f"{{{{{shorten(name)}}}}} is no variable (known: {shorten(known, 200)})"
            raise UnknownPlaceholder(f"{what}; write \\{{{{...}}}} for the text")
        found = found[part]
    return found
