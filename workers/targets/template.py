"""Filling a JSON template with a call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["PLACEHOLDERS", "fill", "mentions"]

PLACEHOLDERS = ("prompt", "agent", "case", "repeat", "messages")
"""What a call fills in; other names are those of a target's parameters."""
_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]*)\}")


def fill(template: Any, values: Mapping[str, Any]) -> Any:
    """``template`` with its placeholders replaced in one pass, so a value's own braces stay what they are.

    Text that is nothing but a placeholder becomes the value itself: {repeat} a number. Within other text a chat is its
    JSON, and so is all else that is neither text nor a number.
    """
    if isinstance(template, str):
        whole = _PLACEHOLDER.fullmatch(template)
        if whole and whole[1] in values:
            return values[whole[1]]
        return _PLACEHOLDER.sub(lambda match: _text(values.get(match[1], match[0])), template)
    if isinstance(template, dict):
        return {key: fill(value, values) for key, value in template.items()}
    if isinstance(template, list | tuple):
        return [fill(value, values) for value in template]
    return template


def _text(value: Any) -> str:
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if plain else msgspec.json.encode(value).decode()


def mentions(template: Any, name: str) -> bool:
    """Whether ``{name}`` stands anywhere in it."""
    if isinstance(template, str):
        return f"{{{name}}}" in template
    if isinstance(template, dict):
        return any(mentions(value, name) for value in template.values())
    return isinstance(template, list | tuple) and any(mentions(value, name) for value in template)
