"""Words for values and paths in an output, the same in every message."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_KINDS = {
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


def kind_of(value: object) -> str:
    """The kind of ``value`` in the words of JSON, such as "a string" or "null"."""
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def found(record: Mapping[str, Any], key: str) -> str:
    """The value under ``key`` in words: a number or boolean as written, the kind of anything else, or "missing"."""
    if key not in record:
        return "missing"
    value = record[key]
    return shorten(json.dumps(value), 40) if isinstance(value, int | float) else kind_of(value)


def is_text(name: str) -> bool:
    """Whether a name is valid UTF-8. Python has half surrogates for other bytes in a system's names."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def join(path: str, key: str | int) -> str:
    """The path of a member: ``a.b`` for a key, ``a[0]`` for a position."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{shorten(key)}" if path else shorten(key)


def shorten(text: str, most: int = 80) -> str:
    """``text``, cut to ``most`` characters with an ellipsis if it is longer."""
    return text if len(text) <= most else text[: most - 1] + "…"
