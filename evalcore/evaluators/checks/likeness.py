"""When two JSON values are the same."""

from __future__ import annotations

from decimal import Context, Decimal, Inexact, localcontext
from typing import Any

__all__ = ["Bounds", "exact", "same_json", "told"]

_DIGITS = 17
"""Significant digits with which every float is told from its neighbours."""
_ROOM = Context(prec=10_000, Emin=-1_000_000, Emax=1_000_000, traps=[Inexact])
"""Floats have 1,074 decimals at most, their products twice that, and whole numbers in a file some thousand digits."""


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
            # By identity, since True == 1 in Python; a dict or list here stands against another type, and differs.
            if left is not right:
                return False
        elif left != right:
            return False
    return True


def exact(value: float | Decimal) -> Decimal:
    """A number as it was written: 0.1 is a tenth, not the float next to it, and whole numbers keep every digit."""
    return Decimal(repr(value)) if type(value) is float else Decimal(value)


class Bounds:
    """The numbers within ``tolerance`` of ``wanted``, or within ``relative`` times its size, both bounds included.

    Everything is compared as it was written, in decimals. A number of more digits than a float has is also ``wanted``
    itself where that is the float nearest to it: a file's fractions were read as floats.
    """

    __slots__ = ("_fraction", "_high", "_low")

    def __init__(self, wanted: float, tolerance: float = 0.0, relative: float = 0.0) -> None:
        middle = exact(wanted)
        with localcontext(_ROOM):
            bound = max(exact(tolerance), exact(relative) * abs(middle))
            self._low, self._high = middle - bound, middle + bound
        self._fraction = wanted if type(wanted) is float else None

    def __contains__(self, value: float | Decimal) -> bool:
        """Whether ``value`` is one of them."""
        number = exact(value)
        if self._low <= number <= self._high:
            return True
        return float(number) == self._fraction and len(number.as_tuple().digits) > _DIGITS


def told(value: float | Decimal) -> str:
    """A number for people: as short as it can be without becoming another one."""
    number = exact(value)
    short = f"{float(number):.15g}"
    return short if Decimal(short) == number else str(number)
