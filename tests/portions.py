"""How much of their work tests do: all of it by `make thorough`, a third by `make test`, a fifth by `make quick`.

Hypothesis' examples are scaled by tests/conftest.py. Lists of parameters go through `some`, which takes other ones each
time; rounds and draws that a test counts by itself go through `portion`, which only `make quick` makes fewer.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

import pytest

SHARES = {"quick": 5, "usual": 3, "thorough": 1}
"""By profile of hypothesis, what part of its examples a test is tried on: one of so many."""
SHARE = SHARES["quick"]
TURN = "TESTS_TURN"
"""The variable that says which part of its list each `some` takes: all processes of a session take the same."""

Value = TypeVar("Value")
_profile = "thorough"


def begin(profile: str) -> str:
    """Scale by ``profile`` from here on, before any test is imported; returns how to have the same again."""
    global _profile
    _profile = profile if profile in SHARES else "usual"
    turn = os.environ.setdefault(TURN, str(random.randrange(60)))
    if not turn.isdecimal():
        raise pytest.UsageError(f"{TURN} is {turn!r}: take a whole number, such as the last run printed, or unset it")
    return f"{_profile}: one example of {share()}; the same parameters again with {TURN}={turn}"


def share() -> int:
    """Of so many examples one is tried."""
    return SHARES[_profile]


def portion(count: int, of: int = SHARE) -> int:
    """``count``, or by `make quick` one ``of`` so many."""
    return -(-count // of) if _profile == "quick" else count


def some(values: Sequence[Value], of: int = SHARE) -> Sequence[Value]:
    """All ``values`` by `make thorough`, else one ``of`` so many, beginning with another one each time."""
    if _profile == "thorough" or not values:
        return values
    return values[int(os.environ[TURN]) % min(of, len(values)) :: of]
