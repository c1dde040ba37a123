"""What scripts answer, as types: who asks handles every answer, and mypy sees to that."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, get_args

__all__ = ["Claimed", "Committed", "Standing", "answer_of"]

Claimed = Literal["leased", "held", "committed", "closed", "stale", "other", "gone"]
"""Of a claim: the chunk is leased; or another process holds it, it is committed, its run is closed, the message is of a
former epoch, the run is for another code, or the ledger does not know it."""

Committed = Literal["committed", "duplicate", "divergent", "stale", "closed", "other", "gone"]
"""Of a commit: the answer is taken; or it is there already, another one is, the rest as in `Claimed`."""

Standing = Literal["open", "paused", "spent", "failed", "done", "cancelled", "gone"]
"""Of closing a run or sweep: the state that it is in then; "gone" for one that the ledger does not know."""


def answer_of(kind: Any, data: bytes) -> Any:
    """What a script said, as one of the literals of ``kind``. Raises ValueError for anything else."""
    text = data.decode("ascii", "replace")
    if text not in _answers(kind):
        # An unknown answer is refused and not guessed at: it comes from scripts of another version.
        raise ValueError(f"the ledger answers {text!r}, which no script of this code does")
    return text


@cache
def _answers(kind: Any) -> frozenset[str]:
    return frozenset(get_args(kind))
