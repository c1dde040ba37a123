"""The calls of one sweep in this process: paced with the fleet, retried by policy, recorded in batches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial

import msgspec
import redis

from evalq.evalcore.errors import BrokerUnreachable, WireError
from evalq.evalcore.model.calls import Attempt, Prompt, Used, likely_cost
from evalq.workers.callers.case_use import CaseUse
from evalq.workers.callers.dialogue import Dialogue
from evalq.workers.callers.lanes import Lanes
from evalq.workers.callers.outcomes import call_of, reached_nobody, recorded_attempts, result_of
from evalq.workers.callers.target_sessions import TargetSession
from evalq.workers.fair_shares import Path
from evalq.workers.ledger.calls import CallLedger
from evalq.workers.ledger.sweep_model import Result, SweepHeader
from evalq.workers.targets import Answered, Call, Failure, Tries, attempt

log = logging.getLogger("evalq.calls")

_GATHER_SECONDS = 0.02
_RETRY_SECONDS = 0.5


class InFlightCalls:
    """Calls from claim to record. ``wake`` is set whenever one ends; ``lanes`` bounds the calls in flight.

    While ``held_back``, ``wake`` is set when a call gets its lane, too: then another one may be claimed.
    """

    def __init__(
        self,
        header: SweepHeader,
        holder: str,
        session: TargetSession,
        calls: CallLedger,
        lanes: Lanes,
        wake: asyncio.Event,
        share: Path = (),
    ) -> None:
        """``share``: whose share its calls are, see `evalq.workers.fair_shares`."""
        self._header = header
        self._holder = holder
        self._session = session
        self._calls = calls
        self._lanes = lanes
        self._path = share or (header.run,)
        self._calling = 0
        self.held_back = False
        self._wake = wake
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._begun: dict[int, float] = {}
        self._attempts: dict[int, int] = {}
        self._kept: dict[int, int] = {}
        self._to_note: dict[int, tuple[int, asyncio.Future[bool]]] = {}
        self._noter: asyncio.Task[None] | None = None
        self._queued: set[asyncio.Task[None] | None] = set()
        self._resting = 0
        self._withdrawn = asyncio.Event()
        self._refusals = 0
        self._results: list[Result] = []
        self._returned: dict[int, int] = {}
        self._used: dict[int, Used] = {}
        self._recent = _RecentAnswers()
        self._due = asyncio.Event()
        self._closing = False
        self._recorder = asyncio.create_task(self._recording(), name="evalq-record")
        self.prompts: dict[int, Prompt] = {}

    @property
    def target(self) -> str:
        """The name of the called target."""
        return self._header.target

    @property
    def active(self) -> int:
        """The number of calls that run or wait for their turn, without those that pause before a retry."""
        return len(self._tasks) - self._resting

    @property
    def waiting(self) -> int:
        """The number of calls that wait for their turn: for the target's pace, or for a lane."""
        return self.active - self._calling

    @property
    def oldest(self) -> tuple[str, float] | None:
        """(case, seconds in flight) of the oldest call; None without calls."""
        if not self._begun:
            return None
        call, at = min(self._begun.items(), key=lambda item: item[1])
        prompt = self.prompts.get(call % self._header.cases)
        return prompt.case if prompt else "", time.monotonic() - at

    @property
    def idle(self) -> bool:
        """Whether no call is in flight and all results are recorded."""
        return not (self._tasks or self._results or self._returned)

    @property
    def mine(self) -> dict[int, int]:
        """{call: attempts begun} of this process's calls: in flight, waiting, or not yet recorded or given back."""
        known = self._tasks.keys() | {result.output.call for result in self._results} | self._returned.keys()
        return {call: self._attempts.get(call, 0) for call in known}

    @property
    def recent(self) -> list[int]:
        """Calls recorded so lately that a server may have lost them."""
        return self._recent.calls()

    def drop(self, calls: list[int]) -> None:
        """Cut these calls off: the ledger has given them to others."""
        for call in calls:
            if (task := self._tasks.get(call)) is not None:
                self._attempts.pop(call, None)
                task.cancel()

    def record_again(self, calls: list[int]) -> None:
        """Record these calls again: the ledger has lost them."""
        self._results += self._recent.take(calls)
        self._due.set()

    @property
    def refused(self) -> bool:
        """Whether a fatal failure is not recorded in the ledger yet; then this process starts no calls."""
        return any(result.fatal for result in self._results)

    @property
    def refusals(self) -> int:
        """The number of fatal failures; calls claimed before the last one are out of date."""
        return self._refusals

    def decline(self, calls: list[int]) -> None:
        """Give these calls back, unmade."""
        self._returned.update(dict.fromkeys(calls, 0))
        self._due.set()

    def start(self, calls: list[int]) -> None:
        """Make these calls. This also resumes a sweep that was withdrawn.

        A ledger that lost data may hand out calls that this process has made or is making: they are not made twice.
        """
        self._withdrawn.clear()
        # Before `mine` is read: resent calls are this process's, and are not made a second time.
        self.record_again(calls)
        known = self.mine
        for call in calls:
            if call in known:
                continue
            task = asyncio.create_task(self._one(call))
            self._tasks[call] = task

    def withdraw(self) -> None:
        """Make no further call: give waiting calls back at once; calls in flight end and are recorded."""
        self._withdrawn.set()
        for task in self._queued:
            if task is not None:
                task.cancel()

    async def wait(self) -> None:
        """Wait until no call is in flight."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    async def close(self) -> None:
        """Cancel calls in flight and record those that ended."""
        for task in self._tasks.values():
            task.cancel()
        if self._noter is not None:
            self._noter.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._closing = True
        self._due.set()
        # Let a commit that is under way end: if it is cancelled, it comes again and counts twice.
        await asyncio.gather(self._recorder, return_exceptions=True)
        await self._record()

    async def _one(self, call: int) -> None:
        attempts: list[Answered | Failure | Attempt] = []
        self._begun[call] = time.monotonic()
        try:
            result = await self._make(call, attempts)
            if result is None:
                # Attempts without an output may have been paid. Those of a conversation so far wait for its end.
                own = [attempt for attempt in attempts if not isinstance(attempt, Attempt)]
                waste = sum(not reached_nobody(attempt) for attempt in own)
                self._returned[call] = max(0, waste - self._kept.get(call, 0))
            else:
                self._results.append(result)
        finally:
            self._tasks.pop(call, None)
            self._kept.pop(call, None)
            del self._begun[call]
            self._due.set()
            self._wake.set()

    async def _make(self, call: int, attempts: list[Answered | Failure | Attempt]) -> Result | None:
        """The result of a call; None if it was withdrawn."""
        session, prompt = self._session, self.prompts.get(call % self._header.cases)
        if prompt is None:
            return None
        repeat = call // self._header.cases
        if session.caller is None or session.pacer is None:
            return None
        request = call_of(self._header, prompt, repeat)
        use = await self._case_use(call)
        if spent := use.spent():
            return self._result(call, prompt, attempts, None, use.lost(spent))
        dialogue = Dialogue(session.caller, request, prompt)

        async def keep() -> bool:
            return await self._keep_talk(call, dialogue, attempts)

        if dialogue.may_go_on and (known := await self._talk(call)) is not None:
            with contextlib.suppress(WireError):  # damaged: the conversation begins anew
                attempts += dialogue.restore(known)
                if not await dialogue.prepare(keep):
                    return None
        voice = self._voice(dialogue)
        tries = Tries(voice.named.target)
        while True:
            try:
                result = await self._attempt(voice, call, dialogue.request, use)
            # The server sets the fleet's pace: without it no call may start. This call waits; it has not failed.
            except BrokerUnreachable:
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if result is None:
                self._keep_use(call, use)
                return None
            result = dialogue.checked(result)
            attempts.append(result)
            voice.breaker.record(result)
            if voice.breaker.holds(result):
                self._keep_use(call, use)
                self.withdraw()  # until the next claim: one call then probes whether the target is back
                return None
            use.add(result, voice.named.target.price)
            if isinstance(result, Answered) and dialogue.take(result):
                if not await keep() or not await dialogue.prepare(keep):
                    return None
                # Each call of the model is an attempt of the budget.
                if await self._again(call, goes_on=True) <= 0:
                    self._keep_use(call, use)
                    return None
                voice = self._voice(dialogue)
                tries = Tries(voice.named.target)
                continue
            wait = tries.wait(result)
            if wait is not None and isinstance(result, Failure) and (spent := use.spent(wait)):
                attempts[-1], wait = use.ended(result, spent), None
            # Ask after the policy: each yes counts as an attempt of the budget.
            allowed = await self._again(call) if wait is not None else 0
            if allowed < 0:
                self._keep_use(call, use)
                return None
            if wait is None or allowed == 0:
                whole = dialogue.whole(result) if isinstance(result, Answered) else dialogue.lost()
                return self._result(call, prompt, attempts, whole)
            await self._rest(wait)

    def _voice(self, dialogue: Dialogue) -> TargetSession:
        """The session that the next call of a conversation asks."""
        if not dialogue.of_user:
            return self._session
        assert self._session.user is not None  # a sweep with simulated users does not begin without their target
        return self._session.user

    async def _case_use(self, call: int) -> CaseUse:
        """What the call's case has used of its budget, in other processes too."""
        target, before = self._session.named.target, Used()
        use = CaseUse(target.case_budget)
        while use.bounded:
            try:
                before = await asyncio.to_thread(self._calls.used, self._header.run, call)
                break
            except (redis.RedisError, OSError):
                await asyncio.sleep(_RETRY_SECONDS)
        return CaseUse(target.case_budget, before)

    def _keep_use(self, call: int, use: CaseUse) -> None:
        """The call goes back: whoever makes it next begins with what it has used."""
        if use.bounded:
            self._used[call] = use.used

    async def _attempt(self, voice: TargetSession, call: int, request: Call, use: CaseUse) -> Answered | Failure | None:
        """Make one attempt when its turn comes; None if the call was withdrawn before."""
        caller, pacer = voice.caller, voice.pacer
        if self._withdrawn.is_set() or caller is None or pacer is None:
            return None
        task = asyncio.current_task()

        async def may_begin() -> bool:
            allowed = not self._withdrawn.is_set() and await self._note_attempt(call)
            use.begin()
            self._queued.discard(task)
            return allowed and not self._withdrawn.is_set()

        self._queued.add(task)
        try:
            return await attempt(caller, pacer, request, may_begin, self._lane(), self._path)
        except asyncio.CancelledError:
            # withdraw() cancels only waiting calls: any other cancellation is meant for the call itself.
            if task is None or task not in self._queued:
                raise
            task.uncancel()
            return None
        finally:
            self._queued.discard(task)

    @contextlib.asynccontextmanager
    async def _lane(self) -> AsyncIterator[None]:
        async with self._lanes.lane(self._path):
            self._calling += 1
            if self.held_back:
                self._wake.set()
            try:
                yield
            finally:
                self._calling -= 1

    async def _note_attempt(self, call: int) -> bool:
        """Note in the ledger that an attempt begins, before it is paid; False if this process may not make it."""
        permission: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        before = self._attempts.get(call, 0)
        # From here on the ledger may have the note, so `mine` must count the attempt.
        self._attempts[call] = before + 1
        self._to_note[call] = before + 1, permission
        if self._noter is None or self._noter.done():
            self._noter = asyncio.create_task(self._note_attempts(), name="evalq-begin")
        allowed = False
        try:
            allowed = await permission
        finally:
            if not allowed:
                self._attempts[call] = before
        return allowed

    async def _note_attempts(self) -> None:
        """Note attempts in batches: those that come up during one round trip go with the next."""
        while self._to_note:
            some, self._to_note = self._to_note, {}
            numbers = {call: number for call, (number, _) in some.items()}
            allowed: set[int] | None = None
            while allowed is None:
                try:
                    allowed = await asyncio.to_thread(self._calls.begin, self._header.run, self._holder, numbers)
                except (redis.RedisError, OSError):
                    await asyncio.sleep(_RETRY_SECONDS)
            for call, (_, permission) in some.items():
                if not permission.done():
                    permission.set_result(call in allowed)

    async def _talk(self, call: int) -> bytes | None:
        """The conversation of a call so far, which another process had."""
        while True:
            try:
                return await asyncio.to_thread(self._calls.talk, self._header.run, call)
            except WireError:
                return None
            except (redis.RedisError, OSError):
                await asyncio.sleep(_RETRY_SECONDS)

    async def _keep_talk(self, call: int, dialogue: Dialogue, attempts: Sequence[Answered | Failure | Attempt]) -> bool:
        """Keep a conversation so far in the ledger, as its answers are paid. False if the call is not held any more."""
        done = recorded_attempts(attempts, self._session.named)
        kept = self._attempts.get(call, 0)
        state, cost = dialogue.state(done), likely_cost(done)
        keep = partial(
            self._calls.keep_talk, self._header.run, self._holder, call, kept, state, attempts=len(done), cost=cost
        )
        while True:
            try:
                held = await asyncio.to_thread(keep)
                break
            except (redis.RedisError, OSError):
                await asyncio.sleep(_RETRY_SECONDS)
        if held:
            self._kept[call] = kept
        return held

    async def _again(self, call: int, *, goes_on: bool = False) -> int:
        ask = partial(self._calls.again, self._header.run, call, goes_on=goes_on)
        while True:
            try:
                # The server counts attempts, so it must answer before the call is paid again.
                return await asyncio.to_thread(ask)
            except (redis.RedisError, OSError):
                await asyncio.sleep(_RETRY_SECONDS)

    async def _rest(self, seconds: float) -> None:
        """Pause before a retry, until the sweep is withdrawn at the latest; another call may use the room."""
        self._resting += 1
        self._wake.set()
        try:
            async with asyncio.timeout(seconds):
                await self._withdrawn.wait()
        except TimeoutError:
            pass
        finally:
            self._resting -= 1

    def _result(
        self,
        call: int,
        prompt: Prompt,
        attempts: list[Answered | Failure | Attempt],
        whole: Answered | None,
        lost: Failure | None = None,
    ) -> Result:
        session = self._session
        result = result_of(self._header, session.named, session.config, call, prompt, attempts, whole, lost=lost)
        if result.fatal:
            # A wrong key fails every call: do not spend the waiting calls on it.
            self._refusals += 1
            self.withdraw()
        return result

    async def _recording(self) -> None:
        """Record ended calls, soon and in batches."""
        while not self._closing:
            await self._due.wait()
            # Calls end in bursts: record those of a moment in one round trip.
            await asyncio.sleep(_GATHER_SECONDS)
            self._due.clear()
            try:
                await self._record()
            except (redis.RedisError, OSError) as error:
                log.warning("outputs cannot be recorded yet: %s", error)
                self._due.set()
                await asyncio.sleep(_RETRY_SECONDS)

    async def _record(self) -> None:
        results, returned = list(self._results), dict(self._returned)
        run, holder = self._header.run, self._holder
        if results:
            await asyncio.to_thread(self._calls.commit, run, holder, self._header.target, results)
            # Results that came meanwhile stay for the next time.
            del self._results[: len(results)]
            for result in results:
                self._attempts.pop(result.output.call, None)
            # Only now: uncommitted results are still in ``_results``, so the server cannot have lost them.
            self._recent.keep(results)
        used = {call: self._used[call] for call in returned if call in self._used}
        if used:
            await asyncio.to_thread(self._calls.keep_used, run, holder, used)
        if returned:
            await asyncio.to_thread(self._calls.give_back, run, holder, returned)
            for call in returned:
                self._returned.pop(call, None)
                self._used.pop(call, None)
                self._attempts.pop(call, None)


