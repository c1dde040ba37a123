"""Taking outputs of a sweep: into the run folder first, then they may leave the ledger, and go to the cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from evalq.evalcore.model.calls import Output
from evalq.producer.sweeps.cache import Cache
from evalq.producer.sweeps.decided import Stops
from evalq.producer.sweeps.sweep import Sweep
from evalq.workers.ledger.sweeps import SweepLedger

__all__ = ["SweepIntake"]

COLLECT_STEP = 500
IDLE_SECONDS = 0.05
PAUSE_SECONDS = 3.0
"""How long the producer of a sweep that is paused or cancelled waits for calls in flight; what ends later waits in the
ledger, and of a cancelled sweep nobody collects it."""


class SweepIntake:
    """Records outputs of ``sweep`` from its ledger, and from a ``cache`` where there is one; ``stops`` hears of it."""

    def __init__(self, sweep: Sweep, calls: SweepLedger, stops: Stops, cache: Cache | None) -> None:
        self._sweep = sweep
        self._calls = calls
        self._stops = stops
        self.cache = cache
        self.in_flight = 0
        """Calls that had not ended when it was paused or cancelled, and the moment for that was over."""

    def take(self) -> bool:
        """Take recorded outputs; they leave the ledger once they are safe in the folder. False when there was none."""
        found = self._calls.collect(self._sweep.run, COLLECT_STEP)
        if not found.outputs:
            return False
        fresh = self._keep(found.outputs)
        self._calls.trim(self._sweep.run, found)
        if self.cache is not None:
            self.cache.keep(fresh)
        return True

    def drain(self, hurried: Callable[[], bool] = bool) -> None:
        """Keep what ends in the next moment of calls that are handed out no more; less of it where ``hurried``."""
        deadline = time.monotonic() + PAUSE_SECONDS
        while (look := self._calls.look(self._sweep.run)) is not None:
            self._sweep.recorded.note_begun(look.started, look.tallies, look.under_way)
            self.in_flight = look.busy
            if not (look.busy or look.waiting):
                return
            if self.take():
                continue  # what is recorded is kept, however much it is: no more of it comes than is in flight
            if hurried() or time.monotonic() > deadline:
                return
            time.sleep(IDLE_SECONDS)

    def take_from_cache(self, config: str) -> None:
        """Record what the cache has of a target under ``config``, its settings' digest, before anything is called."""
        if self.cache is None or not config:
            return
        header, fresh = self._sweep.header, []
        for number, prompt in enumerate(self._sweep.prompts()):
            wanted = [r for r in range(header.repeats) if not self._sweep.recorded.has(r * header.cases + number)]
            found = self.cache.find(header.target, config, prompt, wanted)
            fresh += [msgspec.structs.replace(o, call=r * header.cases + number) for r, o in sorted(found.items())]
        self._keep(fresh, cached=True)
        # The folder has them by now: counted the other way round, a crash in between would have them paid for.
        self._calls.restore(self._sweep.run, [output.call for output in fresh])

    def _keep(self, outputs: Sequence[Output], *, cached: bool = False) -> list[Output]:
        header = self._sweep.header
        mine = [
            o
            for o in outputs
            if o.call < header.total and (o.repeat, o.target) == (o.call // header.cases, header.target)
        ]
        fresh = self._sweep.recorded.add(mine, cached=cached)
        self._stops.add(fresh)
        return fresh
