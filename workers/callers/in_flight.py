"""The calls of one sweep that this process has: made by the fleet's pace, tried again by policy, recorded together."""

from __future__ import annotations

import asyncio
import logging
import time

import msgspec
import redis

from evalq.evalcore.errors import BrokerUnreachable
from evalq.evalcore.model.calls import Prompt
from evalq.workers.callers.outcomes import reached_nobody, result_of
from evalq.workers.callers.target_sessions import TargetSession
from evalq.workers.ledger.calls import CallLedger
from evalq.workers.ledger.sweep_model import Result, SweepHeader
from evalq.workers.ratelimit import RateLimiter
from evalq.workers.targets import Answer, Call, Caller, Failure, Tries, attempt

log = logging.getLogger("evalq.calls")

_GATHER_SECONDS = 0.02
_RETRY_SECONDS = 0.5


class InFlightCalls:
    """Calls from their claim to their record. ``wake`` is set whenever one ends; ``lanes`` bounds calls in flight."""

    def __init__(
        self,
        header: SweepHeader,
        holder: str,
        session: TargetSession,
        calls: CallLedger,
        lanes: asyncio.Semaphore,
        wake: asyncio.Event,
    ) -> None:
        self._header = header
        self._holder = holder
        self._session = session
        self._calls = calls
        self._lanes = lanes
        self._wake = wake
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._begun: dict[int, float] = {}
        self._attempts: dict[int, int] = {}
        self._beginning: dict[int, tuple[int, asyncio.Future[bool]]] = {}
        self._beginner: asyncio.Task[None] | None = None
        self._queued: set[asyncio.Task[None] | None] = set()
        self._resting = 0
        self._withdrawn = asyncio.Event()
        self._refusals = 0
        self._results: list[Result] = []
        self._returned: dict[int, int] = {}
        self._recent = _RecentAnswers()
        self._due = asyncio.Event()
        self._closing = False
        self._recorder = asyncio.create_task(self._recording(), name="evalq-record")
        self.prompts: dict[int, Prompt] = {}

    @property
    def target(self) -> str:
        """Whom they are made of."""
        return self._header.target

    @property
    def active(self) -> int:
        """Calls that are being made or wait for their turn; those that rest before a retry are not counted."""
        return len(self._tasks) - self._resting

    @property
    def oldest(self) -> tuple[str, float] | None:
        """The case of the call that was begun first of those in flight, and the seconds since; None without one."""
        if not self._begun:
            return None
        call, at = min(self._begun.items(), key=lambda item: item[1])
        prompt = self.prompts.get(call % self._header.cases)
        return prompt.case if prompt else "", time.monotonic() - at

    @property
    def idle(self) -> bool:
        """Nothing is called, and all is recorded."""
        return not (self._tasks or self._results or self._returned)

    @property
    def mine(self) -> dict[int, int]:
        """Calls that this process has, by their attempts that have begun: made, or about to be, or not yet recorded or
        given back."""
        known = self._tasks.keys() | {result.output.call for result in self._results} | self._returned.keys()
        return {call: self._attempts.get(call, 0) for call in known}

    @property
    def recent(self) -> list[int]:
        """Calls that were recorded so lately that a server may have lost them."""
        return self._recent.calls()

    def record_again(self, calls: list[int]) -> None:
        """Record these once more: the ledger has lost them."""
        self._results += self._recent.take(calls)
        self._due.set()

    @property
    def refused(self) -> bool:
        """A fatal failure is known here that the ledger has not yet been told: what it offers is not to be taken."""
        return any(result.fatal for result in self._results)

    @property
    def refusals(self) -> int:
        """Fatal failures so far; an offer asked for before the last of them is out of date."""
        return self._refusals

    def decline(self, calls: list[int]) -> None:
        """Give these calls back, unmade."""
        self._returned.update(dict.fromkeys(calls, 0))
        self._due.set()

    def start(self, calls: list[int]) -> None:
        """Make these calls. A sweep that was withdrawn and goes on again is called as before.

        A ledger that lost some may hand out what is being made here already, or was: that is not made twice.
        """
        self._withdrawn.clear()
        # Before `mine` is asked for: what is told again is this process's, and not made a second time.
        self.record_again(calls)
        known = self.mine
        for call in calls:
            if call in known:
                continue
            task = asyncio.create_task(self._one(call))
            self._tasks[call] = task

    def withdraw(self) -> None:
        """Make no further call: what waits is given back at once, what is in flight ends and is recorded."""
        self._withdrawn.set()
        for task in self._queued:
            if task is not None:
                task.cancel()

    async def ended(self) -> None:
        """Until no call is in flight."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    async def close(self) -> None:
        """Cut off what is still in flight and record what ended."""
        for task in self._tasks.values():
            task.cancel()
        if self._beginner is not None:
            self._beginner.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._closing = True
        self._due.set()
        # A record that is under way ends: cut off, it would be made again and counted twice.
        await asyncio.gather(self._recorder, return_exceptions=True)
        await self._record()

    async def _one(self, call: int) -> None:
        attempts: list[Answer | Failure] = []
        self._begun[call] = time.monotonic()
        try:
            done = await self._made(call, attempts)
            if done is None:
                # Attempts that came to nothing, and may have been paid.
                self._returned[call] = sum(not reached_nobody(result) for result in attempts)
            else:
                self._results.append(done)
        finally:
            self._tasks.pop(call, None)
            del self._begun[call]
            self._due.set()
            self._wake.set()

    async def _made(self, call: int, attempts: list[Answer | Failure]) -> Result | None:
        """What became of a call; None where it was withdrawn."""
        session, prompt = self._session, self.prompts.get(call % self._header.cases)
        if prompt is None:
            return None
        repeat = call // self._header.cases
        if session.caller is None or session.pacer is None:
            return None
        asked = Call(prompt.text, prompt.agent, prompt.case, repeat, prompt.messages, self._header.takes_text)
        tries = Tries(session.named.target)
        while True:
            try:
                result = await self._attempt(session.caller, session.pacer, call, asked)
            # The pace is the fleet's: without its server no call may start. This one waits, and has not failed.
            except BrokerUnreachable:
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if result is None:
                return None
            attempts.append(result)
            session.breaker.record(result)
            if session.breaker.holds(result):
                self.withdraw()  # until this process claims again: one call, to see whether the target is back
                return None
            wait = tries.wait(result)
            # Asked after the policy: each yes counts as an attempt of the budget.
            allowed = await self._again(call) if wait is not None else 0
            if allowed < 0:
                return None
            if wait is None or allowed == 0:
                return self._result(call, prompt, attempts)
            await self._rest(wait)

    async def _attempt(self, caller: Caller, pacer: RateLimiter, call: int, asked: Call) -> Answer | Failure | None:
        """One call in its turn; None where it was withdrawn before that came, however long it would have taken."""
        if self._withdrawn.is_set():
            return None
        task = asyncio.current_task()

        async def called() -> bool:
            may = not self._withdrawn.is_set() and await self._begins(call)
            self._queued.discard(task)
            return may and not self._withdrawn.is_set()

        self._queued.add(task)
        try:
            return await attempt(caller, pacer, asked, called, self._lanes)
        except asyncio.CancelledError:
            # withdraw() cancels what waits in the queue alone: any other cancellation is meant for the call itself.
            if task is None or task not in self._queued:
                raise
            task.uncancel()
            return None
        finally:
            self._queued.discard(task)

    async def _begins(self, call: int) -> bool:
        """Have the ledger note that an attempt begins, before it may be paid; False where it is not to be made here."""
        may: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        before = self._attempts.get(call, 0)
        # From here on it may be noted: who names its calls must not say less.
        self._attempts[call] = before + 1
        self._beginning[call] = before + 1, may
        if self._beginner is None or self._beginner.done():
            self._beginner = asyncio.create_task(self._note_begun(), name="evalq-begin")
        allowed = False
        try:
            allowed = await may
        finally:
            if not allowed:
                self._attempts[call] = before
        return allowed

    async def _note_begun(self) -> None:
        """What comes up while one note is under way goes with the next: never a round trip for each call of many."""
        while self._beginning:
            some, self._beginning = self._beginning, {}
            numbers = {call: number for call, (number, _) in some.items()}
            allowed: set[int] | None = None
            while allowed is None:
                try:
                    allowed = await asyncio.to_thread(self._calls.begin, self._header.run, self._holder, numbers)
                except (redis.RedisError, OSError):
                    await asyncio.sleep(_RETRY_SECONDS)
            for call, (_, may) in some.items():
                if not may.done():
                    may.set_result(call in allowed)

    async def _again(self, call: int) -> int:
        while True:
            try:
                # Counted at the server, which has to be reached before a call may be paid again.
                return await asyncio.to_thread(self._calls.again, self._header.run, call)
            except (redis.RedisError, OSError):
                await asyncio.sleep(_RETRY_SECONDS)

    async def _rest(self, seconds: float) -> None:
        """The wait before a retry, shorter when the sweep is withdrawn; another call may use the room."""
        self._resting += 1
        self._wake.set()
        try:
            async with asyncio.timeout(seconds):
                await self._withdrawn.wait()
        except TimeoutError:
            pass
        finally:
            self._resting -= 1

    def _result(self, call: int, prompt: Prompt, attempts: list[Answer | Failure]) -> Result:
        result = result_of(self._header, self._session.named, self._session.config, call, prompt, attempts)
        if result.fatal:
            # A wrong key fails every call alike: those that wait need not be spent on finding that out again.
            self._refusals += 1
            self.withdraw()
        return result

    async def _recording(self) -> None:
        """Record what ended, soon and together."""
        while not self._closing:
            await self._due.wait()
            # Calls end in bursts: those of a moment are one round trip together instead of one each.
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
            # What ended meanwhile stays for the next time.
            del self._results[: len(results)]
            for result in results:
                self._attempts.pop(result.output.call, None)
            # Only now: what was never committed is still in ``_results``, and cannot have been lost by the server.
            self._recent.keep(results)
        if returned:
            await asyncio.to_thread(self._calls.give_back, run, holder, returned)
            for call in returned:
                self._returned.pop(call, None)
                self._attempts.pop(call, None)


# -- outputs recorded lately: a server that comes back a moment older is told them again -----------


_KEPT_SECONDS = 30.0
_KEPT_BYTES = 16 << 20


class _RecentAnswers:
    """Outputs that were recorded lately, the oldest first."""

    def __init__(self) -> None:
        self._results: dict[int, tuple[float, int, Result]] = {}
        self._size = 0

    def keep(self, results: list[Result]) -> None:
        """Keep answers for a while. A failure is not worth it: it may be meant to be called again."""
        now = time.monotonic()
        for result in results:
            if not result.output.failed:
                self.take([result.output.call])
                size = len(result.output.output) + len(result.output.text or "")
                self._results[result.output.call] = (now, size, result)
                self._size += size

    def calls(self) -> list[int]:
        """Those that are kept."""
        over = time.monotonic() - _KEPT_SECONDS
        for call, (at, _, _) in list(self._results.items()):
            # The oldest come first, so all behind it are young enough.
            if at > over and self._size <= _KEPT_BYTES:
                break
            self.take([call])
        return list(self._results)

    def take(self, calls: list[int]) -> list[Result]:
        """Those of ``calls`` that are kept, which are not any more."""
        taken = [kept for call in calls if (kept := self._results.pop(call, None))]
        self._size -= sum(size for _, size, _ in taken)
        return [msgspec.structs.replace(result, resent=True) for _, _, result in taken]
