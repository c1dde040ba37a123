"""Reading a log line: the event in it, or its fault.

JSON is read as by Python's reader: the last value of a repeated key counts, a lone surrogate may be escaped, and
``NaN`` or ``1e400`` is allowed under a key that no rule reads.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

MAX_DEPTH = 256
"""The most levels of arrays and objects in a line. A parser's own limit would depend on its caller's stack."""
_LARGEST = 1e290
"""A resource beyond this counts as infinite: sums of such numbers may not be finite."""
_MOST_DIGITS = 300
_SHOWN = 40
"""Characters of a value that a reason shows."""
_LEAST_TURN, _MOST_TURN = -(1 << 63), (1 << 63) - 1

# The types for the decoder of well-formed lines: values that are certainly a turn or a resource.
_Int64 = Annotated[int, Meta(ge=_LEAST_TURN, le=_MOST_TURN)]
_Finite = Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST)]
_Number = _Int64 | _Finite | Annotated[str, Meta(pattern=r"^-?[0-9]{1,15}(\.[0-9]{1,15})?\Z")]
if TYPE_CHECKING:  # `read_line` returns only events whose turn is an int
    _Turn = int
else:
    _Turn = _Int64 | float | Annotated[str, Meta(pattern=r"^-?[0-9]{1,15}\Z")]

_NUMERIC = re.compile(r"\s*([+-]?[0-9]+)\s*|\s*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")


class Event(msgspec.Struct, gc=False):
    """The keys of a log line that any rule reads; every other key is ignored.

    A resource may still be a short decimal string, which `number` turns into its number.
    """

    turn: _Turn
    agent: str
    decision: str | None = None
    resources: dict[str, _Number] | None = None
    dry_run: bool | None = None


def number(text: str) -> int | float | None:
    """The number in a decimal string, an int if it is written as one; None if it is no number.

    White space around it is allowed, underscores and words (nan, inf) are not. The float of a huge exponent
    is infinite; an int too long for a resource becomes a float.
    """
    match = _NUMERIC.fullmatch(text)
    if match is None:
        return None
    value = float(text)
    short = match[1] is not None and len(match[1]) <= _MOST_DIGITS
    return int(text) if short and abs(value) <= _LARGEST else value


def _as_turn(value: float | str) -> int | None:
    """``value`` as a turn (2.0, "2" and "2.0" are turn 2); None if it is no integer of 64 bits."""
    known = number(value) if isinstance(value, str) else value
    if known is None or not _LEAST_TURN <= known <= _MOST_TURN or known != int(known):
        return None
    return int(known)


_DECODER = msgspec.json.Decoder(Event)
_MISSING = object()
# Possessive, with an optional last quote: an open string in a cut line must not be tried from each quote in it.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_BRACKETS = re.compile(rb"[\[{\]}]")
_STEP = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}


class BadLine(ValueError):
    """A faulty log line; the message is the reason for the user."""


class _WrittenNumber(str):
    """A JSON number as written: its value is computed only if a rule reads it."""

    __slots__ = ()


class _WrittenConstant(_WrittenNumber):
    """``NaN``, ``Infinity`` or ``-Infinity``, which Python writes although JSON does not have them."""

    __slots__ = ()


def read_line(line: bytes) -> Event:
    """The event in ``line``, as by `parse_line`, but in a fifth of the time for a well-formed line."""
    try:
        line.decode()  # the decoder does not check strings that it skips
        event = None if _too_deep(line) else _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        event = None
    return event if event is not None and type(event.turn) is int else parse_line(line)


def parse_line(line: bytes) -> Event:
    """The event in ``line``: the reference. Raises BadLine."""
    if _too_deep(line):
        raise BadLine(f"nested deeper than {MAX_DEPTH} levels")
    try:
        text = line.decode()
        row = json.loads(text, parse_int=_WrittenNumber, parse_float=_WrittenNumber, parse_constant=_WrittenConstant)
    except UnicodeDecodeError as error:
        raise BadLine(f"not UTF-8: byte 0x{line[error.start]:02x} at column {error.start + 1}") from None
    except json.JSONDecodeError as error:
        raise BadLine(f"bad JSON: {error.msg} at column {error.colno}") from None
    if not isinstance(row, dict):
        raise BadLine(f"not a JSON object but {_kind(row)}")
    decision, resources, dry_run = row.get("decision"), row.get("resources"), row.get("dry_run")
    return Event(
        turn=_turn(row.get("turn", _MISSING)),
        agent=_agent(row.get("agent", _MISSING)),
        # SPEC: a row with a null or missing decision counts. So does one whose decision is no text.
        decision=decision if _is_text(decision) else None,
        resources=_resources(resources) if isinstance(resources, dict) else None,
        dry_run=dry_run if isinstance(dry_run, bool) else None,
    )


def _too_deep(line: bytes) -> bool:
    """Whether brackets outside strings are nested deeper than MAX_DEPTH."""
    if len(line) <= 2 * MAX_DEPTH or line.count(b"[") + line.count(b"{") <= MAX_DEPTH:
        return False
    brackets = _BRACKETS.finditer(_STRING.sub(b"", line))
    return any(level > MAX_DEPTH for level in accumulate(_STEP[bracket[0]] for bracket in brackets))


def _turn(value: Any) -> int:
    if value is _MISSING:
        raise BadLine("turn is missing")
    # 2.0 is text here, like "2" (a number is a `_WrittenNumber`); true, null and lists are not (SPEC, section 2).
    turn = _as_turn(str(value)) if isinstance(value, str) and not isinstance(value, _WrittenConstant) else None
    if turn is None:
        raise BadLine(f"turn is no integer (of 64 bits) but {_kind(value)}")
    return turn


def _agent(value: Any) -> str:
    if value is _MISSING:
        raise BadLine("agent is missing")
    if not _is_text(value):
        raise BadLine(f"agent is no string but {_kind(value)}")
    try:
        # Agents are keys of the report, which is UTF-8.
        value.encode()
    except UnicodeEncodeError:
        raise BadLine("agent is no Unicode text: it holds half of a surrogate pair") from None
    return str(value)


def _resources(row: dict[str, Any]) -> dict[str, _Number]:
    return {name: _resource(name, value) for name, value in row.items()}


def _resource(name: str, value: Any) -> int | float:
    known = number(value) if isinstance(value, str) and not isinstance(value, _WrittenConstant) else None
    if known is None:
        raise BadLine(f"resource {_quoted(name)} is no finite number but {_kind(value)}")
    if abs(known) > _LARGEST:
        raise BadLine(f"resource {_quoted(name)} is infinite or too large to be summed: {value[:_SHOWN]}")
    return known


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, _WrittenNumber)


def _kind(value: Any) -> str:
    """``value`` in words, for a reason."""
    if isinstance(value, _WrittenNumber):
        return value[:_SHOWN]
    if isinstance(value, str):
        return f"the string {_quoted(value)}"
    if isinstance(value, dict):
        return "an object"
    return "an array" if isinstance(value, list) else json.dumps(value)


def _quoted(text: str) -> str:
    """``text`` cut short, in quotes; lone surrogates, which no report can carry, are escaped."""
    cut = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    return json.dumps(cut, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
