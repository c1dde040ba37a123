"""How far a job is, as its driver tells whoever watches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from producer.fleet import Fleet

if TYPE_CHECKING:
    from workers.standing import Progress

__all__ = ["Standing", "Watcher"]


class Standing(msgspec.Struct, frozen=True):
    """How far a job is: records and bytes collected, bytes in all, and the ledger's counters and the fleet where
    there is one.

    ``note`` is more for a person, ``unit`` what is counted where that is not the job's records. ``trouble`` has a line
    for each host that failed at it.
    """

    records: int
    done_bytes: int
    total_bytes: int
    progress: Progress | None = None
    workers: int | None = None
    fleet: Fleet | None = None
    note: str = ""
    unit: str = ""
    trouble: tuple[str, ...] = ()


Watcher = Callable[[Standing], None]
