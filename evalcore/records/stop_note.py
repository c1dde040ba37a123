"""What a line of recorded outputs says of a sweep that stopped early: its key ``stop``.

``{"rule": "when-decided", "of": 100}``: the case was to be called a hundred times, or until its verdict, drawn from the
confidence sequence, was collapsed or diverse.
"""

from __future__ import annotations

from typing import Any

from evalq.evalcore.model.calls import WHEN_DECIDED
from evalq.evalcore.naming import found, kind_of, shorten

__all__ = ["stop_of"]

_MOST_CALLS = 2**53


def stop_of(record: dict[str, Any]) -> tuple[int, str]:
    """The calls planned, 0 where the line has no ``stop``; and what is wrong with it, by key."""
    if "stop" not in record:
        return 0, ""
    stop = record["stop"]
    if not isinstance(stop, dict):
        return 0, f"stop: {kind_of(stop)} where an object with rule and of is wanted"
    if stop.get("rule") != WHEN_DECIDED:
        what = repr(shorten(stop["rule"])) if isinstance(stop.get("rule"), str) else found(stop, "rule")
        return 0, f"stop.rule: {what} where {WHEN_DECIDED!r} is wanted"
    calls = stop.get("of")
    if type(calls) is not int or not 1 <= calls < _MOST_CALLS:
        return 0, f"stop.of: {found(stop, 'of')} where a whole number from 1 is wanted"
    unknown = [key for key in stop if key not in ("rule", "of")]
    return (0, f"stop.{shorten(unknown[0])}: no such key; there are rule and of") if unknown else (calls, "")
