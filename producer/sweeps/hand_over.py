"""Leaving a sweep: to the processes that call, to whoever drives it next, or paused for a while."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from evalq.evalcore.errors import Driven
from evalq.producer.driving.waiting import Patience
from evalq.producer.sweeps.intake import IDLE_SECONDS, PAUSE_SECONDS, SweepIntake
from evalq.producer.sweeps.registration import SweepRegistration
from evalq.producer.sweeps.served import CallingProcesses
from evalq.producer.sweeps.sweep import Sweep
from evalq.workers.ledger.detached import Detached
from evalq.workers.ledger.scripts import server_seconds
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.recovery.unattended import UnattendedSweep, UnattendedSweeps

__all__ = ["SweepHandOver"]


class SweepHandOver:
    """The ways in which a driver leaves its sweep before the calls are over."""

    def __init__(
        self,
        sweep: Sweep,
        calls: SweepLedger,
        registration: SweepRegistration,
        intake: SweepIntake,
        served: CallingProcesses,
        patience: Patience,
    ) -> None:
        self._sweep = sweep
        self._calls = calls
        self._registration = registration
        self._intake = intake
        self._served = served
        self._patiently = patience

    def launch(self) -> None:
        """Give all prompts to the ledger, for processes that call to continue alone, and workers to evaluate."""
        self._patiently(self._registration.establish)
        self._patiently(self._registration.offer)
        self._patiently(self._leave)
        self._patiently(self._served.leaving)

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

    def strand(self) -> None:
        """Leave a sweep whose folder takes no more outputs: no more calls are handed out, and what was paid is counted.

        What a server of this command's own still has goes with it, so that a resume pays for it again.
        """
        if not self.stop_calls():
            return
        deadline = time.monotonic() + PAUSE_SECONDS
        while (look := self._calls.look(self._sweep.run)) is not None:
            if not look.busy or time.monotonic() > deadline:
                gone = 0 if self._registration.server else look.waiting
                with contextlib.suppress(OSError):  # the disk itself may be gone
                    self._sweep.recorded.note_stopped(look.started, look.tallies, look.under_way, gone)
                return
            time.sleep(IDLE_SECONDS)

    def pause(self, hurried: Callable[[], bool]) -> None:
        """Hand out no more calls, and keep what ends in the next moment, which is over once ``hurried`` says so."""
        if self.stop_calls():
            with contextlib.suppress(Driven):
                self._intake.drain(hurried)

    def _leave(self) -> bool:
        sweep, began = self._sweep, server_seconds(self._calls.client)
        header = sweep.evaluation()
        # What takes more than the outputs and the parameters has to be evaluated by whoever watches.
        if header is not None:
            facts = Detached(began, sweep.header.target, sweep.tags, sweep.folder.info().name)
            UnattendedSweeps(self._calls, self._calls.settings).leave(sweep.run, UnattendedSweep(header, facts))
        return True
