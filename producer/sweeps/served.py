"""Who calls the target of a sweep, and under which settings."""

from __future__ import annotations

from evalq.evalcore.errors import UsageError
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.sweep_model import SweepHeader

__all__ = ["Served"]

PATIENT_LOOKS = 5
"""Looks without a process that calls before the user is told."""


class Served:
    """The processes that call for one sweep. ``priced``: its target needs a price."""

    def __init__(self, register: Heartbeats, header: SweepHeader, *, priced: bool) -> None:
        self._register = register
        self._header = header
        self._priced = priced
        self._alone = 0
        self.warned: set[str] = set()
        """What a user has to be told: "nobody" calls, or their settings "differ"."""

    def config(self) -> str | None:
        """The digest of the target's settings, from who can call it; empty where they differ, None while nobody can.

        Raises UsageError where processes that call do not know the target, or have no price that is needed.
        """
        target = self._header.target
        callers = [one for one in self._register.callers().values() if one.code == self._header.code]
        able = [caller for caller in callers if target in caller.targets]
        if callers and not able:
            known = sorted({name for caller in callers for name in caller.targets})
            raise UsageError(f"no process that calls knows a target {target!r} (known: {', '.join(known)})")
        unpriced = [caller for caller in able if caller.targets[target].price is None]
        if self._priced and unpriced:
            raise UsageError(f"--max-cost: target {target!r} has no price in the targets file of {unpriced[0].host}")
        if not able:
            self._alone += 1
            if self._alone == PATIENT_LOOKS:
                self.warned.add("nobody")
            return None
        self._alone = 0
        configs = {caller.targets[target].config for caller in able}
        if len(configs) > 1:
            self.warned.add("differ")
            return ""
        return configs.pop()
