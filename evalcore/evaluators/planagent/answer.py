"""An agent's answer, read from its Raw JSON: only what is scored, tolerant of every type that could stand there."""

from __future__ import annotations

import json
import math
import re
from itertools import accumulate
from typing import Any

import msgspec

__all__ = ["MAX_DEPTH", "Answer", "plain_text", "read_answer", "shortened"]

MAX_DEPTH = 256
"""JSON nested deeper is unparsable; far below any interpreter's limit, so that no row depends on the stack."""

# Everything but brackets; a string is one piece, an unclosed one up to the end, so that the scan stays linear.
_NO_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[^"\[\]{}]+', re.DOTALL)
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}


class _Raw(msgspec.Struct, gc=False):
    """The keys that are scored; the rest of the object is checked to be JSON and skipped."""

    assistantMessage: Any = None  # the agent's own key
    dataUIList: Any = None
    responseTimeSec: Any = None
    error: Any = None


class Answer(msgspec.Struct, gc=False):
    """What is scored of one answer.

    ``message`` is "" where it is no string, ``items`` empty where it is no list, ``values`` the ``uiValue`` objects
    among the items, ``seconds`` None where it is no finite number from 0 on, ``error`` whatever stands there.
    """

    message: str
    items: list[Any]
    values: list[dict[str, Any]]
    seconds: float | None
    error: Any

    @property
    def empty(self) -> bool:
        """Whether there is neither a message (white space is none) nor an item."""
        return not self.items and not self.message.strip()

    @property
    def forms(self) -> str:
        """The distinct ``formType`` texts of the items, sorted and joined by "+"."""
        values = self.values
        if not values:
            return ""
        if len(values) == 1:
            return form if type(form := values[0].get("formType")) is str else ""
        return "+".join(sorted({form for ui in values if type(form := ui.get("formType")) is str}))


_decode = msgspec.json.Decoder(_Raw).decode
# Integers as floats: Python refuses those of more than some thousand digits.
_lenient = json.JSONDecoder(parse_int=float).decode


def read_answer(text: str) -> Answer | None:
    """``text`` as an answer; None where it is no JSON object, or nested deeper than MAX_DEPTH.

    NaN, infinities and lone surrogates, which some writers of JSON let through, do not make it unparsable.
    """
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        return None
    try:
        raw = _decode(text)
    except msgspec.DecodeError:
        found = _decode_lenient(text)
        if found is None:
            return None
        raw = found
    message, items = raw.assistantMessage, raw.dataUIList
    if type(items) is not list:
        items = []
    return Answer(
        message if type(message) is str else "",
        items,
        [ui for item in items if type(item) is dict and type(ui := item.get("uiValue")) is dict],
        _seconds(raw.responseTimeSec),
        raw.error,
    )


def _seconds(value: Any) -> float | None:
    """Seconds as a number; a string, boolean, negative, NaN or infinite value is none."""
    if type(value) is float:
        return value if 0 <= value < math.inf else None
    # A larger one may be beyond all floats.
    if type(value) is int and 0 <= value < 1 << 1000:
        return float(value)
    return None


def _decode_lenient(text: str) -> _Raw | None:
    """Read what the strict decoder refuses. Numbers beyond its range become floats."""
    try:
        found = _lenient(text)
    except ValueError:
        return None
    if type(found) is not dict:
        return None
    return _Raw(*(found.get(key) for key in _Raw.__struct_fields__))


def _depth(text: str) -> int:
    """How deep brackets are nested outside strings; only for JSON with very many of them."""
    return max(accumulate(_STEP[bracket] for bracket in _NO_BRACKETS.sub("", text)), default=0)


def plain_text(value: Any) -> str:
    """``value`` of JSON as text that UTF-8 can carry: a string as it is, anything else as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()


def shortened(text: str, limit: int) -> str:
    """``text`` with its white space collapsed, cut to ``limit`` characters."""
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= limit else one_line[: limit - 1] + "…"
