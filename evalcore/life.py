"""The life of a run in one table: its states, and which may follow which, in the run folder and in the ledger.

Nothing writes a state any other way: what the folder notes and what the ledger's scripts do are held against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

__all__ = ["LEDGER_STATES", "MOVES", "RunState", "may_follow"]

RunState = Literal[
    "open",  # its chunks are being computed
    "calling",  # its live calls are being made
    "called",  # its live calls are over, and their outputs are to be evaluated
    "detached",  # left to the fleet
    "interrupted",  # Ctrl-C
    "paused",  # by `evalq pause`
    "stopped",  # ended by an error
    "spent",  # its budget of calls is used up
    "failed",  # it cannot be computed as it is
    "retrying",  # dead records or failed calls are tried again
    "done",
    "cancelled",  # for good
]

LEDGER_STATES: frozenset[RunState] = frozenset({"open", "paused", "spent", "failed", "done", "cancelled"})
"""What a ledger knows of: the rest is the business of whoever drives the run, and stands in its folder."""

_RESUMABLE: frozenset[RunState] = frozenset({"open", "calling", "retrying", "cancelled"})

MOVES: Mapping[RunState, frozenset[RunState]] = {
    "open": frozenset({"done", "detached", "interrupted", "paused", "spent", "stopped", "failed", "cancelled"}),
    "calling": frozenset({"called", "detached", "interrupted", "paused", "spent", "stopped", "failed", "cancelled"}),
    "called": frozenset({"open", "stopped", "interrupted", "paused", "failed", "cancelled"}),
    "detached": _RESUMABLE | {"called", "paused", "failed", "done"},
    "interrupted": _RESUMABLE,
    "paused": _RESUMABLE,
    "stopped": _RESUMABLE,
    "spent": _RESUMABLE | {"called", "done"},
    "failed": _RESUMABLE,
    "retrying": frozenset({"open", "calling", "stopped", "interrupted", "paused", "failed", "cancelled"}),
    "done": frozenset({"retrying", "open"}),  # in the ledger a retry opens the run again
    "cancelled": frozenset(),
}
"""{state: states that may follow it}; a state may always be written again."""


def may_follow(state: RunState, before: RunState) -> bool:
    """Whether a run that is ``before`` may become ``state``."""
    return state == before or state in MOVES[before]


assert MOVES.keys() == set(get_args(RunState)), "each state has its line in the table"
