"""The calling process: it claims calls in the ledger, makes many at once on one event loop, and records the results.

A call that waits for its turn or for a retry costs only memory. A killed process loses its calls in flight; others make
them again when its lease has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Collection
from math import inf

import redis

from evalq.evalcore.errors import BrokerUnreachable, ConfigError, EvalqError, WireError
from evalq.evalcore.version import code_version
from evalq.workers.callers.choices import UnreachableTargets, unreachable_reasons
from evalq.workers.callers.in_flight import InFlightCalls
from evalq.workers.callers.lanes import Lanes
from evalq.workers.callers.target_sessions import TargetSession, TargetSessions
from evalq.workers.fair_shares import CLASS_WEIGHTS, Path, parts
from evalq.workers.ledger.calls import CallLedger
from evalq.workers.ledger.heartbeats import CallerFacts, Heartbeats
from evalq.workers.ledger.scripts import preload_scripts
from evalq.workers.ledger.sweep_model import SweepHeader
from evalq.workers.processes.environment import seal, set_aside_celery
from evalq.workers.processes.identity import host, log_to_stderr, unique_name
from evalq.workers.ready import HealthFile, print_ready
from evalq.workers.servers.connections import Complaint, connect, until_reached
from evalq.workers.settings import TIMINGS, Settings, Timings
from evalq.workers.targets import key_names, load_targets

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

    ``parent``: end when this process is no longer its child. The process waits for a ledger that is away; without a
    parent, for ``patience_seconds``. Without a parent it also prints when it is ready, unless ``quiet``. Raises
    ConfigError if the targets file is missing and, without a parent, BrokerUnreachable.
    """
    log_to_stderr(loglevel)
    preload_scripts()
    logging.getLogger("httpx").setLevel(logging.WARNING)
    if not settings.targets:
        raise ConfigError("live calls need a targets file: --targets FILE, EVALQ_TARGETS, or targets: in the settings")
    deadline = time.monotonic() + settings.patience_seconds
    wanted = (lambda: time.monotonic() < deadline) if parent is None else (lambda: os.getppid() == parent)
    if not until_reached(settings, log, wanted) and parent is not None:
        return 0
    targets = load_targets(settings.targets)
    seal(key_names(targets))  # before any target's program starts
    process = _CallingProcess(settings, timings)
    if parent is None and not quiet:
        print_ready(settings, process.name, tuple(sorted(targets)))
    asyncio.run(process.serve(parent))
    return 0


