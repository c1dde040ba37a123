"""Driving a sweep: its prompts into the ledger, its outputs into the folder, until every call is recorded or halted."""

from __future__ import annotations

from evalq.evalcore.errors import Driven, StorageError
from evalq.evalcore.model.canonical import Json
from evalq.producer.driving.loop import drive
from evalq.producer.driving.waiting import Patience
from evalq.producer.monitor.progress import RunStatus, Watcher
from evalq.producer.sweeps.cache import Cache
from evalq.producer.sweeps.decided_cases import Stops
from evalq.producer.sweeps.ending import Ending
from evalq.producer.sweeps.hand_over import SweepHandOver
from evalq.producer.sweeps.intake import SweepIntake
from evalq.producer.sweeps.registration import SweepRegistration
from evalq.producer.sweeps.served import CallingProcesses, Notices
from evalq.producer.sweeps.sweep import Sweep
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.processes.identity import driver_token
from evalq.workers.settings import Settings

__all__ = ["SweepDriver"]


class SweepDriver:
    """One sweep over a ledger of calls, until they are over: a `Driver` for the loop.

    Where another process drives it, every step raises Driven and changes nothing.
    """

    idle_seconds = 0.05

    def __init__(
        self,
        sweep: Sweep,
        calls: SweepLedger,
        settings: Settings,
        patience: Patience,
        cache: Cache | None = None,
        token: str = "",
    ) -> None:
        """``token`` names the driver: this process's, unless told otherwise."""
        self._sweep = sweep
        self._patience = patience
        self._calls = calls = SweepLedger(calls.client, settings, token or driver_token())
        self._stops = Stops(sweep, calls)
        self._intake = SweepIntake(sweep, calls, self._stops, cache)
        self.notices = Notices()
        self._served = CallingProcesses(
            Heartbeats(calls.client), sweep.header, self.notices, priced=bool(sweep.live.max_cost)
        )
        self.registration = SweepRegistration(sweep, calls, self._stops)
        self._ending = Ending(sweep, calls, self._stops, self.registration, self._intake, self.notices)
        self.hand_over = SweepHandOver(sweep, calls, self.registration, self._intake, self._served, patience)

    def drive(self, watch: Watcher) -> dict[str, Json]:
        """Until the calls are over; returns how they ended, for run.json. A lost server is waited for.

        Raises Driven while another process drives it, UsageError for a target that no process knows or another sweep
        of this id, Incomplete for a spent quota, a wrong key or a sweep that was ended elsewhere, Paused,
        BrokerUnreachable when the server stays away, OSError where the folder cannot be written.
        """
        # Before the sweep is established, which tells the ledger of the decided cases.
        self._stops.recall()
        self._sweep.recorded.reserve()
        try:
            drive(self, self._patience, self._calls.settings.look_seconds, watch)
        except (OSError, StorageError):
            # Of its own files: what happens to a server's connection is waited for.
            self._patience.once(self.hand_over.strand)
            raise
        self._sweep.recorded.release()
        return self._facts()

    @property
    def standing(self) -> RunStatus:
        """How far the calls are."""
        recorded, total, seen = self._sweep.recorded, self._sweep.header.total, self.registration.seen
        notes = [f"{seen.busy} in flight"]
        notes += [f"{recorded.errors} errors"] if recorded.errors else []
        notes += [f"{len(self._stops.halted)} of {self._sweep.header.cases} cases decided"] if self._stops.there else []
        notes += [f"cost {seen.spent:.4g}"] if seen.spent else []
        return RunStatus(recorded.count, recorded.count, total, note=", ".join(notes), unit="calls")

    @property
    def in_flight(self) -> int:
        """Calls that had not ended when it was paused or cancelled, and the moment for that was over."""
        return self._intake.in_flight

    @property
    def finished(self) -> bool:
        """Whether the calls are over."""
        return bool(self._ending.over)

    def establish(self) -> bool:
        """Write the sweep into the ledger as its driver, new or again from the folder."""
        return self.registration.establish()

    def establish_again(self, driven: Driven) -> bool:
        """Write it there again for a server that fell behind, in the state that it has. Raises Driven."""
        return self.registration.establish("keep")

    def step(self) -> bool:
        """Take recorded outputs into the folder; False when there was none."""
        intake = self._intake
        taken = intake.take()
        if intake.several and not self.notices.knows("differ"):
            self.notices.add("changed")
        if intake.uncached:
            self.notices.news.append(intake.uncached)
            intake.uncached = ""
        return taken

    def look(self) -> bool:
        """One look, and what it asks for: the prompts, or to judge whether the calls are over."""
        look = self.registration.look()
        if look is None:
            return True
        if self._sweep.live.max_cost and self._sweep.recorded.spending.untold:
            self.notices.add("untold")
        # With a cache or earlier runs nothing is offered before they were asked: an offered call may be paid at once.
        known = self._intake.known and not self.registration.offered
        if look.state == "open" and look.left and (known or look.prompts < self._sweep.header.cases):
            config = self._served.config()
            if config is not None:
                if config and self._sweep.recorded.config not in ("", config):
                    self.notices.add("changed")
                if others := self._intake.waits_for(config):
                    self.notices.wait_for(f"{self._sweep.live.cache}: waiting, since {others}; nothing is paid twice")
                    return True
                if told := self._intake.take_known(config):
                    self.notices.news.append(told)
                self.registration.offer()
            return True
        self._ending.judge(look)
        if look.state == "open" and not (look.holders or self._ending.over):
            # Only then, since it reads what every process of the fleet tells of itself.
            self._served.config()  # nobody calls: it finds out why
        return True

    def conclude(self) -> bool:
        """Close the sweep in the ledger."""
        self._calls.close(self._sweep.run, "done")
        return True

    def _facts(self) -> dict[str, Json]:
        """How the calls ended."""
        recorded, look = self._sweep.recorded, self.registration.seen
        # The ledger may have lost what a process made that cannot be reached any more; what came of it is here. Sums of
        # cost differ in their last digits.
        short = look.spent < recorded.cost * (1 - 1e-9)
        facts: dict[str, Json] = {
            "target": self._sweep.header.target,
            "planned": self._sweep.header.total,
            "recorded": recorded.count,
            "errors": recorded.errors,
            "attempts": max(look.started, recorded.ended),
            "repaid": look.repaid,
            "lost": look.lost + recorded.gone,
            "cost": recorded.cost if short else look.spent,
            "ended": self._ending.over,
            "reason": look.reason,
        }
        return facts
