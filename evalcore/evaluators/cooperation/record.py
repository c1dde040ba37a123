"""An event as the metrics read it, and the numbers it may hold."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

__all__ = ["LARGEST", "Event", "Int64", "Number", "integral", "number"]

LARGEST = 1e290
"""A resource beyond this counts as infinite: sums of such numbers could not be written as a finite one."""
_MOST_DIGITS = 300
_LEAST_TURN, _MOST_TURN = -(1 << 63), (1 << 63) - 1

# What the decoder of well-formed lines lets in: all that is surely a turn or a resource, as it is written.
Int64 = Annotated[int, Meta(ge=_LEAST_TURN, le=_MOST_TURN)]
_Finite = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Number = Int64 | _Finite | Annotated[str, Meta(pattern=r"^-?[0-9]{1,15}(\.[0-9]{1,15})?\Z")]
if TYPE_CHECKING:  # no event is handed out whose turn is not yet an int
    Turn = int
else:
    Turn = Int64 | float | Annotated[str, Meta(pattern=r"^-?[0-9]{1,15}\Z")]

_NUMERIC = re.compile(r"\s*([+-]?[0-9]+)\s*|\s*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")


class Event(msgspec.Struct, gc=False):
    """The keys of a log line that any rule reads; every other key is ignored.

    A resource may still be a short decimal string, which `number` turns into its number.
    """

    turn: Turn
    agent: str
    decision: str | None = None
    resources: dict[str, Number] | None = None
    dry_run: bool | None = None


def number(text: str) -> int | float | None:
    """The number a decimal string is, an int where it is written as one; None where it is no number.

    White space around it is allowed, underscores and words (nan, inf) are not. The float of a huge exponent
    is infinite; an int too long for a resource comes back as a float.
    """
    match = _NUMERIC.fullmatch(text)
    if match is None:
        return None
    value = float(text)
    short = match[1] is not None and len(match[1]) <= _MOST_DIGITS
    return int(text) if short and abs(value) <= LARGEST else value


def integral(value: float | str) -> int | None:
    """The turn that ``value`` is (2.0, "2" and "2.0" are turn 2); None where it is no integer of 64 bits."""
    known = number(value) if isinstance(value, str) else value
    if known is None or not _LEAST_TURN <= known <= _MOST_TURN or known != int(known):
        return None
    return int(known)
