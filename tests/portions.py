"""How much of their work tests do: all of it, or a share of it by `make quick`.

Hypothesis' examples are scaled by tests/conftest.py; what stands here is for rounds, draws and sizes that a test counts
by itself, and for lists of parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

SHARE = 5
"""What part of its examples a test is tried on by `make quick`: one of so many."""

Value = TypeVar("Value")
_quick: list[bool] = []


def quicken() -> None:
    """From here on all is scaled: called before any test is imported."""
    _quick.append(True)


def portion(count: int, of: int = SHARE) -> int:
    """``count``, or by `make quick` one ``of`` so many."""
    return -(-count // of) if _quick else count


def some(values: Sequence[Value], of: int = SHARE) -> Sequence[Value]:
    """``values``, or by `make quick` one ``of`` so many, the first among them."""
    return values[::of] if _quick else values
