"""Driving a sweep: its prompts into the ledger, its outputs into the folder, until every call is recorded or halted."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Literal

import msgspec

from evalq.evalcore.errors import Cancelled, Driven, Incomplete, Paused, WireError
from evalq.evalcore.model.calls import Output
from evalq.evalcore.model.canonical import Json
from evalq.producer.driving.waiting import Patience
from evalq.producer.monitor.progress import RunStatus, Watcher
from evalq.producer.sweeps.cache import Cache
from evalq.producer.sweeps.decided import Stops
from evalq.producer.sweeps.identity import prompts_digest
from evalq.producer.sweeps.served import Served
from evalq.producer.sweeps.sweep import Sweep
from evalq.workers.ledger.detached import Detached
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.ownership import driver_token
from evalq.workers.ledger.sweep_model import Known, SweepLook
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.recovery.unattended import Left, UnattendedSweeps
from evalq.workers.settings import Settings

__all__ = ["SweepDriver"]

COLLECT_STEP = 500
OFFER_STEP = 200
IDLE_SECONDS = 0.05
UNATTENDED_SECONDS = 5.0
"""How long calls go on without a producer where it is to stop decided cases."""
PAUSE_SECONDS = 3.0
"""How long an interrupted producer waits for calls in flight; what ends later waits in the ledger."""


class SweepDriver:
    """One sweep over a ledger of calls. Where another process drives it, every step raises Driven and changes nothing.

    ``token`` names the driver: this process's, unless told otherwise.
    """

    def __init__(
        self,
        sweep: Sweep,
        calls: SweepLedger,
        settings: Settings,
        patience: Patience,
        cache: Cache | None = None,
        token: str = "",
    ) -> None:
        self._patiently = patience
        self._sweep = sweep
        self._token = token or driver_token()
        self._calls = SweepLedger(calls.client, settings, self._token)
        self._settings = settings
        self._cache = cache
        self._stops = Stops(sweep, self._calls)
        self._offered = False
        self._looked = 0.0
        self._served = Served(Heartbeats(self._calls.client), sweep.header, priced=bool(sweep.live.max_cost))
        self._over = ""
        self.server = ""
        """The options that name the server to other commands."""
        self.look = SweepLook("open")
        self.warned: set[str] = set()
        """What a user has to be told, and (``told``) what was."""
        self.told: set[str] = set()

    def drive(self, watch: Watcher) -> dict[str, Json]:
        """Until the calls are over; returns how they ended, for run.json. A lost server is waited for.

        Raises Driven while another process drives it, UsageError for a target that no process knows or another sweep
        of this id, Incomplete for a spent quota, a wrong key or a sweep that was ended elsewhere, Paused,
        BrokerUnreachable when the server stays away.
        """
        self._patiently(self._establish)
        self._mine(self._stops.recall)
        while not self._over:
            if not self._mine(self._collect):
                time.sleep(IDLE_SECONDS)
            if time.monotonic() - self._looked >= self._settings.look_seconds:
                self._mine(self._step)
                watch(self._standing())
                self._looked = time.monotonic()
        self._mine(self._conclude)
        return self._facts()

    def launch(self) -> None:
        """Give all prompts to the ledger, for processes that call to continue alone, and workers to evaluate."""
        self._patiently(self._establish)
        self._patiently(self._offer)
        self._patiently(self._leave)

    def release(self) -> None:
        """Let go of the sweep: whoever drives it next need not wait."""
        self._calls.hand_over(self._sweep.run)

    def _mine(self, step: Callable[[], bool]) -> bool:
        """Take a step as the driver; where the ledger knows of none, or lost this one, that is made good first."""

        def taken() -> bool:
            try:
                return step()
            except Driven:
                self._establish("keep")
                return step()

        return self._patiently(taken)

    def _leave(self) -> bool:
        sweep, (seconds, micros) = self._sweep, self._calls.client.time()
        header = sweep.evaluation()
        if header is not None:
            facts = Detached(seconds + micros / 1_000_000, sweep.header.target, sweep.tags)
            UnattendedSweeps(self._calls, self._settings).leave(sweep.run, Left(header, facts))
        return True

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
                if not self._collect():
                    time.sleep(IDLE_SECONDS)

    def _establish(self, how: Literal["on", "keep", "anew"] = "on") -> bool:
        """Write the sweep into the ledger, new or again, with all that the folder has."""
        sweep, live, recorded = self._sweep, self._sweep.live, self._sweep.recorded
        # A rule that the producer applies must not run on without it.
        alone = UNATTENDED_SECONDS if live.stop else 0.0
        place = f"{socket.gethostname()}:{sweep.folder.path.absolute()}"
        budgets = (live.max_calls, live.max_cost, alone)
        lost = recorded.lost if how == "on" else self.look.lost
        sums = (recorded.ended, recorded.paid, recorded.cost)
        known = Known(*sums, lost, recorded.count - recorded.paid, recorded.tallies)
        self._calls.open(sweep.header, *budgets, known, before=sweep.driver(), place=place, how=how)
        sweep.driven_by(self._token)
        UnattendedSweeps(self._calls, self._settings).take_back(sweep.run)
        self._calls.restore(sweep.run, recorded.calls())
        self._stops.tell()
        self._offered = False
        sweep.folder.note(state="calling", server=self.server or None)
        return True

    def _offer(self) -> bool:
        run, number = self._sweep.run, 0
        if prompts_digest(self._sweep.prompts())[1] != self._sweep.header.asked["prompts"]:
            raise WireError(f"{self._sweep.folder.path}: its prompts are not those it was begun with; start it anew")
        prompts = self._sweep.prompts()
        while block := list(islice(prompts, OFFER_STEP)):
            self._calls.offer(run, block, number)
            number += len(block)
        self._offered = True
        return True

    def _step(self) -> bool:
        """One look, and what it asks for."""
        recorded = self._sweep.recorded
        look = self._calls.look(self._sweep.run, attending=True, free=recorded.count - recorded.paid)
        if look is None or self._has_lost(look):
            self._establish("keep")  # the server lost the sweep or a part of it, or came back with an older state
            return True
        self.look = look
        recorded.note_begun(look.started, look.tallies)
        untold = look.prompts < self._sweep.header.cases or (self._cache is not None and not self._offered)
        if look.left and untold and look.state == "open":
            config = self._config()
            if config is not None:
                self._from_cache(config)
                self._offer()
        else:
            self._judge(look)
        return True

    def _has_lost(self, look: SweepLook) -> bool:
        """Whether the ledger has forgotten what the folder has, or that it was told so."""
        if look.known - look.waiting < self._sweep.recorded.count or look.halted < len(self._stops.halted):
            return True
        return look.generation != self._calls.generation(self._sweep.run)

    def _judge(self, look: SweepLook) -> None:
        """Whether the calls are over, for good or for now."""
        run, quiet = self._sweep.run, not (look.busy or look.waiting or look.unsettled)
        if look.state == "paused":
            raise Paused(f"run {run} was paused")
        if look.state == "cancelled":
            while self._collect():
                pass
            raise Cancelled(f"run {run} was cancelled {look.reason}".rstrip())
        if quiet and look.state == "failed":
            raise Incomplete(self._stopped(look.reason))
        if quiet and look.state == "done":
            self._closed_elsewhere(look)
        elif quiet and look.state == "spent":
            self._over = "spent"
        elif quiet and not look.left:
            self._end(look)
        if not look.holders and not self._over and look.state == "open":
            self._config()

    def _stopped(self, reason: str) -> str:
        recorded, total = self._sweep.recorded.count, self._sweep.header.total
        return f"the calls stopped at {reason}; {recorded:,} of {total:,} outputs are recorded and kept"

    def _end(self, look: SweepLook) -> None:
        """The calls are over, unless ledger or folder lost some: those are made again."""
        missing = self._missing()
        if not missing:
            self._over = "done"
            return
        if look.place and self._elsewhere(missing):
            self.warned |= {"elsewhere"} - self.told
        self._calls.forget(self._sweep.run, missing)

    def _closed_elsewhere(self, look: SweepLook) -> None:
        """The calls are done: by the fleet, by this folder's last driver, or by one elsewhere, who has the outputs."""
        missing = self._missing()
        if not missing:
            self._over = "done"
        elif self._elsewhere(missing):
            # That one evaluates them now, or has died before it could: whoever waits for its report finds out.
            raise Driven(self._sweep.run, "another producer, which made its calls")
        else:  # its budget was larger than that of then, or failed calls are to be made again
            self._establish("anew")
            self._calls.forget(self._sweep.run, missing)

    def _missing(self) -> list[int]:
        """Wanted calls that the folder does not have."""
        recorded, header = self._sweep.recorded, self._sweep.header
        wanted = (call for call in range(header.total) if call % header.cases not in self._stops.halted)
        return [call for call in wanted if not recorded.has(call)]

    def _elsewhere(self, missing: list[int]) -> bool:
        """Whether others recorded and collected some of them: this folder never had those."""
        never = [call for call in missing if not self._sweep.recorded.had(call)]
        return bool(self._calls.has(self._sweep.run, never))

    def _config(self) -> str | None:
        """The digest of the target's settings, as `Served.config`."""
        config = self._served.config()
        self.warned |= self._served.warned - self.told
        return config

    def _from_cache(self, config: str) -> None:
        """Record what the cache has, before anything is called."""
        if self._cache is None or not config:
            return
        header, fresh = self._sweep.header, []
        for number, prompt in enumerate(self._sweep.prompts()):
            wanted = [r for r in range(header.repeats) if not self._sweep.recorded.has(r * header.cases + number)]
            found = self._cache.find(header.target, config, prompt, wanted)
            fresh += [msgspec.structs.replace(o, call=r * header.cases + number) for r, o in sorted(found.items())]
        self._keep(fresh, cached=True)
        self._calls.restore(self._sweep.run, [output.call for output in fresh])

    def _collect(self) -> bool:
        """Take recorded outputs; they leave the ledger once they are safe in the folder."""
        found = self._calls.collect(self._sweep.run, COLLECT_STEP)
        if not found.outputs:
            return False
        fresh = self._keep(found.outputs)
        self._calls.trim(self._sweep.run, found)
        if self._cache is not None:
            self._cache.keep(fresh)
        return True

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

    def _conclude(self) -> bool:
        self._calls.close(self._sweep.run, "done")
        return True

    def _standing(self) -> RunStatus:
        recorded, total = self._sweep.recorded, self._sweep.header.total
        notes = [f"{self.look.busy} in flight"]
        notes += [f"{recorded.errors} errors"] if recorded.errors else []
        notes += [f"{len(self._stops.halted)} of {self._sweep.header.cases} cases decided"] if self._stops.there else []
        notes += [f"cost {self.look.spent:.4g}"] if self.look.spent else []
        return RunStatus(recorded.count, recorded.count, total, note=", ".join(notes), unit="calls")

    def _facts(self) -> dict[str, Json]:
        """How the calls ended."""
        recorded, look = self._sweep.recorded, self.look
        facts: dict[str, Json] = {
            "target": self._sweep.header.target,
            "planned": self._sweep.header.total,
            "recorded": recorded.count,
            "errors": recorded.errors,
            "attempts": look.started,
            "repaid": look.repaid,
            "lost": look.lost,
            "cost": look.spent,
            "ended": self._over,
            "reason": look.reason,
        }
        return facts
