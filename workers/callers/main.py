"""The process that calls: many calls in flight on one event loop, taken from the ledger and recorded there.

A call that waits for its turn or for a retry costs nothing but memory. A killed process loses the calls that it has in
flight; others make them again when its lease has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from math import inf

import redis

from evalq.evalcore.errors import BrokerUnreachable, ConfigError, EvalqError, WireError
from evalq.evalcore.version import code_version
from evalq.workers.callers.in_flight import InFlightCalls
from evalq.workers.callers.target_sessions import TargetSession, TargetSessions
from evalq.workers.callers.uncallable import Hopeless, unable
from evalq.workers.ledger.heartbeats import CallerFacts, Heartbeats
from evalq.workers.ledger.sweep_model import SweepHeader
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.processes.identity import host, log_to_stderr, unique_name
from evalq.workers.ready import say_ready
from evalq.workers.servers.complaint import Complaint, until_reached
from evalq.workers.servers.connections import connect
from evalq.workers.servers.urls import redacted
from evalq.workers.settings import TIMINGS, Settings, Timings
from evalq.workers.targets import load_targets

__all__ = ["main", "run_calls"]

log = logging.getLogger("evalq.calls")


def run_calls(
    settings: Settings,
    loglevel: str = "WARNING",
    *,
    parent: int | None = None,
    quiet: bool = False,
    timings: Timings = TIMINGS,
) -> int:
    """Make calls for every sweep of this code version until SIGTERM; returns an exit code.

    ``parent``: end when this process is no longer the child of that one, and wait for a ledger that is away. Unless
    ``quiet``, a process of its own says when it is ready. Raises ConfigError for a missing targets file, and where
    there is no parent BrokerUnreachable.
    """
    log_to_stderr(loglevel)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    if not settings.targets:
        raise ConfigError("calling needs a targets file: --targets FILE, EVALQ_TARGETS, or targets: in the settings")
    if parent is not None and not until_reached(settings, log, lambda: os.getppid() == parent):
        return 0
    process = _Process(settings, timings)
    if parent is None and not quiet:
        say_ready(settings, process.name, tuple(sorted(load_targets(settings.targets))))
    asyncio.run(process.serve(parent))
    return 0


class _Process:
    """One process: its stations (a target each), its sweeps, and what it tells of itself."""

    def __init__(self, settings: Settings, timings: Timings = TIMINGS) -> None:
        self._settings = settings
        self._timings = timings
        self._name = unique_name()
        self._calls = SweepLedger(connect(settings.ledger_url, settings), settings)
        self._register = Heartbeats(self._calls.client)
        self._stations = TargetSessions(load_targets(settings.targets), self._calls.client)
        self._hopeless = Hopeless(settings.down_seconds)
        self._complaint = Complaint(log, f"the ledger at {redacted(settings.ledger_url)}")
        self._lanes = asyncio.Semaphore(settings.calls)
        self._units: dict[str, InFlightCalls] = {}
        self._named: dict[str, float] = {}
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()

    @property
    def name(self) -> str:
        """What the register calls it."""
        return self._name

    async def serve(self, parent: int | None) -> None:
        """Until told to stop; then the calls in flight may end within ``soft_shutdown_seconds``."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            loop.add_signal_handler(number, self._end)
        async with self._stations:
            beat = asyncio.create_task(self._beat(parent))
            try:
                while not self._stop.is_set():
                    pause = await self._round()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            await self._wake.wait()
                    self._wake.clear()
                    await asyncio.sleep(self._timings.call_pause)
            finally:
                self._stop.set()
                await self._leave(beat)

    def _end(self) -> None:
        self._stop.set()
        self._wake.set()

    async def _round(self) -> float:
        """Take calls of every sweep, as many as there is room for; returns seconds until there may be more."""
        try:
            headers = await asyncio.to_thread(self._calls.sweeps)
            mine = [header for header in headers if header.target in self._stations]
            known = {header.run for header in mine}
            for run in [run for run in self._units if run not in known]:
                state, _ = await self._claimed(run, 0)  # what is in flight is mine
                await self._withdraw(run, state)
            self._named = {run: at for run, at in self._named.items() if run in self._units or run in known}
            full = True
            self._hopeless.keep(header.run for header in mine)
            for header in mine:
                full = await self._claim(header, max(1, self._settings.calls // len(mine))) and full
        except (redis.RedisError, OSError) as error:
            self._complaint.about(error)
            return 1.0
        self._complaint.over()
        # Where all that was asked for came, there is likely more: as soon as a call ends.
        return self._timings.beat if full and mine else self._timings.call_poll

    async def _claim(self, header: SweepHeader, share: int) -> bool:
        """Whether all of the share is in use."""
        units = self._units.get(header.run)
        station = self._stations.ready(header.target)
        if station is None or not header.may_call(station.config):
            return False  # its outputs would be of other settings than it asks for
        due = self._hopeless.due(header.run, station)
        if due:
            await self._give_up(header)
        if station.fault and units is None and not due:
            return False
        most, refusals = share, 0
        if units is not None:
            # A fatal failure that is not yet recorded has stopped the sweep: the ledger just does not know it.
            most, refusals = 0 if units.refused else max(0, share - units.active), units.refusals
        most = station.room(most)
        state, calls = await self._claimed(header.run, most)
        if units is None and not calls:
            return False
        if units is None:
            units = self._units[header.run] = self._made(header, station)
        if state != "open":
            await self._withdraw(header.run, state)
        elif calls:
            await self._start(units, header, calls, refusals)
        return state == "open" and len(calls) == most and not station.trouble

    async def _give_up(self, header: SweepHeader) -> None:
        """End a sweep whose target nobody can call, and no other."""
        callers = await asyncio.to_thread(self._register.callers)
        reasons = unable(callers.values(), header.code, header.target)
        if reasons:
            reason = f"{header.target}: no process can call it: {reasons}"
            await asyncio.to_thread(self._calls.close, header.run, "failed", reason[:1000])

    async def _claimed(self, run: str, most: int) -> tuple[str, list[int]]:
        """(state of a sweep, calls to make). Every now and then the ledger is told which calls this process has; what
        that one has lost is recorded again. A ledger that came back older than it was is told at once.
        """
        units, now = self._units.get(run), time.monotonic()
        mine: set[int] | None = None
        told: list[int] = []
        if now - self._named.get(run, -inf) >= self._timings.call_names:
            mine, told = (units.mine, units.told) if units else (set(), [])
            self._named[run] = now
        lease = self._timings.call_lease
        state, calls, untold = await asyncio.to_thread(self._calls.claim, run, self._name, most, lease, mine, told)
        if mine is None and self._calls.fell:
            del self._named[run]
            return await self._claimed(run, most)
        if units is not None and untold:
            units.tell(untold)
        return state, calls

    async def _withdraw(self, run: str, state: str) -> None:
        """Call no more for a sweep, and let go of it once all that was in flight is recorded; a server that lost the
        sweep may come to know it again, and of what it had.
        """
        units = self._units[run]
        units.withdraw()
        if units.idle and not (state == "gone" and units.told):
            del self._units[run]
            await units.close()

    def _made(self, header: SweepHeader, station: TargetSession) -> InFlightCalls:
        return InFlightCalls(header, self._name, station, self._calls, self._lanes, self._wake)

    async def _start(self, units: InFlightCalls, header: SweepHeader, calls: list[int], refusals: int) -> None:
        """Make the calls, unless a fatal failure came after those that were known when they were asked for."""
        missing = sorted({call % header.cases for call in calls} - units.prompts.keys())
        try:
            units.prompts.update(await asyncio.to_thread(self._calls.prompts, header.run, missing))
        except WireError as error:
            await asyncio.to_thread(self._calls.close, header.run, "failed", str(error)[:1000])
        if units.refusals > refusals:
            units.decline(calls)
        else:
            units.start(calls)

    async def _beat(self, parent: int | None) -> None:
        while not self._stop.is_set():
            if parent is not None and os.getppid() != parent:
                self._end()
            facts = CallerFacts(
                host=host(),
                pid=os.getpid(),
                code=code_version(),
                calls=self._settings.calls,
                busy=sum(units.active for units in self._units.values()),
                targets=self._stations.facts(),
                oldest={run: units.oldest for run, units in self._units.items() if units.oldest},
            )
            with contextlib.suppress(redis.RedisError, OSError):
                await asyncio.to_thread(self._register.beat_caller, self._name, facts, self._timings.life)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timings.beat):
                    await self._stop.wait()

    async def _leave(self, beat: asyncio.Task[None]) -> None:
        """Withdraw what waits, let calls in flight end, keep their outputs, and give the rest back."""
        for units in self._units.values():
            units.withdraw()
        await self._ended()
        for run, units in self._units.items():
            with contextlib.suppress(redis.RedisError, OSError, BrokerUnreachable):
                await units.close()
                await asyncio.to_thread(self._calls.give_back, run, self._name, {}, leave=True)
        await asyncio.gather(beat, return_exceptions=True)  # one under way would put this process on the list again
        with contextlib.suppress(redis.RedisError, OSError):
            await asyncio.to_thread(self._register.leave, self._name)

    async def _ended(self) -> None:
        """Until no call is in flight, ``soft_shutdown_seconds`` at most; so long they stay this process's."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.soft_shutdown_seconds
        while (left := deadline - loop.time()) > 0:
            with contextlib.suppress(redis.RedisError, OSError):
                for run in self._units:
                    await self._claimed(run, 0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, self._timings.call_lease / 3)):
                    await asyncio.gather(*(units.ended() for units in self._units.values()))
                    return


def main(timings: Timings = TIMINGS) -> int:
    """Run as a child of a worker: settings from EVALQ_* variables."""
    from evalq.workers.settings import load_settings

    settings = load_settings()
    try:
        return run_calls(settings, os.environ.get("EVALQ_LOGLEVEL", "WARNING"), parent=os.getppid(), timings=timings)
    except EvalqError as error:
        log.error("%s", error)
        return error.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
