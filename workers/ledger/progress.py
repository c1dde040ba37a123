"""A run's progress, as the ledger counts it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from evalq.evalcore.model.life import LEDGER_STATES

ENDED_STATES = tuple(sorted(LEDGER_STATES - {"open"}))
"""States in which nobody computes a run. The ledger has a list of runs for each."""
REPORT_TRIES = 3
"""Attempts to finalise a run in the fleet; after that, a report that kills its process is left to `evalq watch`."""


class Progress(msgspec.Struct, frozen=True):
    """A run's counters in the ledger.

    ``chunks`` and ``committed`` are counted at each poll; ``planned`` is the number of chunks in the run's seal.
    """

    state: str
    reason: str = ""
    epoch: int = 0
    chunks: int = 0
    sealed: bool = False
    planned: int = 0
    committed: int = 0
    computed: int = 0
    records: int = 0
    dead: int = 0
    duplicates: int = 0
    divergent: int = 0
    skipped: int = 0
    stale: int = 0
    reconciled: int = 0
    failures: int = 0
    finals: int = 0

    @property
    def complete(self) -> bool:
        """Whether every chunk of a sealed plan is committed."""
        # Compared with the sealed number, too: a run whose server lost part of the plan must not look complete.
        return self.sealed and self.committed >= self.chunks == self.planned


_COUNTS = tuple(name for name in Progress.__struct_fields__ if name not in ("state", "reason", "sealed", "planned"))
KEPT = ("state", "reason", *(name for name in _COUNTS if name not in ("chunks", "committed")))
"""The facts that a poll asks for by name; each is a field of `Progress`."""


class RunStatus(msgspec.Struct, frozen=True):
    """A run's progress and its problems: chunks ``suspect`` of being lost {seq: reason}, and ``refused`` chunks.

    ``detached``: the run was left to the workers. ``unreported``: it is also complete, without a report in the ledger,
    which workers still try to make. ``reported``: the ledger has its report.
    ``unserved``: no living worker could compute it at the last snapshot. ``trouble`` says which hosts failed and why.
    ``driver`` drives the run, or did until ``driver_silent`` seconds ago; empty for none. If the run is not ``keyed``,
    no worker can check a chunk.
    """

    progress: Progress
    suspect: dict[int, str]
    refused: dict[int, str]
    leases: int
    detached: bool = False
    unreported: bool = False
    reported: bool = False
    unserved: bool = False
    trouble: tuple[str, ...] = ()
    driver: str = ""
    driver_silent: float = 0.0
    keyed: bool = True


def unreported(progress: Progress, facts: Mapping[bytes, bytes]) -> bool:
    """Whether a detached run is complete and has no report yet."""
    # Attempts are bounded: a report that kills workers must not kill one after the other.
    left = facts[b"detached"] == b"1" and facts[b"reported"] != b"1" and int(facts.get(b"finals", b"0")) < REPORT_TRIES
    # A complete run may still be "open": nobody has closed it since its last commit.
    return left and progress.complete and progress.state in ("open", "done")


def state_of(state: str) -> str:
    """Check the state of a run or sweep. Raises ValueError for an unknown one."""
    if state not in LEDGER_STATES:
        raise ValueError(f"the state is {state[:50]!r}")
    return state


def progress_of(meta: Mapping[bytes, bytes]) -> Progress:
    """A run's counters from the facts of a poll. Raises ValueError or KeyError for damaged ones."""
    seal = meta.get(b"sealed") or b"0"
    facts = {"state": state_of(meta[b"state"].decode()), "reason": meta.get(b"reason", b"").decode(errors="replace")}
    counts = {name: int(meta.get(name.encode(), b"0")) for name in _COUNTS}
    return msgspec.convert(facts | {"sealed": bool(meta.get(b"sealed")), "planned": int(seal)} | counts, Progress)
