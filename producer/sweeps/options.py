"""What a user asks of a live sweep, apart from the evaluator's own request."""

from __future__ import annotations

import msgspec

__all__ = ["SweepOptions"]


class SweepOptions(msgspec.Struct, frozen=True):
    """What a user asks of a live sweep; budgets of 0 are none.

    ``reuse`` names folders of runs whose outputs are taken where they are of the same case, prompt, repeat and
    settings of the target. A sweep that ``extends`` a run takes all that this one recorded, failures too, and calls
    only a target whose settings have the digest ``config`` that they had then.
    """

    target: str
    repeat: int = 1
    stop: str = ""
    max_calls: int = 0
    max_cost: float = 0.0
    cache: str = ""
    reuse: tuple[str, ...] = ()
    extends: str = ""
    config: str = ""
