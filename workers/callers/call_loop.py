"""Calls of one sweep on an event loop in a thread, paced and budgeted by this process alone."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from evalq.evalcore.errors import WireError
from evalq.evalcore.model.calls import Attempt, Prompt, Spending, Used, likely_cost
from evalq.workers.callers.case_use import CaseUse
from evalq.workers.callers.dialogue import Dialogue
from evalq.workers.callers.local_pacer import LocalPacer
from evalq.workers.callers.outcomes import Breaker, call_of, reached_nobody, recorded_attempts, result_of
from evalq.workers.ledger.sweep_model import Result, SweepHeader
from evalq.workers.targets import Answered, Call, Caller, Failure, NamedTarget, Tries, attempt

_HOLD_SECONDS = 0.1
_ALONE_SECONDS = 1.0
"""So long the first call goes alone: a key that is refused, or a wrong address, is then paid for once."""
_ENOUGH_UNPRICED = 10
"""So many answers that tell no cost are enough to know that none will."""


class Limits(NamedTuple):
    """A sweep's budgets of calls and cost (0: none), and how long a target that is down is tried."""

    calls: int
    cost: float
    down_seconds: float


class CallsBefore(NamedTuple):
    """What the run folder knows before the calls: attempts begun and lost, outputs paid for, errors, what they cost,
    and whether the target was ever reached. ``talks`` has {call: (attempts, cost)} of conversations that have not
    ended; their attempts are not among those begun.
    """

    begun: int
    lost: int
    paid: int
    errors: int
    spending: Spending
    answered: bool
    talks: Mapping[int, tuple[int, float]]


class Talks(NamedTuple):
    """The run folder's part in conversations: what it has of a call, and keeping (call, attempts, cost, state)."""

    known: Callable[[int], bytes | None]
    keep: Callable[[int, int, float, bytes], None]


class _Voice:
    """A target that this process calls: the agent, or who simulates its users."""

    caller: Caller
    pacer: LocalPacer

    def __init__(self, named: NamedTarget, answered: bool) -> None:
        self.named = named
        self.where = named.target.address()
        self.breaker = Breaker()
        self.answered = answered
        """Whether the target was ever reached."""


class Uses(NamedTuple):
    """The run folder's part in the budgets of cases: what it knows a call to have used, and keeping that."""

    known: Callable[[int], Used]
    keep: Callable[[int, Used], None]