# -- outputs recorded lately, to resend to a server that was restored to a slightly older state ----


_KEPT_SECONDS = 30.0
_KEPT_BYTES = 16 << 20


class _RecentAnswers:
    """Outputs recorded lately, the oldest first."""

    def __init__(self) -> None:
        self._results: dict[int, tuple[float, int, Result]] = {}
        self._size = 0

    def keep(self, results: list[Result]) -> None:
        """Keep answers for a while, but no failures: the driver may want those calls made again."""
        now = time.monotonic()
        for result in results:
            if not result.output.failed:
                self.take([result.output.call])
                size = len(result.output.output) + len(result.output.text or "")
                self._results[result.output.call] = (now, size, result)
                self._size += size

    def calls(self) -> list[int]:
        """The calls whose outputs are kept."""
        over = time.monotonic() - _KEPT_SECONDS
        for call, (at, _, _) in list(self._results.items()):
            # The oldest come first, so all behind it are young enough.
            if at > over and self._size <= _KEPT_BYTES:
                break
            self.take([call])
        return list(self._results)

    def take(self, calls: list[int]) -> list[Result]:
        """Remove and return the results of ``calls``, marked as resent."""
        removed = [kept for call in calls if (kept := self._results.pop(call, None))]
        self._size -= sum(size for _, size, _ in removed)
        return [msgspec.structs.replace(result, resent=True) for _, _, result in removed]
