"""A sweep's place in the ledger: who drives it, and what is told again where the ledger lost it."""

from __future__ import annotations

from itertools import islice
from typing import Literal

from evalq.evalcore.errors import WireError
from evalq.producer.sweeps.decided_cases import Stops
from evalq.producer.sweeps.identity import prompts_digest
from evalq.producer.sweeps.sweep import Sweep
from evalq.workers.ledger.sweep_model import FolderCounts, SweepLook
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.processes.identity import host
from evalq.workers.recovery.unattended import UnattendedSweeps

__all__ = ["SweepRegistration"]

OFFER_STEP = 200
UNATTENDED_SECONDS = 5.0
"""How long calls go on without a producer where it is to stop decided cases."""


class SweepRegistration:
    """What this process has told the ledger of ``sweep`` as its driver, and tells it again where that was lost.

    ``seen`` is the last look at it; ``offered`` says whether its prompts were given since it was told of the last time,
    ``taken_over`` whether the ledger knew it as one that is driven in another folder.
    """

    def __init__(self, sweep: Sweep, calls: SweepLedger, stops: Stops) -> None:
        self._sweep = sweep
        self._calls = calls
        self._stops = stops
        self.offered = self.taken_over = False
        self.seen = SweepLook("open")
        self._living: set[str] = set()
        self._before = ""
        self.server = ""
        """The options that name the server to other commands."""

    def establish(self, how: Literal["on", "keep", "anew"] = "on") -> bool:
        """Write the sweep into the ledger, new or again, with all that the folder has; ``how`` as in its `open`.

        Raises Driven while another process drives it, UsageError for another sweep of this id.
        """
        sweep, live, recorded = self._sweep, self._sweep.live, self._sweep.recorded
        # A rule that the producer applies must not run on without it.
        alone = UNATTENDED_SECONDS if live.stop else 0.0
        place = f"{host()}:{sweep.folder.path.absolute()}"
        budgets = (live.max_calls, live.max_cost, alone)
        if how == "on" and (before := self._calls.look(sweep.run)) is not None:
            self.taken_over |= before.place not in ("", place)
        sums = (recorded.ended, recorded.paid, recorded.spending.total, recorded.lost)
        answered = (recorded.spending.told, recorded.spending.untold)
        known = FolderCounts(*sums, recorded.count - recorded.paid, recorded.tallies, recorded.under_way, *answered)
        if (last := sweep.last_driver.token()) != self._calls.token:
            self._before = last  # also for a server that comes back as it was under that one
        # Seen by this process itself: those that the folder knows of may be gone since.
        living = self._living if how == "keep" else ()
        self._calls.open(sweep.header, *budgets, known, before=self._before, place=place, how=how, living=living)
        sweep.last_driver.note(self._calls.token)
        # From here on workers leave its evaluation to this process.
        UnattendedSweeps(self._calls, self._calls.settings).take_back(sweep.run)
        self._calls.restore(sweep.run, recorded.calls())
        self._stops.tell()
        # A server that lost the sweep has lost its prompts, too.
        self.offered = False
        sweep.folder.note(state="calling", server=self.server or None)
        return True

    def offer(self) -> bool:
        """Give all prompts to the ledger. Raises WireError for those of another sweep."""
        run, number = self._sweep.run, 0
        if prompts_digest(self._sweep.prompts())[1] != self._sweep.header.asked["prompts"]:
            raise WireError(f"{self._sweep.folder.path}: its prompts are not those it was begun with; start it anew")
        prompts = self._sweep.prompts()
        while block := list(islice(prompts, OFFER_STEP)):
            self._calls.offer(run, block, number)
            number += len(block)
        self.offered = True
        return True

    def look(self) -> SweepLook | None:
        """How the sweep stands; None where the ledger had lost some of it, and is told again."""
        recorded = self._sweep.recorded
        look = self._calls.look(self._sweep.run, attending=True, free=recorded.count - recorded.paid)
        if look is None or self._has_lost(look):
            self.establish("keep")  # the server lost the sweep or a part of it, or came back with an older state
            return None
        self.seen = look
        # Those who are still to tell an unsettled server what they have would be unknown to the next one, too.
        self._living = self._living.union(look.living) if look.unsettled else set(look.living)
        recorded.note_begun(look.started, look.tallies, look.under_way)
        return look

    def _has_lost(self, look: SweepLook) -> bool:
        """Whether the ledger has forgotten what the folder has, or that it was told so."""
        # What waits in the ledger is counted there, and is not in the folder yet.
        if look.known - look.waiting < self._sweep.recorded.count or look.halted < len(self._stops.halted):
            return True
        return look.generation != self._calls.generation(self._sweep.run)