class CallLoop:
    """The event loop of the calls, in a thread. It puts each `Result` into ``made``.

    Before attempts begin it calls ``note_begun`` with the number of attempts so far, and of those without an output.
    """

    def __init__(
        self,
        header: SweepHeader,
        named: NamedTarget,
        config: str,
        limits: Limits,
        before: CallsBefore,
        lanes: int,
        has: Callable[[int], bool],
        halted: Callable[[], Collection[int]],
        note_begun: Callable[[int, int], None],
        talks: Talks,
        uses: Uses,
    ) -> None:
        """``has``: whether a call is recorded; ``halted``: cases that are asked no more; ``lanes``: calls at once."""
        self._header, self._limits, self._before = header, limits, before
        self._named, self._config = named, config
        self._lanes = lanes
        self._has, self._halted = has, halted
        self._note_begun = note_begun
        self._talks = talks
        self._uses = uses
        self._talked = dict(before.talks)
        self._agent = _Voice(named, before.answered)
        self._user = _Voice(named.user, answered=False) if named.user is not None else None
        self.made: deque[Result] = deque()
        """Results that are not recorded yet. Who records them removes them afterwards: an interrupt loses none."""
        self.arrived = threading.Event()
        self.failed = ""
        """Why no further call is made: a failure that all of them would have."""
        self.begun = self.wasted = 0
        """Attempts of this process that began, and those that ended without an output."""
        self._chosen: dict[int, bool] = {}
        self._unrecorded: dict[int, int] = {}
        self._retrying: set[int] = set()
        self._paid, self._errors = before.paid, before.errors
        self._spending = before.spending
        self._pointer = 0
        self._stopped = self._ending = False
        self._queued: set[asyncio.Task[None]] = set()
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._noting: asyncio.Task[None] | None = None
        self._to_note: list[asyncio.Future[None]] = []
        self._error: BaseException | None = None
        self._main: asyncio.Task[None] | None = None

    # What the other thread sees

    @property
    def busy(self) -> int:
        """Calls that were begun or chosen, and have not ended."""
        return len(self._chosen)

    @property
    def unrecorded(self) -> list[int]:
        """Of each output that the folder does not have yet, the number of attempts."""
        return list(self._unrecorded.values())

    @property
    def idle(self) -> bool:
        """Whether no call is under way. Raises what ended the loop."""
        if self._error is not None:
            raise self._error
        return not self._chosen

    @property
    def trouble(self) -> str:
        """Why calls are held, as their target is down; empty while they are made."""
        return self._agent.breaker.reason or (self._user.breaker.reason if self._user is not None else "")

    @property
    def spent(self) -> bool:
        """Whether the budgets allow no further call."""
        return self._room() <= 0

    @property
    def spent_reason(self) -> str:
        """Why it is spent."""
        costless = self._unpriced() and self._spending.unknown
        return "the target reports no tokens, so its cost is not known" if costless else "the budget is spent"

    def recorded(self, calls: Iterable[int]) -> None:
        """These are in the folder now."""
        for call in calls:
            self._unrecorded.pop(call, None)
        self.wake()

    def wake(self) -> None:
        """Look for calls to make again: cases may have been decided, or opened again."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._release)

    def stop(self) -> None:
        """Begin no further attempt."""
        self._stopped = True
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._withdraw)

    @contextlib.contextmanager
    def running(self, prompts: Sequence[Prompt]) -> Iterator[None]:
        """The block in which calls are made; its end cuts off what is still in flight."""
        self._prompts = prompts
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._thread, name="evalq-calls", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopped = self._ending = True
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._cancel)
            thread.join()

    # On the loop

    def _cancel(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def _thread(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._main = self._loop.create_task(self._serve())
            with contextlib.suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._main)
        except BaseException as error:  # it ends the command, in the other thread
            self._error = error
        finally:
            with contextlib.suppress(Exception):
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
                self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _serve(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for voice in filter(None, (self._agent, self._user)):
                voice.pacer = LocalPacer(voice.named.target)
                voice.caller = await stack.enter_async_context(Caller(voice.named))
            self._alone_until = self._loop.time() + _ALONE_SECONDS
            self._loop.call_later(_ALONE_SECONDS, self._release)
            # As many lanes as calls: one that has nothing to do costs nothing, but to make it.
            count = min(self._lanes, self._header.total)
            tasks = [asyncio.create_task(self._lane()) for _ in range(count)]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _lane(self) -> None:
        while True:
            call = self._next()
            if call is None:
                await self._released()
                continue
            self._chosen[call] = False
            try:
                await self._one(call)
            finally:
                self._chosen.pop(call, None)
                self._retrying.discard(call)
                self._release()
            # What is paid for and not on disk is at most a call a lane, should the process be killed.
            while call in self._unrecorded:
                await self._released()

    def _next(self) -> int | None:
        """The next call to make; None while there is none."""
        if self._stopped or self.failed or self._room() <= 0 or self.trouble:
            return None
        if not self._agent.answered and self._chosen and self._loop.time() < self._alone_until:
            return None
        halted, cases = self._halted(), self._header.cases
        for call in range(self._pointer, self._header.total):
            if self._has(call) or call in self._chosen or call in self._unrecorded:
                if call == self._pointer and call not in self._chosen:
                    self._pointer += 1
            elif call % cases not in halted:
                return call
        return None

    async def _one(self, call: int) -> None:
        """Make one call, with its retries, and give its result on; nothing where it is not to be made any more."""
        prompt, header = self._prompts[call % self._header.cases], self._header
        asked = call_of(header, prompt, call // header.cases)
        attempts = list[Answered | Failure | Attempt]()
        use = CaseUse(self._named.target.case_budget, self._uses.known(call))
        if spent := use.spent():
            lost = use.lost(spent)
            self._give(result_of(header, self._named, self._config, call, prompt, attempts, lost=lost))
            return
        dialogue = Dialogue(self._agent.caller, asked, prompt)

        async def keep() -> bool:
            """Have the folder keep the conversation so far: its answers are paid, and no kill may lose them."""
            await self._keep_talk(call, dialogue, attempts)
            return not (self._stopped or self.failed)

        if call in self._talked and (state := await asyncio.to_thread(self._talks.known, call)) is not None:
            try:
                attempts += dialogue.restore(state)
                if not await dialogue.prepare(keep):
                    return
            except WireError:
                # Another version of evalq kept it: the conversation begins anew, and its attempts give no output.
                paid, _ = self._talked.pop(call)
                self.begun, self.wasted = self.begun + paid, self.wasted + paid
        voice = self._voice(dialogue)
        tries = Tries(voice.named.target)
        while True:
            result = await self._attempt(call, dialogue.request, voice, use)
            if result is None:
                break
            result = dialogue.checked(result)
            attempts.append(result)
            voice.breaker.record(result)
            unreached = not voice.answered and isinstance(result, Failure) and not result.connected
            if isinstance(result, Answered) or not result.down:
                voice.answered = True
                self._release()
            elif unreached:
                self._fail(f"{voice.named.name}: {result.reason} ({voice.where})")
            if voice.breaker.holds(result):
                # The target's failure, and no fault of this call.
                self._drop([attempts.pop()])
                self._keep_use(call, use)
                if spent := use.spent():
                    # Its seconds pass while the target is down, too: it may be down for this case alone.
                    lost = use.ended(result, spent) if isinstance(result, Failure) else use.lost(spent)
                    made = result_of(
                        header, self._named, self._config, call, prompt, attempts, dialogue.lost(), lost=lost
                    )
                    self.begun += self._talked.pop(call, (0, 0.0))[0]
                    self._give(made)
                    return
                if not await self._reached_again(voice):
                    break
                continue
            use.add(result, voice.named.target.price)
            if isinstance(result, Answered) and dialogue.take(result):
                self._keep_use(call, use)
                if not await keep() or not await dialogue.prepare(keep) or not self._again(call, goes_on=True):
                    break
                voice = self._voice(dialogue)
                tries = Tries(voice.named.target)
                continue
            wait = tries.wait(result)
            if wait is not None and isinstance(result, Failure) and (spent := use.spent(wait)):
                attempts[-1], wait = use.ended(result, spent), None
            # A resume tries it again.
            if unreached or (wait is not None and (self._stopped or self.failed)):
                break
            if wait is None or not self._again(call):
                whole = dialogue.whole(result) if isinstance(result, Answered) else dialogue.lost()
                made = result_of(header, self._named, self._config, call, prompt, attempts, whole)
                if not made.fatal:
                    # Now they are attempts of an output.
                    self.begun += self._talked.pop(call, (0, 0.0))[0]
                    self._give(made)
                    return
                self._fail(made.fatal)  # it is no output of its case: all calls would fail alike
                break
            await self._sleep(wait)
            if self._stopped or self.failed:
                break
        self._drop(attempts[self._talked.get(call, (0, 0.0))[0] :])

    def _voice(self, dialogue: Dialogue) -> _Voice:
        """Whom the next call of a conversation asks."""
        if not dialogue.of_user:
            return self._agent
        assert self._user is not None  # a sweep with simulated users does not begin without their target
        return self._user

    async def _keep_talk(self, call: int, dialogue: Dialogue, attempts: Sequence[Answered | Failure | Attempt]) -> None:
        """Have the folder keep a conversation so far, in which the ``attempts`` are paid."""
        done = recorded_attempts(attempts, self._named)
        cost = likely_cost(done)
        await asyncio.to_thread(self._talks.keep, call, len(done), cost, dialogue.state(done))
        # They count by the folder's note from here on, in this process and in one that goes on.
        self.begun -= len(done) - self._talked.get(call, (0, 0.0))[0]
        self._talked[call] = len(done), cost

    def _keep_use(self, call: int, use: CaseUse, *, trying: bool = False) -> None:
        """Have the folder keep what a case has used of its budget, ``trying`` or not."""
        if use.bounded:
            self._uses.keep(call, use.while_trying if trying else use.used)

    async def _attempt(self, call: int, asked: Call, voice: _Voice, use: CaseUse) -> Answered | Failure | None:
        """One attempt in its turn; None if it is not to be made any more, however long its turn would take."""
        task = asyncio.current_task()
        assert task is not None

        async def begins() -> bool:
            self._queued.discard(task)
            if not await self._begins(call):
                return False
            use.begin()
            if use.bounded:
                # Before it is made: a try that a kill cuts off has been one.
                await asyncio.to_thread(self._keep_use, call, use, trying=True)
            return True

        if self._stopped or self.failed:
            return None
        self._queued.add(task)
        try:
            return await attempt(voice.caller, voice.pacer, asked, begins)
        except asyncio.CancelledError:
            # `_withdraw` cancels only what waits for its turn; another cancellation ends the call itself.
            if task not in self._queued or self._ending:
                raise
            task.uncancel()
            return None
        finally:
            self._queued.discard(task)

    def _withdraw(self) -> None:
        """End the waiting of attempts for their turn."""
        for task in self._queued:
            task.cancel()
        self._release()

    def _drop(self, attempts: Sequence[Answered | Failure | Attempt]) -> None:
        """Count attempts that give no output: one that reached nobody was no attempt."""
        for result in attempts:
            if not isinstance(result, Attempt) and reached_nobody(result):
                self.begun -= 1
            else:
                self.wasted += 1

    def _give(self, result: Result) -> None:
        output = result.output
        self._unrecorded[output.call] = len(output.attempts)
        self._paid += 1
        self._spending.add(
            output.likely_cost, known=output.priced == "told", unknown=output.unpriced, answered=output.answered
        )
        self._errors += output.failed
        self.made.append(result)
        self.arrived.set()

    def _fail(self, reason: str) -> None:
        self.failed = self.failed or reason
        self._withdraw()

    async def _begins(self, call: int) -> bool:
        """Have the folder note that an attempt begins; return False if it is not to be made any more."""
        if self._stopped or self.failed:
            return False
        self._chosen[call] = True
        self._retrying.discard(call)
        self.begun += 1
        noted: asyncio.Future[None] = self._loop.create_future()
        self._to_note.append(noted)
        if self._noting is None or self._noting.done():
            self._noting = self._loop.create_task(self._note())
        await noted
        return True

    async def _note(self) -> None:
        """Many attempts that begin together are one note."""
        while self._to_note:
            some, self._to_note = self._to_note, []
            try:
                await asyncio.to_thread(self._note_begun, self.begun, self.wasted)
            except Exception as error:
                self._error = error  # no call may begin that the folder does not know of
                return
            for noted in some:
                if not noted.done():
                    noted.set_result(None)

    async def _reached_again(self, voice: _Voice) -> bool:
        """Wait until this call may probe a target that is down, or somebody reached it; False if it is given up."""
        while voice.breaker.is_open:
            if voice.breaker.seconds > self._limits.down_seconds:
                self._fail(f"{voice.named.name}: it does not answer: {voice.breaker.reason} ({voice.where})")
            if self._stopped or self.failed:
                return False
            if voice.breaker.room(1):
                return True
            await self._sleep(_HOLD_SECONDS)
        return True

    def _release(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    async def _released(self) -> None:
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._waiting[waiting] = None
        try:
            await waiting
        finally:
            self._waiting.pop(waiting, None)

    async def _sleep(self, seconds: float) -> None:
        """Sleep, but no longer once no further attempt is to begin."""
        until = self._loop.time() + seconds
        while (left := until - self._loop.time()) > 0 and not (self._stopped or self.failed):
            await asyncio.sleep(min(left, _HOLD_SECONDS))

    # Budgets, as in the ledger's prelude.lua: `room`, `spent` and `unpriced`

    def _started(self) -> int:
        """Attempts that were begun, first attempts of calls that were chosen, and retries that are still to begin."""
        to_begin = sum(not begun for begun in list(self._chosen.values()))
        talked = sum(attempts for attempts, _ in list(self._talked.values()))
        return self._before.begun + self.begun + talked + to_begin + len(self._retrying)

    def _talking(self) -> tuple[int, float]:
        """The attempts of conversations that have not ended, and their cost."""
        talked = list(self._talked.values())
        return sum(attempts for attempts, _ in talked), sum(cost for _, cost in talked)

    def _next_cost(self, calls: int) -> float:
        """What so many calls that are under way will cost, at the mean of those of conversations so far."""
        attempts, cost = self._talking()
        return calls * cost / attempts if attempts else 0.0

    def _spent_cost(self) -> float:
        # Lost attempts count at the mean of those that were paid: an output of a conversation has several.
        cost, paid = self._spending.total, max(self._paid, self._spending.answered)
        return (cost + self._before.lost * cost / paid if paid else cost) + self._talking()[1]

    def _unpriced(self) -> bool:
        return bool(self._limits.cost) and self._spending.total == 0 and self._spending.known == 0

    def _room(self) -> float:
        """How many more calls the budgets allow: calls, and cost at the mean of those that were paid."""
        most_calls, most_cost = self._limits.calls, self._limits.cost
        room = most_calls - self._started() if most_calls else math.inf
        if most_cost:
            busy = len(self._chosen)
            if self._unpriced():
                # What a call costs shows when one was answered: ten at once could cost many times the budget.
                enough = _ENOUGH_UNPRICED - self._spending.unknown - self._before.lost
                room = min(room, enough - busy, 1 + self._errors - busy)
            elif (cost := self._spending.total) > 0:
                # An answer under way will cost the mean, of which its conversation has spent a part; or more, by its
                # next call at least.
                mean, (_, talking) = cost / self._paid, self._talking()
                left = most_cost - self._spent_cost() + talking - max(talking + self._next_cost(busy), busy * mean)
                room = min(room, math.floor(left / mean + 1e-6))
            if self._spent_cost() >= most_cost:
                room = min(room, 0)
        return room

    def _again(self, call: int, *, goes_on: bool = False) -> bool:
        """Whether the budgets allow a retry of ``call``, or the next call of a conversation that ``goes_on``.

        It counts from then on.
        """
        if self._stopped or self.failed:
            return False
        if self._limits.calls and self._started() >= self._limits.calls:
            return False
        others = self._next_cost(len(self._chosen) - 1) if goes_on else 0.0
        if self._limits.cost and self._spent_cost() + others >= self._limits.cost:
            return False
        self._retrying.add(call)
        return True
