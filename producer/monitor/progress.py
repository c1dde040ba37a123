"""How far a job is, as its driver tells whoever watches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from evalq.producer.monitor.fleet import Fleet

if TYPE_CHECKING:
    from evalq.workers.ledger.progress import Progress

__all__ = ["AGAIN_SECONDS", "RunStatus", "StatusSink", "Watcher"]

AGAIN_SECONDS = 30.0
"""How often what is waited for is said again."""


class RunStatus(msgspec.Struct, frozen=True):
    """How far a job is: records and bytes collected, bytes in all, and the ledger's counters and the fleet where
    there is one.

    ``workers`` serve it; ``others`` live too, of other code ({code: how many}); ``lacking``: none has its evaluator.
    ``note`` is more for a person, ``unit`` what is counted where that is not the job's records. ``trouble`` has a line
    for each host that failed at it.
    """

    records: int
    done_bytes: int
    total_bytes: int
    progress: Progress | None = None
    workers: int | None = None
    others: dict[str, int] = {}
    lacking: bool = False
    fleet: Fleet | None = None
    note: str = ""
    unit: str = ""
    trouble: tuple[str, ...] = ()


Watcher = Callable[[RunStatus], None]


class StatusSink(Protocol):
    """Whoever is told (`evalq.producer.monitor.reporter.Reporter`)."""

    def waiting(self, what: str, since: float, limit: float | None) -> None:
        """``what`` has lasted for ``since`` seconds, and is waited for up to ``limit`` in all; None: without end."""

    def recovered(self, what: str, after: float) -> None:
        """What was told is over, ``after`` seconds."""
