"""A sweep's place in the ledger: who drives it, and what is told again where the ledger lost it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from itertools import islice
from typing import Literal

from evalq.evalcore.errors import AlreadyRunning, Cancelled, Incomplete, Paused, StorageError, WireError
from evalq.evalcore.model.canonical import Json
from evalq.producer.driving.loop import drive
from evalq.producer.driving.retries import ServerRetry
from evalq.producer.monitor.progress import RunStatus, Watcher
from evalq.producer.sweep.callers import CallingProcesses, Warnings
from evalq.producer.sweep.head import prompts_digest
from evalq.producer.sweep.intake import IDLE_SECONDS, PAUSE_SECONDS, EarlyStopping, SweepIntake
from evalq.producer.sweep.reuse import Cache
from evalq.producer.sweep.sweep import Sweep
from evalq.workers.ledger.detached import Detached
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.scripts import server_seconds
from evalq.workers.ledger.sweep_model import FolderCounts, SweepStatus
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.processes.identity import driver_token, host
from evalq.workers.recovery.unattended import UnattendedSweep, UnattendedSweeps
from evalq.workers.settings import Settings

__all__ = ["SweepDriver"]

OFFER_STEP = 200
UNATTENDED_SECONDS = 5.0
"""How long calls go on without a producer where it is to stop decided cases."""


class SweepRegistration:
    """What this process has told the ledger of ``sweep`` as its driver, and tells it again where that was lost.

    ``seen`` is the last look at it; ``offered`` says whether its prompts were given since it was told of the last time,
    ``taken_over`` whether the ledger knew it as one that is driven in another folder.
    """

    def __init__(self, sweep: Sweep, calls: SweepLedger, stops: EarlyStopping) -> None:
        self._sweep = sweep
        self._calls = calls
        self._stops = stops
        self.offered = self.taken_over = False
        self.seen = SweepStatus("open")
        self._living: set[str] = set()
        self._before = ""
        self.server = ""
        """The options that name the server to other commands."""

    def establish(self, how: Literal["on", "keep", "anew"] = "on") -> bool:
        """Write the sweep into the ledger, new or again, with all that the folder has; ``how`` as in its `open`.

        Raises AlreadyRunning while another process drives it, UsageError for another sweep of this id.
        """
        sweep, live, recorded = self._sweep, self._sweep.live, self._sweep.recorded
        # A rule that the producer applies must not run on without it.
        alone = UNATTENDED_SECONDS if live.stop else 0.0
        place = f"{host()}:{sweep.folder.path.absolute()}"
        budgets = (live.max_calls, live.max_cost, alone)
        if how == "on" and (before := self._calls.poll(sweep.run)) is not None:
            self.taken_over |= before.folder not in ("", place)
        sums = (recorded.ended, recorded.paid, recorded.spending.total, recorded.lost)
        answered = (recorded.spending.told, recorded.spending.untold)
        known = FolderCounts(*sums, recorded.count - recorded.paid, recorded.tallies, recorded.under_way, *answered)
        if (last := sweep.last_driver.token()) != self._calls.token:
            self._before = last  # also for a server that comes back as it was under that one
        # Seen by this process itself: those that the folder knows of may be gone since.
        living = self._living if how == "keep" else ()
        self._calls.open(sweep.header, *budgets, known, before=self._before, folder=place, how=how, living=living)
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

    def look(self) -> SweepStatus | None:
        """How the sweep stands; None where the ledger had lost some of it, and is told again."""
        recorded = self._sweep.recorded
        look = self._calls.poll(self._sweep.run, attending=True, free=recorded.count - recorded.paid)
        if look is None or self._has_lost(look):
            self.establish("keep")  # the server lost the sweep or a part of it, or came back with an older state
            return None
        self.seen = look
        # Those who are still to tell an unsettled server what they have would be unknown to the next one, too.
        self._living = self._living.union(look.living) if look.unsettled else set(look.living)
        recorded.note_begun(look.started, look.tallies, look.under_way)
        return look

    def _has_lost(self, look: SweepStatus) -> bool:
        """Whether the ledger has forgotten what the folder has, or that it was told so."""
        # What waits in the ledger is counted there, and is not in the folder yet.
        if look.known - look.waiting < self._sweep.recorded.count or look.halted < len(self._stops.halted):
            return True
        return look.generation != self._calls.generation(self._sweep.run)


# Whether the calls of a sweep are over: for good, for now, or only as the ledger takes it.


class Ending:
    """Judges each look at a sweep; ``over`` says how its calls ended, once they have: "done", or "spent" its budget."""

    def __init__(
        self,
        sweep: Sweep,
        calls: SweepLedger,
        stops: EarlyStopping,
        registration: SweepRegistration,
        intake: SweepIntake,
        notices: Warnings,
    ) -> None:
        self._sweep = sweep
        self._calls = calls
        self._stops = stops
        self._registration = registration
        self._intake = intake
        self._notices = notices
        self.over = ""

    def judge(self, look: SweepStatus) -> None:
        """Note whether the calls are over, and have those made again that ledger or folder lost.

        Raises Paused and Cancelled for what was done elsewhere, Incomplete for a spent quota or a wrong key,
        AlreadyRunning where another producer has the outputs.
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

    def _end(self, look: SweepStatus) -> None:
        """The calls are over, unless ledger or folder lost some: those are made again."""
        missing = self._missing()
        if not missing:
            self.over = "done"
            return
        if self._may_repay(look, missing):
            self._calls.forget(self._sweep.run, missing)

    def _closed_elsewhere(self, look: SweepStatus) -> None:
        """The calls are done: by the fleet, by this folder's last driver, or by one elsewhere, who has the outputs."""
        missing = self._missing()
        if not missing:
            self.over = "done"
        elif self._elsewhere(missing):
            # That one evaluates them now, or has died before it could: whoever waits for its report finds out.
            raise AlreadyRunning(self._sweep.run, "another producer, which made its calls")
        elif self._may_repay(look, missing):  # its budget was larger than that of then, or failed calls are made again
            self._registration.establish("anew")
            self._calls.forget(self._sweep.run, missing)

    def _may_repay(self, look: SweepStatus, missing: list[int]) -> bool:
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


