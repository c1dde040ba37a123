"""Values as the texts that JavaScript makes of them, and the part of Nunjucks that has a counterpart: {{name}},
{{name.part[0]}}, and {{name | dump}}, which is its JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

PLACEHOLDER = re.compile(
    r"\{\{\s*(?P<path>[A-Za-z_$][A-Za-z0-9_$]*(?:\.[A-Za-z_$][A-Za-z0-9_$]*|\[\d{1,6}\])*)\s*"
    r"(?P<dump>\|\s*dump\s*)?(?:\|\s*safe\s*)?\}\}"
)
_STEP = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*|\d+")
_TEMPLATE = re.compile(r"\{\{|\{%|\{#")
_DEEPEST = 5
_LONGEST = 16 << 20
"""Characters of a template with its variables filled in, since variables may name others."""


class NoText(ValueError):
    """A template that is more than names in braces, or a value with no text; the message says which."""


def javascript_text(value: Any) -> str:
    """What String(value) is. Raises NoText for lists and mappings."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, int):
        # Numbers are doubles there.
        if abs(value) <= 2**53:
            return str(value)
        try:
            return javascript_text(float(value))
        except OverflowError:
            return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, float):
        return _number(value)
    raise NoText(f"a {'list' if isinstance(value, list) else 'mapping'} where a text is wanted")


def _number(value: float) -> str:
    """ECMA-262, Number::toString: the shortest digits, plain from 1e-6 up to 1e21."""
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")
    if value == int(value) and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    if "e" not in text:
        return text
    if 1e-6 <= abs(value) < 1e21:
        digits = -int(text.partition("e")[2]) + len(text.partition("e")[0].partition(".")[2])
        return f"{value:.{digits}f}"
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent):+d}"


def rendered(template: str, variables: Mapping[str, Any]) -> str:
    """``template`` with its names replaced; an unknown variable is empty, as in Nunjucks. Raises NoText."""
    text, room = template, _LONGEST

    def put(match: re.Match[str]) -> str:
        nonlocal room
        value = _variable(match["path"], variables, dumped=bool(match["dump"]))
        room -= len(value)
        if room < 0:
            raise NoText(f"longer than {_LONGEST >> 20} MiB with its variables written out")
        return value

    for _ in range(_DEEPEST):
        if not _TEMPLATE.search(text):
            return text
        text = _tightened(text)
        left = _TEMPLATE.sub("", PLACEHOLDER.sub("", text))
        if _TEMPLATE.search(PLACEHOLDER.sub("", text)):
            raise NoText(f"a template that is more than {{{{name}}}}: {left.strip()[:40] or text[:40]}")
        text = PLACEHOLDER.sub(put, text)
    raise NoText("variables that name each other")


def _tightened(text: str) -> str:
    """Remove white space beside braces with a minus, and the minus."""
    *before, last = text.split("{{-")
    *inside, after = "{{".join([*(part.rstrip() for part in before), last]).split("-}}")
    return "}}".join([*inside[:1], *(part.lstrip() for part in [*inside[1:], after])]) if inside else after


def _variable(path: str, variables: Mapping[str, Any], *, dumped: bool) -> str:
    name, *rest = _STEP.findall(path)
    if name == "env":
        raise NoText("a template that reads the environment")
    value = variables.get(name)
    for step in rest:
        # A missing part is empty, like an unknown variable.
        if isinstance(value, list):
            value = value[int(step)] if step.isdigit() and int(step) < len(value) else None
        else:
            value = value.get(step) if isinstance(value, Mapping) else None
    if value is None:
        return "null" if dumped and not rest and name in variables else ""
    if dumped:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return javascript_text(value).removesuffix("\n")


def parse_commas(text: str) -> list[str]:
    """The values of a list that is written with commas, some of them in quotes. Raises NoText."""
    values: list[str] = []
    at = 0
    while True:
        while at < len(text) and (text[at].isspace() or text[at] == ","):
            at += 1
        if at >= len(text):
            return values
        if text[at] == '"':
            value, at = _quoted(text, at + 1)
            while at < len(text) and text[at].isspace():
                at += 1
            if at < len(text) and text[at] != ",":
                raise NoText("a quoted value that no comma follows")
        else:
            end = text.find(",", at)
            end = len(text) if end < 0 else end
            value, at = text[at:end].strip(), end
        values.append(value)


def _quoted(text: str, at: int) -> tuple[str, int]:
    """(value, where it ends) of a quoted value that begins at ``at``; a quote in it is doubled or escaped."""
    out: list[str] = []
    while at < len(text):
        pair = text[at : at + 2]
        if pair in ('\\"', "\\\\", '""'):
            out.append(pair[1])
            at += 2
        elif text[at] == '"':
            return "".join(out), at + 1
        else:
            out.append(text[at])
            at += 1
    raise NoText("a quoted value that does not end")


def slug(text: str) -> str:
    """A short name for a case, from a description."""
    return re.sub(r"[^\w.-]+", "-", text.strip().lower())[:60].strip("-")
