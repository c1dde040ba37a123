"""Who calls the target of a sweep, and under which settings."""

from __future__ import annotations

import time

from evalq.evalcore.errors import UsageError
from evalq.producer.monitor.began import began
from evalq.workers.ledger.heartbeats import CallerFacts, Heartbeats
from evalq.workers.ledger.sweep_model import SweepHeader

__all__ = ["Served"]

PATIENT_SECONDS = 3.0
"""So long from the beginning of a command, or from when the last one left, nobody need call."""


class Served:
    """The processes that call for one sweep. ``priced``: its target needs a price."""

    def __init__(self, register: Heartbeats, header: SweepHeader, *, priced: bool) -> None:
        self._register = register
        self._header = header
        self._priced = priced
        self._alone: float | None = began()
        self.warned: set[str] = set()
        """What a user has to be told: "nobody" calls, or their settings "differ"."""

    def leaving(self) -> bool:
        """Whether nobody can call it now, which is to be told at once to somebody who leaves it to the fleet."""
        alone = not any(self._header.target in caller.targets for caller in self._callers())
        self.warned |= {"nobody"} if alone else set()
        return alone

    def _callers(self) -> list[CallerFacts]:
        return [one for one in self._register.callers().values() if one.code == self._header.code]

    def config(self) -> str | None:
        """The digest of the target's settings, from who can call it; empty where they differ, None while nobody can.

        Raises UsageError where processes that call do not know the target, or have no price that is needed.
        """
        target = self._header.target
        callers = self._callers()
        able = [caller for caller in callers if target in caller.targets]
        if callers and not able:
            known = sorted({name for caller in callers for name in caller.targets})
            raise UsageError(f"no process that calls knows a target {target!r} (known: {', '.join(known)})")
        unpriced = [caller for caller in able if caller.targets[target].price is None]
        if self._priced and unpriced:
            raise UsageError(f"--max-cost: target {target!r} has no price in the targets file of {unpriced[0].host}")
        if not able:
            now = time.monotonic()
            self._alone = self._alone or now
            if now - self._alone >= PATIENT_SECONDS:
                self.warned.add("nobody")
            return None
        self._alone = None
        configs = {caller.targets[target].config for caller in able}
        if len(configs) > 1:
            self.warned.add("differ")
            return ""
        return configs.pop()
