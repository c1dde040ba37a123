"""What the processes that call say of a sweep's target: who cannot call it and why, and which call takes long."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from evalq.producer.monitor.fleet import LONG_SECONDS
from evalq.producer.monitor.spans import spell
from evalq.workers.callers.choices import known_facts, unable
from evalq.workers.ledger.heartbeats import CallerFacts, Heartbeats
from evalq.workers.ledger.sweep_model import SweepHeader
from evalq.workers.servers.errors import SERVER_ERRORS

__all__ = ["Health"]

_AGAIN_SECONDS = 60.0


class Health:
    """Of one sweep, as its producer sees it: `news` are lines for a person, each told once a minute at most."""

    def __init__(self, heartbeats: Heartbeats, header: SweepHeader, *, look_seconds: float = 2.0) -> None:
        self._heartbeats = heartbeats
        self._header = header
        self._look_seconds = look_seconds
        # So that the first question is a look, whatever the clock says.
        self._looked = -look_seconds
        self._told: dict[str, float] = {}
        self._waiting = False

    def news(self) -> list[str]:
        """What there is to tell since the last look; nothing while the server is away."""
        now = time.monotonic()
        if now - self._looked < self._look_seconds:
            return []
        self._looked = now
        # Nobody waits for news: that the server is away is told by the steps that need it.
        with contextlib.suppress(*SERVER_ERRORS):
            callers = self._heartbeats.callers().values()
            lines = [*self._troubles(list(callers)), *self._long(list(callers))]
            fresh = [line for key, line in lines if now - self._told.get(key, -_AGAIN_SECONDS) >= _AGAIN_SECONDS]
            self._told |= {key: now for key, line in lines if line in fresh}
            return fresh
        return []

    def _troubles(self, callers: list[CallerFacts]) -> Iterator[tuple[str, str]]:
        target = self._header.target
        reasons = unable(callers, self._header.code, target)
        if reasons:
            self._waiting = True
            yield "nobody", f"waiting: no process can call {target!r} now: {reasons}; calls are held, none is lost"
            return
        if self._waiting:
            self._waiting = False
            # Or the next time would go untold for a minute.
            self._told.pop("nobody", None)
            yield f"again {time.monotonic()}", f"{target!r} is called again"
        for caller in callers:
            known = known_facts(caller.targets, target)
            if known is not None and known.trouble:
                told = f"warning: {caller.host} does not call {target!r} now: {known.trouble}"
                yield f"{caller.host} {caller.pid}", told

    def _long(self, callers: list[CallerFacts]) -> Iterator[tuple[str, str]]:
        found = [
            (*caller.oldest[self._header.run], caller.host) for caller in callers if self._header.run in caller.oldest
        ]
        case, seconds, host = max(found, key=lambda known: known[1], default=("", 0.0, ""))
        if seconds >= LONG_SECONDS:
            yield "long", f"oldest call in flight: case {case}, for {spell(seconds)}, on {host}"
