"""How a run stands, as the ledger counts it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from evalq.evalcore.model.life import LEDGER_STATES

ENDED_STATES = tuple(sorted(LEDGER_STATES - {"open"}))
"""States in which nobody computes a run. The ledger lists its runs by them."""
REPORT_TRIES = 3
"""How often finalising a run is begun: one that takes its process down is left to whoever watches it."""


class Progress(msgspec.Struct, frozen=True):
    """A run's counters as the ledger has them: ``chunks`` and ``committed`` are counted there and then, ``planned`` is
    how many chunks the run was ``sealed`` with.
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
        """Every chunk of a sealed plan is committed."""
        # Compared with the sealed number, too: a server that lost part of the plan must not look complete by what is
        # left.
        return self.sealed and self.committed >= self.chunks == self.planned


_COUNTS = tuple(name for name in Progress.__struct_fields__ if name not in ("state", "reason", "sealed", "planned"))
KEPT = ("state", "reason", *(name for name in _COUNTS if name not in ("chunks", "committed")))
"""The facts that a run keeps under their names, which a look asks for: a field of `Progress` is one of them."""


class RunStatus(msgspec.Struct, frozen=True):
    """A run's progress and what may be wrong: chunks ``suspect`` of being lost {seq: reason}, and ``refused`` ones.

    ``detached``: it was left to the workers; ``unreported``: and is complete, and its report is not in the ledger yet.
    ``unserved``: at the last snapshot no living worker could compute it. ``trouble`` says which hosts failed at it, and
    why. ``driver`` is who drives it, or did until it fell silent, ``driver_silent`` seconds ago; empty for nobody.
    Where it is not ``keyed``, no worker can check a chunk.
    """

    progress: Progress
    suspect: dict[int, str]
    refused: dict[int, str]
    leases: int
    detached: bool = False
    unreported: bool = False
    unserved: bool = False
    trouble: tuple[str, ...] = ()
    driver: str = ""
    driver_silent: float = 0.0
    keyed: bool = True


def unreported(progress: Progress, facts: Mapping[bytes, bytes]) -> bool:
    """Whether a run that was left to the workers is complete and has no report yet."""
    # Tries are bounded: a report that takes workers down must not take down one after the other.
    left = facts[b"detached"] == b"1" and facts[b"reported"] != b"1" and int(facts.get(b"finals", b"0")) < REPORT_TRIES
    # A run with every chunk may still be "open": nobody has closed it since its last commit.
    return left and progress.complete and progress.state in ("open", "done")


def state_of(state: str) -> str:
    """The state of a run or sweep. Raises ValueError for one that no ledger knows of: nobody could wait for its end."""
    if state not in LEDGER_STATES:
        raise ValueError(f"its state is {state[:50]!r}")
    return state


def progress_of(meta: Mapping[bytes, bytes]) -> Progress:
    """A run's counters, from the facts that a look has found. Raises ValueError or KeyError for others."""
    seal = meta.get(b"sealed") or b"0"
    facts = {"state": state_of(meta[b"state"].decode()), "reason": meta.get(b"reason", b"").decode(errors="replace")}
    counts = {name: int(meta.get(name.encode(), b"0")) for name in _COUNTS}
    return msgspec.convert(facts | {"sealed": bool(meta.get(b"sealed")), "planned": int(seal)} | counts, Progress)