class _CallingProcess:
    """One process: its sessions (one for each target), its sweeps and its heartbeat."""

    def __init__(self, settings: Settings, timings: Timings = TIMINGS) -> None:
        self._settings = settings
        self._timings = timings
        self._name = unique_name()
        self._calls = CallLedger(connect(settings.ledger_address, settings), settings)
        self._heartbeats = Heartbeats(self._calls.client)
        self._weights = (CLASS_WEIGHTS, settings.weights)
        self._sessions = TargetSessions(load_targets(settings.targets), self._calls.client, self._weights)
        self._unreachable = UnreachableTargets(settings.down_seconds)
        self._complaint = Complaint(log, f"the ledger at {settings.ledger_address}")
        self._lanes = Lanes(settings.calls, self._weights)
        self._free = 0
        self._in_flight: dict[str, InFlightCalls] = {}
        self._listed_at: dict[str, float] = {}
        self._claimed_at: dict[str, float] = {}
        self._paths: dict[str, Path] = {}
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()

    @property
    def name(self) -> str:
        """Its name in heartbeats."""
        return self._name

    async def serve(self, parent: int | None) -> None:
        """Make calls until a signal; then let calls in flight end within ``soft_shutdown_seconds``."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # by nohup
                loop.add_signal_handler(number, self._end)
        async with self._sessions:
            beat = asyncio.create_task(self._beat(parent))
            try:
                while not self._stop.is_set():
                    pause = await self._round()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            await self._wake.wait()
                    self._wake.clear()
                    # Calls that end at about the same time share a round: each round asks the ledger about every
                    # sweep.
                    await asyncio.sleep(self._timings.call_pause)
            finally:
                self._stop.set()
                await self._leave(beat)

    def _end(self) -> None:
        self._stop.set()
        self._wake.set()

    async def _round(self) -> float:
        """Claim calls of every sweep, as far as there is room; returns the seconds until the next round."""
        try:
            headers = await asyncio.to_thread(self._calls.sweeps)
            mine = [header for header in headers if header.target in self._sessions]
            known = {header.run for header in mine}
            for run in [run for run in self._in_flight if run not in known]:
                state, _ = await self._claim_calls(run, 0)  # to keep the calls in flight
                await self._withdraw(run, state)
            for times in (self._listed_at, self._claimed_at):
                for run in times.keys() - self._in_flight.keys() - known:
                    del times[run]
            full = True
            await self._sessions.keep({header.target for header in mine} | {e.target for e in self._in_flight.values()})
            self._unreachable.keep(header.run for header in mine)
            await self._know_paths(known)
            self._free = self._lanes.free
            of = parts(self._weights, {self._paths[run] for run in known})
            for header in mine:
                # At least one for each sweep: the lanes bound all of them together.
                share = max(1, int(self._lanes.total * of[self._paths[header.run]]))
                full = await self._claim(header, share) and full
        except (redis.RedisError, OSError) as error:
            self._complaint.report(error)
            return 1.0
        self._complaint.over()
        # If the ledger gave all calls that fit, there are likely more: then the next ended call starts a round.
        return self._timings.beat if full and mine else self._timings.call_poll

    async def _know_paths(self, runs: Collection[str]) -> None:
        """Know whose share the calls of each of ``runs`` are, see `Lanes`."""
        self._paths = {run: path for run, path in self._paths.items() if run in runs}
        for run in set(runs) - self._paths.keys():
            self._paths[run] = await asyncio.to_thread(self._calls.share, run)

    async def _claim(self, header: SweepHeader, share: int) -> bool:
        """Claim and start calls of a sweep; returns whether it has as many as it may have.

        ``share`` calls may wait for their turn, and one more for each free lane: calls that wait for a slow target's
        pace need no lane, and must not keep other targets from theirs.
        """
        in_flight = self._in_flight.get(header.run)
        session = self._sessions.ready(header.target)
        if session is None or not header.may_call(session.config):
            return False  # the sweep needs other settings of the target
        due = self._unreachable.due(header.run, session)
        if due:
            await self._give_up(header)
        if session.fault and in_flight is None and not due:
            return False
        total, waiting = self._lanes.total, share + max(0, self._free)
        most, refusals = min(total, waiting), 0
        if in_flight is not None:
            # Beside others, some wait while all lanes are taken: a lane that becomes free would go to another sweep.
            ahead = share if share < total else 0
            room, refusals = total + ahead - in_flight.active, in_flight.refusals
            most = max(0, min(room, waiting - in_flight.waiting))
            in_flight.held_back = most < room
            # A fatal failure that is not recorded yet stops the sweep, too.
            most = 0 if in_flight.refused else most
            asked = time.monotonic() - self._claimed_at.get(header.run, -inf)
            if most == 0 and not in_flight.refused and asked < self._timings.call_poll:
                return True  # each claim costs the other sweeps time
        most = session.room(most)
        state, calls = await self._claim_calls(header.run, most)
        self._free -= len(calls)
        if in_flight is None and not calls:
            return False
        if in_flight is None:
            in_flight = self._in_flight[header.run] = self._new_calls(header, session, self._paths[header.run])
        if state != "open":
            await self._withdraw(header.run, state)
        elif calls:
            await self._start(in_flight, header, calls, refusals)
        return state == "open" and len(calls) == most and not session.trouble

    async def _give_up(self, header: SweepHeader) -> None:
        """End a sweep if no process can call its target."""
        callers = await asyncio.to_thread(self._heartbeats.callers)
        reasons = unreachable_reasons(callers.values(), header.code, header.target)
        if reasons:
            reason = f"{header.target}: no process can call it: {reasons}"
            await asyncio.to_thread(self._calls.close, header.run, "failed", reason[:1000])

    async def _claim_calls(self, run: str, most: int) -> tuple[str, list[int]]:
        """(state of a sweep, calls to make).

        Now and then, the claim lists this process's calls, and results that the ledger has lost are recorded again. If
        the ledger was restored to an older state, that happens at once.
        """
        in_flight, now = self._in_flight.get(run), time.monotonic()
        self._claimed_at[run] = now
        mine: dict[int, int] | None = None
        recent: list[int] = []
        if now - self._listed_at.get(run, -inf) >= self._timings.call_names:
            mine, recent = (in_flight.mine, in_flight.recent) if in_flight else ({}, [])
            self._listed_at[run] = now
        lease = self._timings.call_lease
        state, calls, forgotten = await asyncio.to_thread(self._calls.claim, run, self._name, most, lease, mine, recent)
        # A server restored to an older state would give this process's calls to others. List them at once, so that they
        # stay; the calls of this claim are not among them and go back.
        if mine is None and self._calls.regressed:
            del self._listed_at[run]
            return await self._claim_calls(run, most)
        if in_flight is not None and forgotten:
            in_flight.record_again([call for call in forgotten if call >= 0])
            in_flight.drop([-1 - call for call in forgotten if call < 0])
        return state, calls

    async def _withdraw(self, run: str, state: str) -> None:
        """Make no more calls of a sweep, and forget it once all results are recorded.

        If the server lost the sweep, keep recent outputs: its driver may restore it.
        """
        in_flight = self._in_flight[run]
        in_flight.withdraw()
        if in_flight.idle and not (state == "gone" and in_flight.recent):
            del self._in_flight[run]
            await in_flight.close()

    def _new_calls(self, header: SweepHeader, session: TargetSession, path: Path) -> InFlightCalls:
        return InFlightCalls(header, self._name, session, self._calls, self._lanes, self._wake, path)

    async def _start(self, in_flight: InFlightCalls, header: SweepHeader, calls: list[int], refusals: int) -> None:
        """Make the calls, unless a fatal failure came since the claim (it knew ``refusals`` of them)."""
        missing = sorted({call % header.cases for call in calls} - in_flight.prompts.keys())
        try:
            in_flight.prompts.update(await asyncio.to_thread(self._calls.prompts, header.run, missing))
        except WireError as error:
            await asyncio.to_thread(self._calls.close, header.run, "failed", str(error)[:1000])
        if in_flight.refusals > refusals:
            in_flight.decline(calls)
        else:
            in_flight.start(calls)

    async def _beat(self, parent: int | None) -> None:
        # Beside a pool, the pool's main process writes the health file.
        health = HealthFile(self._settings if parent is None else self._settings.model_copy(update={"health_file": ""}))
        while not self._stop.is_set():
            if parent is not None and os.getppid() != parent:
                self._end()
            facts = CallerFacts(
                host=host(),
                pid=os.getpid(),
                code=code_version(),
                calls=self._settings.calls,
                busy=sum(in_flight.active for in_flight in self._in_flight.values()),
                targets=await self._sessions.facts(),
                oldest={run: in_flight.oldest for run, in_flight in self._in_flight.items() if in_flight.oldest},
            )
            try:
                await asyncio.to_thread(self._heartbeats.beat_caller, self._name, facts, self._timings.life)
                health.write("heard")
            except (redis.RedisError, OSError):
                health.write("away")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timings.beat):
                    await self._stop.wait()
        health.remove()

    async def _leave(self, beat: asyncio.Task[None]) -> None:
        """Withdraw waiting calls, let calls in flight end, record them, and give the rest back."""
        for in_flight in self._in_flight.values():
            in_flight.withdraw()
        await self._drain()
        for run, in_flight in self._in_flight.items():
            with contextlib.suppress(redis.RedisError, OSError, BrokerUnreachable):
                await in_flight.close()
                await asyncio.to_thread(self._calls.give_back, run, self._name, {}, leave=True)
        await asyncio.gather(
            beat, return_exceptions=True
        )  # a heartbeat under way would put this process on the list again
        with contextlib.suppress(redis.RedisError, OSError):
            await asyncio.to_thread(self._heartbeats.leave, self._name)

    async def _drain(self) -> None:
        """Wait until no call is in flight, at most ``soft_shutdown_seconds``; renew the leases meanwhile."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.soft_shutdown_seconds
        while (left := deadline - loop.time()) > 0:
            with contextlib.suppress(redis.RedisError, OSError):
                for run in self._in_flight:
                    await self._claim_calls(run, 0)
            with contextlib.suppress(TimeoutError):
                # A third: one claim may be late or lost before others get these calls.
                async with asyncio.timeout(min(left, self._timings.call_lease / 3)):
                    await asyncio.gather(*(in_flight.wait() for in_flight in self._in_flight.values()))
                    return


def main(timings: Timings = TIMINGS) -> int:
    """Run as a child of a worker: settings from EVALQ_* variables."""
    from evalq.workers.settings import load_settings

    settings = load_settings()
    set_aside_celery()
    try:
        return run_calls(settings, os.environ.get("EVALQ_LOGLEVEL", "WARNING"), parent=os.getppid(), timings=timings)
    except EvalqError as error:
        log.error("%s", error)
        return error.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
