"""Filling a JSON template with a call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["fill"]

_PLACEHOLDER = re.compile(r"\{(prompt|agent|case|repeat|messages)\}")


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
