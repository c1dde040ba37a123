"""When two JSON values are the same."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["near", "same_json"]


def same_json(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: numbers by value, keys in any order; true is not 1."""
    # Walked with a list of its own: an answer may nest deeper than the interpreter's stack likes.
    pairs = [(one, other)]
    while pairs:
        left, right = pairs.pop()
        if isinstance(left, dict) and isinstance(right, dict):
            if left.keys() != right.keys():
                return False
            pairs += [(value, right[key]) for key, value in left.items()]
        elif isinstance(left, list) and isinstance(right, list):
            if len(left) != len(right):
                return False
            pairs += zip(left, right, strict=True)
        elif isinstance(left, bool) or isinstance(right, bool) or type(left) is dict or type(left) is list:
            if left is not right:
                return False
        elif left != right:
            return False
    return True


def near(value: float, wanted: float, tolerance: float, relative: float) -> bool:
    """Whether ``value`` is within ``tolerance`` of ``wanted``, or within ``relative`` times its size."""
    try:
        one, other = float(value), float(wanted)
    except OverflowError:
        return value == wanted
    bound = max(tolerance, relative * abs(other))
    # As decimals: 1.1 is within .1 of 1, though the floats next to them are not.
    return abs(one - other) <= bound + (4 * math.ulp(max(abs(one), abs(other))) if bound else 0.0)
