"""What one process made for one sweep: a sum that it reports again and again, so that no server can lose it."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from evalq.evalcore.model.spending import Spending

__all__ = ["EndedAttempts", "Tally"]


class EndedAttempts(NamedTuple):
    """Attempts of a call that ended, the outputs that came of them (0 or 1), and what they cost.

    ``untold``: it was answered, and what that cost is not known.
    """

    attempts: int
    outputs: int = 0
    cost: float = 0.0
    untold: bool = False


class Tally:
    """Attempts, outputs and cost so far, numbered by their changes: of two that were reported, the later counts.

    A ledger that adds up events counts some twice, when an answer is lost, and forgets others, when a replica that lags
    is promoted. A sum that its only writer always reports as a whole suffers from neither.
    """

    def __init__(self) -> None:
        # A name of its own: the numbers of a new sum begin at 1, and would be older than those of the sum before.
        self._name = secrets.token_hex(6)
        self._number = self._attempts = self._outputs = 0
        self._spending = Spending()
        self._telling: set[int] = set()
        self._lock = threading.Lock()

    def count(self, made: Mapping[int, EndedAttempts]) -> None:
        """Add what came of calls; what was counted and may not have been `told` since counts once."""
        with self._lock:
            # A commit that is tried again after a lost answer brings the same calls: they are in the sum already.
            for call in made.keys() - self._telling:
                self._attempts += made[call].attempts
                self._outputs += made[call].outputs
                self._spending.add(made[call].cost, untold=made[call].untold)
                self._telling.add(call)
                self._number += 1

    def told(self, calls: Iterable[int]) -> None:
        """These are in the ledger: when they are made again, that counts."""
        with self._lock:
            self._telling.difference_update(calls)

    def wire(self) -> str:
        """Its name and the sums; empty before anything was made."""
        with self._lock:
            # All digits (!r): the script takes differences of such sums, and what is rounded away would add up.
            sums = f"{self._attempts} {self._outputs} {self._spending.total!r}"
            return f"{self._name} {self._number} {sums}" if self._number else ""
