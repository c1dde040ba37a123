"""What a user asks of a live sweep, apart from the evaluator's own request."""

from __future__ import annotations

import msgspec

__all__ = ["SweepOptions"]


class SweepOptions(msgspec.Struct, frozen=True):
    """What a user asks of a live sweep; budgets of 0 are none."""

    target: str
    repeat: int = 1
    stop: str = ""
    max_calls: int = 0
    max_cost: float = 0.0
    cache: str = ""
