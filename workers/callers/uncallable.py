"""Sweeps that no living process can call: they end with hosts and reasons, and not for one process's trouble alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from evalq.workers.callers.choices import known_facts
from evalq.workers.callers.target_sessions import TargetSession
from evalq.workers.ledger.heartbeats import CallerFacts

__all__ = ["FAULT_SECONDS", "Hopeless", "unable"]

FAULT_SECONDS = 15.0
"""How long a sweep waits for a process that has the key, once one that has not was found: a sign of life and a half."""
_AGAIN_SECONDS = 2.0
_SHOWN_HOSTS = 5


class Hopeless:
    """What this process knows of its sweeps' targets. ``down_seconds``: how long one that does not answer is tried."""

    def __init__(self, down_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._down_seconds = down_seconds
        self._clock = clock
        self._since: dict[str, float] = {}

    def due(self, run: str, session: TargetSession) -> bool:
        """Whether a sweep has waited for its target, as this process sees it, for as long as it may; now and then."""
        if not session.trouble:
            self._since.pop(run, None)
            return False
        limit = FAULT_SECONDS if session.fault else self._down_seconds
        now = self._clock()
        if now - self._since.setdefault(run, now) < limit:
            return False
        # Due again after a pause, not at each round: being due asks for what every caller tells.
        self._since[run] = now - limit + _AGAIN_SECONDS
        return True

    def keep(self, runs: Iterable[str]) -> None:
        """Forget all sweeps but these."""
        known = set(runs)
        self._since = {run: at for run, at in self._since.items() if run in known}


def unable(callers: Iterable[CallerFacts], code: str, target: str) -> str:
    """Who cannot call a target, and why; "" where somebody can, or nobody knows it."""
    known = [(caller, known_facts(caller.targets, target)) for caller in callers if caller.code == code]
    facts = [(caller, found) for caller, found in known if found is not None]
    if not facts or not all(known.trouble for _, known in facts):
        return ""
    told = sorted({f"{caller.host}: {known.trouble}" for caller, known in facts})
    more = f"; and {len(told) - _SHOWN_HOSTS} more" if len(told) > _SHOWN_HOSTS else ""
    return "; ".join(told[:_SHOWN_HOSTS]) + more
