"""The life of a run in one table: its states, and which may follow which, in the run folder and in the ledger.

The run folder and the ledger's scripts change a state only by this table; tests compare both with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Literal, get_args

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
    "following",  # its log is read as it grows
    "done",
    "cancelled",  # for good
]

LEDGER_STATES: frozenset[RunState] = frozenset({"open", "paused", "spent", "failed", "done", "cancelled"})
"""The states that a ledger knows; the others belong to the process that drives the run, and are in its folder."""

DRIVEN: frozenset[RunState] = frozenset({"open", "calling", "called", "retrying", "following"})
"""States in which a process drives the run, or was killed before it could write another state."""

LEFT_ALONE: frozenset[RunState] = frozenset({"paused", "failed", "stopped"})
"""States in which a run stopped for a reason that a waiting command must report."""

ENDED: frozenset[RunState] = frozenset({"done", "cancelled", "failed"})
"""States in which a run may be removed."""

CALLS_OVER: frozenset[RunState] = frozenset({"done", "spent"})
"""States in which a live sweep makes no more calls, and its outputs are, or can be, evaluated."""

_RESUMABLE: frozenset[RunState] = frozenset({"open", "calling", "retrying", "cancelled"})
_HALTED: frozenset[RunState] = frozenset({"interrupted", "paused", "stopped", "failed", "cancelled"})

MOVES: Mapping[RunState, frozenset[RunState]] = {
    "open": _HALTED | {"done", "detached", "spent"},
    "calling": _HALTED | {"called", "detached", "spent"},
    "called": _HALTED | {"open", "calling"},
    "detached": _RESUMABLE | {"called", "paused", "failed", "done"},
    "interrupted": _RESUMABLE,
    "paused": _RESUMABLE,
    "stopped": _RESUMABLE | {"paused", "following"},
    "spent": _RESUMABLE | {"called", "done"},
    "failed": _RESUMABLE,
    "retrying": _HALTED | {"open", "calling"},
    "following": frozenset({"stopped", "cancelled"}),
    "done": frozenset({"retrying", "open"}),  # in the ledger a retry opens the run again
    "cancelled": frozenset(),
}
"""{state: states that may follow it}; a state may always be written again."""


def may_follow(state: RunState, before: RunState) -> bool:
    """Whether a run may go from state ``before`` to ``state``."""
    return state == before or state in MOVES[before]


def leading_to(state: RunState) -> list[RunState]:
    """The other states of a ledger from which a run may go to ``state``."""
    return sorted(before for before in LEDGER_STATES if state in MOVES[before])


MEANING: Mapping[RunState, str] = {
    "open": "its chunks are being computed; where no process drives it, that one was killed",
    "calling": "its live calls are being made; where no process drives it, that one was killed",
    "called": "its live calls are over, and their outputs are about to be evaluated",
    "detached": "left to the fleet by --detach",
    "interrupted": "ended by Ctrl-C or SIGTERM",
    "paused": "stopped by evalq pause",
    "stopped": "its command ended with an error",
    "spent": "its budget of calls is used up",
    "failed": "it cannot be computed as it is: an input changed, answers diverged, or a target refused",
    "retrying": "what has no result is about to be tried again",
    "following": "its log is read as it grows",
    "done": "it has its report",
    "cancelled": "ended for good by evalq cancel",
}
"""{state: its meaning for a run}."""

_RESUME = "resume it with: evalq resume {run}"
NEXT: Mapping[RunState, str] = {
    "open": _RESUME,
    "calling": _RESUME,
    "called": _RESUME,
    "detached": "wait for its report with: evalq watch {run}",
    "interrupted": _RESUME,
    "paused": _RESUME,
    "stopped": _RESUME,
    "spent": _RESUME,
    "failed": _RESUME,
    "retrying": _RESUME,
    "following": "resume it with the command that began it",
    "done": "see it with: evalq report {run}",
    "cancelled": "start another; remove this one, and free its --once key, with: evalq prune {run}",
}
"""{state: what its user can do next, if no process drives the run}; ``{run}`` is its folder or id."""


def next_step(state: RunState, run: PurePath | str) -> str:
    """What the user of ``run`` can do next, as the end of a sentence."""
    return NEXT[state].format(run=run)


# Check this at import: a state that is missing in a table would otherwise fail only when a run gets there.
for _table in (MOVES, MEANING, NEXT):
    assert _table.keys() == set(get_args(RunState)), "each state has its line in every table"
