"""Leaving a sweep: to the processes that call, to whoever drives it next, or paused for a while."""

from __future__ import annotations

import contextlib
import time

from evalq.evalcore.errors import Driven
from evalq.producer.driving.waiting import Patience
from evalq.producer.sweeps.intake import SweepIntake
from evalq.producer.sweeps.registration import SweepRegistration
from evalq.producer.sweeps.sweep import Sweep
from evalq.workers.ledger.detached import Detached
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.recovery.unattended import Left, UnattendedSweeps

__all__ = ["SweepHandOver"]

PAUSE_SECONDS = 3.0
"""How long an interrupted producer waits for calls in flight; what ends later waits in the ledger."""
IDLE_SECONDS = 0.05


class SweepHandOver:
    """The ways in which a driver leaves its sweep before the calls are over."""

    def __init__(
        self, sweep: Sweep, calls: SweepLedger, registration: SweepRegistration, intake: SweepIntake, patience: Patience
    ) -> None:
        self._sweep = sweep
        self._calls = calls
        self._registration = registration
        self._intake = intake
        self._patiently = patience

    def launch(self) -> None:
        """Give all prompts to the ledger, for processes that call to continue alone, and workers to evaluate."""
        self._patiently(self._registration.establish)
        self._patiently(self._registration.offer)
        self._patiently(self._leave)

    def release(self) -> None:
        """Let go of the sweep: whoever drives it next need not wait."""
        self._calls.hand_over(self._sweep.run)

    def stop_calls(self) -> bool:
        """Hand out no more calls; those in flight end, and stay in the ledger. Returns whether they were its own."""
        try:
            self._calls.close(self._sweep.run, "paused", "interrupted")
        except Driven:  # they are another's to pause
            return False
        return True

    def pause(self) -> None:
        """Hand out no more calls, and keep what ends in the next moment."""
        if not self.stop_calls():
            return
        with contextlib.suppress(Driven):
            deadline = time.monotonic() + PAUSE_SECONDS
            while time.monotonic() < deadline:
                look = self._calls.look(self._sweep.run)
                if look is None:
                    return
                self._sweep.recorded.note_begun(look.started, look.tallies)
                if not (look.busy or look.waiting):
                    return
                if not self._intake.take():
                    time.sleep(IDLE_SECONDS)

    def _leave(self) -> bool:
        sweep, (seconds, micros) = self._sweep, self._calls.client.time()
        header = sweep.evaluation()
        if header is not None:
            facts = Detached(seconds + micros / 1_000_000, sweep.header.target, sweep.tags)
            UnattendedSweeps(self._calls, self._calls.settings).leave(sweep.run, Left(header, facts))
        return True
