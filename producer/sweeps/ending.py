"""Whether the calls of a sweep are over: for good, for now, or only as the ledger takes it."""

from __future__ import annotations

from evalq.evalcore.errors import Cancelled, Driven, Incomplete, Paused
from evalq.producer.sweeps.decided_cases import Stops
from evalq.producer.sweeps.intake import SweepIntake
from evalq.producer.sweeps.registration import SweepRegistration
from evalq.producer.sweeps.served import Notices
from evalq.producer.sweeps.sweep import Sweep
from evalq.workers.ledger.sweep_model import SweepLook
from evalq.workers.ledger.sweeps import SweepLedger

__all__ = ["Ending"]


class Ending:
    """Judges each look at a sweep; ``over`` says how its calls ended, once they have: "done", or "spent" its budget."""

    def __init__(
        self,
        sweep: Sweep,
        calls: SweepLedger,
        stops: Stops,
        registration: SweepRegistration,
        intake: SweepIntake,
        notices: Notices,
    ) -> None:
        self._sweep = sweep
        self._calls = calls
        self._stops = stops
        self._registration = registration
        self._intake = intake
        self._notices = notices
        self.over = ""

    def judge(self, look: SweepLook) -> None:
        """Note whether the calls are over, and have those made again that ledger or folder lost.

        Raises Paused and Cancelled for what was done elsewhere, Incomplete for a spent quota or a wrong key, Driven
        where another producer has the outputs.
        """
        run, quiet = self._sweep.run, not (look.busy or look.waiting or look.unsettled)
        if look.state == "paused":
            raise Paused(f"run {run} was paused")
        if look.state == "cancelled":
            # Now or never: nobody collects the outputs of a cancelled sweep later.
            self._intake.drain()
            raise Cancelled(f"run {run} was cancelled {look.reason}".rstrip())
        # Not before all is quiet: calls that are under way still bring outputs.
        if quiet and look.state == "failed":
            raise Incomplete(self._stopped(look.reason))
        if quiet and look.state == "done":
            self._closed_elsewhere(look)
        elif quiet and look.state == "spent":
            # Failures that the budget leaves no second try count as failures: without them the run would look well.
            self._sweep.recorded.put_back()
            self.over = "spent"
        elif quiet and not look.left:
            self._end(look)

    def _stopped(self, reason: str) -> str:
        recorded, total = self._sweep.recorded.count, self._sweep.header.total
        return f"the calls stopped at {reason}; {recorded:,} of {total:,} outputs are recorded and kept"

    def _end(self, look: SweepLook) -> None:
        """The calls are over, unless ledger or folder lost some: those are made again."""
        missing = self._missing()
        if not missing:
            self.over = "done"
            return
        if self._may_repay(look, missing):
            self._calls.forget(self._sweep.run, missing)

    def _closed_elsewhere(self, look: SweepLook) -> None:
        """The calls are done: by the fleet, by this folder's last driver, or by one elsewhere, who has the outputs."""
        missing = self._missing()
        if not missing:
            self.over = "done"
        elif self._elsewhere(missing):
            # That one evaluates them now, or has died before it could: whoever waits for its report finds out.
            raise Driven(self._sweep.run, "another producer, which made its calls")
        elif self._may_repay(look, missing):  # its budget was larger than that of then, or failed calls are made again
            self._registration.establish("anew")
            self._calls.forget(self._sweep.run, missing)

    def _may_repay(self, look: SweepLook, missing: list[int]) -> bool:
        """Whether ``missing`` may be paid again now: where others have outputs of them, the user is told before."""
        paid = sum(int(tally.split()[2]) for tally in look.tallies.values())
        # More than is here was paid for elsewhere, as by a retry in the original.
        others = self._registration.taken_over and paid > self._sweep.recorded.paid + look.waiting
        if self._notices.knows("elsewhere") or not (others or self._elsewhere(missing)):
            return True
        self._notices.add("elsewhere")  # shown after this look; the next one goes on
        return False

    def _missing(self) -> list[int]:
        """Wanted calls that the folder does not have."""
        recorded, header = self._sweep.recorded, self._sweep.header
        wanted = (call for call in range(header.total) if call % header.cases not in self._stops.halted)
        return [call for call in wanted if not recorded.has(call)]

    def _elsewhere(self, missing: list[int]) -> bool:
        """Whether others recorded and collected some of them: this folder never had those."""
        never = [call for call in missing if not self._sweep.recorded.had(call)]
        return bool(self._calls.has(self._sweep.run, never))