# Leaving a sweep: to the processes that call, to whoever drives it next, or paused for a while.


class SweepHandOver:
    """The ways in which a driver leaves its sweep before the calls are over."""

    def __init__(
        self,
        sweep: Sweep,
        calls: SweepLedger,
        registration: SweepRegistration,
        intake: SweepIntake,
        served: CallingProcesses,
        patience: ServerRetry,
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
        self._calls.release(self._sweep.run)

    def stop_calls(self) -> bool:
        """Hand out no more calls; those in flight end, and stay in the ledger. Returns whether they were its own."""
        try:
            self._calls.close(self._sweep.run, "paused", "interrupted")
        except AlreadyRunning:  # they are another's to pause
            return False
        return True

    def strand(self) -> None:
        """Leave a sweep whose folder takes no more outputs: no more calls are handed out, and what was paid is counted.

        What a server of this command's own still has goes with it, so that a resume pays for it again.
        """
        if not self.stop_calls():
            return
        deadline = time.monotonic() + PAUSE_SECONDS
        while (look := self._calls.poll(self._sweep.run)) is not None:
            if not look.busy or time.monotonic() > deadline:
                gone = 0 if self._registration.server else look.waiting
                with contextlib.suppress(OSError):  # the disk itself may be gone
                    self._sweep.recorded.note_stopped(look.started, look.tallies, look.under_way, gone)
                return
            time.sleep(IDLE_SECONDS)

    def pause(self, hurried: Callable[[], bool]) -> None:
        """Hand out no more calls, and keep what ends in the next moment, which is over once ``hurried`` says so."""
        if self.stop_calls():
            with contextlib.suppress(AlreadyRunning):
                self._intake.drain(hurried)

    def _leave(self) -> bool:
        sweep, began = self._sweep, server_seconds(self._calls.client)
        header = sweep.evaluation()
        # What takes more than the outputs and the parameters has to be evaluated by whoever watches.
        if header is not None:
            facts = Detached(began, sweep.header.target, sweep.tags, sweep.folder.info().name)
            UnattendedSweeps(self._calls, self._calls.settings).leave(sweep.run, UnattendedSweep(header, facts))
        return True


# Driving a sweep: its prompts into the ledger, its outputs into the folder, until every call is recorded or halted.


class SweepDriver:
    """One sweep over a ledger of calls, until they are over: a `Driver` for the loop.

    Where another process drives it, every step raises AlreadyRunning and changes nothing.
    """

    idle_seconds = 0.05

    def __init__(
        self,
        sweep: Sweep,
        calls: SweepLedger,
        settings: Settings,
        patience: ServerRetry,
        cache: Cache | None = None,
        token: str = "",
    ) -> None:
        """``token`` names the driver: this process's, unless told otherwise."""
        self._sweep = sweep
        self._patience = patience
        self._calls = calls = SweepLedger(calls.client, settings, token or driver_token())
        self._stops = EarlyStopping(sweep, calls)
        self._intake = SweepIntake(sweep, calls, self._stops, cache)
        self.notices = Warnings()
        self._served = CallingProcesses(
            Heartbeats(calls.client), sweep.header, self.notices, priced=bool(sweep.live.max_cost)
        )
        self.registration = SweepRegistration(sweep, calls, self._stops)
        self._ending = Ending(sweep, calls, self._stops, self.registration, self._intake, self.notices)
        self.hand_over = SweepHandOver(sweep, calls, self.registration, self._intake, self._served, patience)

    def drive(self, watch: Watcher) -> dict[str, Json]:
        """Until the calls are over; returns how they ended, for run.json. A lost server is waited for.

        Raises AlreadyRunning while another process drives it, UsageError for a target that no process knows or another
        sweep of this id, Incomplete for a spent quota, a wrong key or a sweep that was ended elsewhere, Paused,
        BrokerUnreachable when the server stays away, OSError where the folder cannot be written.
        """
        # Before the sweep is established, which tells the ledger of the decided cases.
        self._stops.recall()
        self._sweep.recorded.reserve()
        try:
            drive(self, self._patience, self._calls.settings.poll_seconds, watch)
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

    def establish_again(self, driven: AlreadyRunning) -> bool:
        """Write it there again for a server that fell behind, in the state that it has. Raises AlreadyRunning."""
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
