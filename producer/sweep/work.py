"""A sweep as a driver's work: a piece is a call; it is finished when each output is recorded or its case halted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from evalq.evalcore.errors import AlreadyRunning, Incomplete, StorageError, WireError
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.markdown import plural
from evalq.producer.driving.driver import Acquire, Closing, refuse_halted
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.monitor.progress import ShownProgress
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
from evalq.workers.processes.identity import host
from evalq.workers.recovery.unattended import UnattendedSweep, UnattendedSweeps

OFFER_STEP = 200
UNATTENDED_SECONDS = 5.0
"""How long calls go on without a producer if it has to stop decided cases."""


class SweepWork:
    """One sweep over a ledger of calls, for a `Driver`.

    ``seen`` is its last polled status. ``over`` says how its calls ended: "done", "spent" (the budget), or "" before.
    """

    idle_seconds = 0.05
    not_stopped = "processes that call may continue for a while"

    def __init__(
        self,
        sweep: Sweep,
        ledger: SweepLedger,
        cache: Cache | None = None,
        *,
        server: str = "",
        hurried: Callable[[], bool] = bool,
    ) -> None:
        """``server`` names one that outlasts this command; ``hurried`` says whether the user wants to leave now."""
        self._sweep = sweep
        self.ledger = ledger
        self._server = server
        self._hurried = hurried
        self._stopping = EarlyStopping(sweep, ledger)
        self._intake = SweepIntake(sweep, ledger, self._stopping, cache)
        self.warnings = Warnings()
        self._served = CallingProcesses(
            Heartbeats(ledger.client),
            sweep.header,
            self.warnings,
            priced=bool(sweep.live.max_cost),
            then=sweep.settings_then,
        )
        self.seen = SweepStatus("open")
        self.over = ""
        self.published = False
        self._opened = self._taken_over = False
        self._living: set[str] = set()
        self._before = ""

    @property
    def run(self) -> str:
        """The sweep's id."""
        return self._sweep.run

    @property
    def folder(self) -> RunFolder:
        """The folder of its run."""
        return self._sweep.folder

    @property
    def progress(self) -> ShownProgress:
        """How far the calls are."""
        recorded, header, stopping = self._sweep.recorded, self._sweep.header, self._stopping
        notes = [f"{self.seen.busy} in flight"]
        notes += [plural(recorded.errors, "error")] if recorded.errors else []
        notes += [f"{len(stopping.halted)} of {header.cases} cases decided"] if stopping.there else []
        notes += [f"cost {self.seen.spent:.4g}"] if self.seen.spent else []
        return ShownProgress(recorded.count, recorded.count, header.total, note=", ".join(notes), unit="calls")

    @property
    def finished(self) -> bool:
        """Whether the calls are over."""
        return bool(self.over)

    @property
    def in_flight(self) -> int:
        """Calls that were still in flight when the wait after a pause or cancellation ended."""
        return self._intake.in_flight

    def facts(self) -> dict[str, Json]:
        """How the calls ended, for run.json."""
        recorded, look = self._sweep.recorded, self.seen
        # The ledger may have lost costs that the folder has. Compare with a tolerance, because sums of floats differ in
        # their last digits.
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
            "ended": self.over,
            "reason": look.reason,
        }
        facts |= recorded.counted()
        return facts

    @contextlib.contextmanager
    def driving(self) -> Iterator[None]:
        """Reserve disk space for noting the end, and decide cases by the recorded outputs."""
        # Before the sweep is opened, which reports the decided cases to the ledger.
        self._stopping.recall()
        self._sweep.recorded.reserve()
        yield
        self._sweep.recorded.release()

    # -- ownership --------------------------------------------------------------------------------------

    def open(self, how: Acquire) -> Mapping[str, Json]:
        """Open the sweep in the ledger, and become its driver; ``how`` is that of the ledger's `open`.

        Raises AlreadyRunning while another process drives it, UsageError if another sweep has this id.
        """
        sweep, live, recorded = self._sweep, self._sweep.live, self._sweep.recorded
        # The producer applies the stop rule, so calls must not go on long without it.
        alone = UNATTENDED_SECONDS if live.stop else 0.0
        place = f"{host()}:{sweep.folder.path.absolute()}"
        budgets = (live.max_calls, live.max_cost, alone)
        if how == "on" and (before := self.ledger.poll(sweep.run)) is not None:
            self._taken_over |= before.folder not in ("", place)
        sums = (recorded.ended, recorded.paid, recorded.spending.total, recorded.lost)
        answered = (recorded.spending.known, recorded.spending.unknown, recorded.spending.answered)
        known = FolderCounts(*sums, recorded.count - recorded.paid, recorded.tallies, recorded.under_way, *answered)
        if (last := sweep.last_driver.token()) != self.ledger.token:
            self._before = last  # also for a server that comes back with the state of that driver
        # Only processes that this one has seen: those noted in the folder may have ended since.
        living = self._living if how == "keep" else ()
        self.ledger.open(
            sweep.header, *budgets, known,
            before=self._before, folder=place, how=how, living=living, priority=sweep.priority,
        )  # fmt: skip
        self._opened = True
        sweep.last_driver.note(self.ledger.token)
        # From here on workers leave its evaluation to this process.
        UnattendedSweeps(self.ledger, self.ledger.settings).take_back(sweep.run)
        return {"state": "calling"}

    def restore(self) -> None:
        """Tell the ledger which calls are recorded, and which cases are decided."""
        self.ledger.restore(self.run, self._sweep.recorded.calls())
        self._stopping.tell()
        # A server that lost the sweep has lost its prompts, too.
        self.published = False

    def overtaken(self) -> bool:
        """Always False: `open` raises AlreadyRunning instead."""
        return False

    # -- one step after another -------------------------------------------------------------------------

    def step(self) -> bool:
        """Take recorded outputs into the folder; False when there was none."""
        intake = self._intake
        taken = intake.take()
        if intake.several and not self.warnings.knows("differ"):
            self.warnings.add("changed")
        if intake.uncached:
            self.warnings.lines.append(intake.uncached)
            intake.uncached = ""
        return taken

    def poll(self) -> SweepStatus | None:
        """The sweep's status in the ledger; None if the ledger has lost it."""
        recorded = self._sweep.recorded
        return self.ledger.poll(self.run, attending=True, free=recorded.count - recorded.paid)

    def lost(self, status: SweepStatus) -> bool:
        """Whether the ledger has lost outputs that the folder has, or the note that the folder has them."""
        # Outputs that wait in the ledger count there, but are not in the folder yet.
        if status.known - status.waiting < self._sweep.recorded.count or status.halted < len(self._stopping.halted):
            return True
        return status.generation != self.ledger.generation(self.run)

    def attend(self, status: SweepStatus) -> None:
        """Give the ledger the prompts, or see whether the calls are over."""
        recorded = self._sweep.recorded
        self.seen = status
        # Keep earlier processes while a restarted server still waits for their reports.
        self._living = self._living.union(status.living) if status.unsettled else set(status.living)
        recorded.note_begun(status.started, status.tallies, status.under_way)
        if self._sweep.live.max_cost and recorded.untold:
            self.warnings.add("untold")
        # Ask a cache and earlier runs before offering calls: an offered call may be paid at once.
        known = self._intake.known and not self.published
        if status.state == "open" and status.left and (known or status.prompts < self._sweep.header.cases):
            self._offer_unknown()
            return
        self._judge(status)
        if status.state == "open" and not (status.holders or self.over):
            # Only then, because this reads the heartbeat of every process of the fleet.
            self._served.config()  # no process calls; this finds the reason

    def _offer_unknown(self) -> None:
        """Once a process can call: record the outputs that are known already, then offer the prompts."""
        config = self._served.config()
        if config is None:
            return
        if config:
            self._sweep.note_settings(self._served.settings)
        if config and self._sweep.recorded.config not in ("", config):
            self.warnings.add("changed")
        if others := self._intake.waits_for(config):
            self.warnings.wait_for(f"{self._sweep.live.cache}: waiting, since {others}; nothing is paid twice")
            return
        if reused := self._intake.take_known(config):
            self.warnings.lines.append(reused)
        self.publish()

    def conclude(self) -> bool:
        """Close the sweep in the ledger."""
        self.ledger.close(self.run, "done")
        return True

    # -- whether the calls are over ---------------------------------------------------------------------

    def _judge(self, look: SweepStatus) -> None:
        """Note whether the calls are over, and repeat those whose outputs ledger or folder lost.

        Raises Paused or Cancelled if another command did that, Incomplete for a spent quota or a wrong key, and
        AlreadyRunning if another producer has the outputs.
        """
        quiet = not (look.busy or look.waiting or look.unsettled)
        if look.state == "cancelled":
            # Collect outputs now: a cancelled sweep gets no later chance.
            self._intake.drain()
        refuse_halted(self.run, look.state, look.reason)
        # Only when no call is in flight, because those still bring outputs.
        if quiet and look.state == "failed":
            raise Incomplete(f"the calls stopped at {look.reason}; {self._sweep.kept_text()}")
        if quiet and look.state == "done":
            self._closed_elsewhere(look)
        elif quiet and look.state == "spent":
            # Failures without budget for a retry count as failures; without them the run would look too good.
            self._sweep.recorded.put_back()
            self.over = "spent"
        elif quiet and not look.left:
            self._end(look)

    def _end(self, look: SweepStatus) -> None:
        """End the calls, or repeat those whose outputs ledger or folder lost."""
        missing = self._missing()
        if not missing:
            self.over = "done"
        elif self._may_repay(look, missing):
            self.ledger.forget(self.run, missing)

    def _closed_elsewhere(self, look: SweepStatus) -> None:
        """Handle a sweep that is already closed: by this folder's last driver, or by another producer."""
        missing = self._missing()
        if not missing:
            self.over = "done"
        elif self._elsewhere(missing):
            # That producer evaluates them, or died before; waiting for its report finds out which.
            raise AlreadyRunning(self.run, "another producer, which made its calls")
        elif self._may_repay(look, missing):  # a larger budget than before, or a retry of failed calls
            self.open("anew")
            self.restore()
            self.ledger.forget(self.run, missing)

    def _may_repay(self, look: SweepStatus, missing: list[int]) -> bool:
        """Whether ``missing`` calls may be paid again now. If other processes may have their outputs, warn first."""
        paid = sum(int(tally.split()[2]) for tally in look.tallies.values())
        # Calls paid beyond those recorded here were made elsewhere, for example by a retry in the original folder.
        others = self._taken_over and paid > self._sweep.recorded.paid + look.waiting
        if self.warnings.knows("elsewhere") or not (others or self._elsewhere(missing)):
            return True
        self.warnings.add("elsewhere")  # shown after this poll; the next one goes on
        return False

    def _missing(self) -> list[int]:
        """The calls of undecided cases without a recorded output."""
        recorded, header = self._sweep.recorded, self._sweep.header
        wanted = (call for call in range(header.total) if call % header.cases not in self._stopping.halted)
        return [call for call in wanted if not recorded.has(call)]

    def _elsewhere(self, missing: list[int]) -> bool:
        """Whether another producer collected outputs of some ``missing`` calls that this folder never had."""
        never = [call for call in missing if not self._sweep.recorded.was_recorded(call)]
        return bool(self.ledger.has(self.run, never))

    # -- leaving it -------------------------------------------------------------------------------------

    def publish(self) -> bool:
        """Give all prompts to the ledger. Raises WireError if they are not those of this sweep."""
        if prompts_digest(self._sweep.prompts())[1] != self._sweep.header.asked["prompts"]:
            raise WireError(f"{self._sweep.folder.path}: its prompts are not those it was begun with; start it anew")
        prompts, number = self._sweep.prompts(), 0
        while block := list(islice(prompts, OFFER_STEP)):
            self.ledger.offer(self.run, block, number)
            number += len(block)
        self.published = True
        return True

    def detach(self) -> None:
        """Give the ledger the data for evaluating the outputs without a producer; warn if no process can call."""
        sweep, began = self._sweep, server_seconds(self.ledger.client)
        header = sweep.evaluation()
        # Without a header, the evaluation needs further files, so `evalq watch` has to do it.
        if header is not None:
            facts = Detached(began, sweep.header.target, sweep.tags, sweep.folder.info().name)
            UnattendedSweeps(self.ledger, self.ledger.settings).leave(sweep.run, UnattendedSweep(header, facts))
        self._served.leaving()

    def closing(self, error: BaseException) -> Closing | None:
        """Pause the sweep on Ctrl-C, and if the folder cannot be written."""
        # An OSError here comes from the folder's files; errors of a server's connection are retried.
        unwritten = self._opened and isinstance(error, OSError | StorageError)
        return Closing("paused", "interrupted") if unwritten or isinstance(error, KeyboardInterrupt) else None

    def closed(self, error: BaseException) -> None:
        """Record outputs that arrive soon after; if the folder cannot be written, count the paid calls."""
        if isinstance(error, KeyboardInterrupt):
            self._intake.drain(self._hurried)
        else:
            self._strand()

    def _strand(self) -> None:
        """Count the calls that a resume has to pay again: outputs in this command's own server end with it."""
        deadline = time.monotonic() + PAUSE_SECONDS
        while (look := self.ledger.poll(self.run)) is not None:
            if not look.busy or time.monotonic() > deadline:
                gone = 0 if self._server else look.waiting
                with contextlib.suppress(OSError):  # the disk itself may be gone
                    self._sweep.recorded.note_stopped(look.started, look.tallies, look.under_way, gone)
                return
            time.sleep(IDLE_SECONDS)
