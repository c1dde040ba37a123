"""Spans of time in words."""

from __future__ import annotations

__all__ = ["spell"]


def spell(seconds: float) -> str:
    """A span as people say it: "45 s", "3 min 20 s", "2 h 5 min", "3 d 4 h"."""
    whole = round(seconds)
    for size, unit, part, smaller in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"
