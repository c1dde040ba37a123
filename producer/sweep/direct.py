"""The calls of a small sweep, made by this process alone: no server, no Celery, no process that calls.

The calls run on an event loop in a thread. The thread of the command records what comes, so an interrupt never cuts a
record. Budgets, retries and stop rules are those of the ledger's scripts (`workers/ledger/lua/sweeps`).
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import math
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from evalq.evalcore.errors import ConfigError, Incomplete, StorageError, UsageError, WireError
from evalq.evalcore.model.calls import Output, Prompt
from evalq.evalcore.model.canonical import Json
from evalq.producer.monitor.progress import ShownProgress, Watcher
from evalq.producer.run.backend import CALLS_HERE, CALLS_MOST, Backend
from evalq.producer.sweep.head import prompts_digest
from evalq.producer.sweep.intake import PAUSE_SECONDS, EarlyStopping, OutputIntake
from evalq.producer.sweep.reuse import Cache
from evalq.producer.sweep.sweep import Sweep
from evalq.workers.callers.local_pacer import LocalPacer
from evalq.workers.callers.outcomes import Breaker, reached_nobody, result_of
from evalq.workers.ledger.sweep_model import Result
from evalq.workers.processes.identity import unique_name
from evalq.workers.targets import Answer, Call, Caller, Failure, NamedTarget, Tries, attempt, load_targets
from evalq.workers.targets.config import choose
from evalq.workers.targets.target import config_digest

SMALL_CALLS = 10_000
"""The most calls that one process makes alone. A larger sweep has a server, which outlives a killed process."""
SMALL_BYTES = 64 << 20
"""The largest file of outputs whose judges this process calls alone."""
_TICK_SECONDS = 0.05
_HOLD_SECONDS = 0.1
_CACHE_SECONDS = 0.5
_ENOUGH_UNPRICED = 10
"""So many answers that tell no cost are enough to know that none will."""


def calls_alone(sweep: Sweep, backend: Backend) -> bool:
    """Whether this command makes the calls of ``sweep`` itself: it names targets, and no server, fleet or workers."""
    if backend.inline:
        return True
    if backend.settings.broker or backend.workers or not backend.settings.targets:
        return False
    if sweep.live.target:
        return sweep.header.total <= SMALL_CALLS
    return all(_size(path) <= SMALL_BYTES for path in [*map(Path, sweep.request.inputs), sweep.outputs])


def _size(path: str | Path) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


class LocalTargets:
    """The targets of the file that a command names, for calls from this process."""

    def __init__(self, backend: Backend) -> None:
        """Raises ConfigError for a missing or faulty file."""
        from evalq.workers.processes.environment import seal
        from evalq.workers.targets import key_names

        path = backend.settings.targets
        if not path:
            raise ConfigError("calling from here needs a targets file: name yours with --targets FILE")
        self._path = path
        self._targets = load_targets(path)
        seal(key_names(self._targets))
        most = max(CALLS_HERE, *(named.target.max_concurrency or 0 for named in self._targets.values()))
        self.calls = backend.settings.calls or min(most, CALLS_MOST)
        self.down_seconds = backend.settings.down_seconds

    def named(self, name: str, *, priced: bool) -> NamedTarget:
        """The target of that name. Raises UsageError for an unknown one, and for one without a price (``priced``)."""
        found = choose(self._targets, name)
        if found is None:
            raise UsageError(f"{self._path}: no target {name!r} (known: {', '.join(sorted(self._targets))})")
        if priced and found.target.price is None:
            raise UsageError(f"--max-cost: target {name!r} has no price in the targets file")
        return found


class DirectCalls:
    """All calls of one sweep that its folder does not have yet; `make` makes them."""

    def __init__(
        self, sweep: Sweep, targets: LocalTargets, cache: Cache | None = None, hurried: Callable[[], bool] = bool
    ) -> None:
        """``hurried`` says whether the user wants to wait for calls in flight no longer. Raises UsageError."""
        self._sweep = sweep
        self._named = targets.named(sweep.header.target, priced=bool(sweep.live.max_cost))
        self._config = config_digest(self._named)
        if not sweep.header.may_call(self._config):
            from evalq.producer.sweep.callers import changed_settings

            raise UsageError(changed_settings(sweep.header, [self._config]))
        self._hurried = hurried
        self._cache_file = sweep.live.cache
        ledger = _NoLedger()
        self._stopping = EarlyStopping(sweep, ledger)
        self._intake = OutputIntake(sweep, ledger, self._stopping, cache)
        self._lock = threading.Lock()
        self._targets = targets
        self._holder = _Holder()
        self._warned = False
        self.warnings: list[str] = []
        """Lines for the user that were not shown yet."""
        self.in_flight = 0
        """Calls that had not ended when an interrupt cut them off."""

    def make(self, watch: Watcher) -> dict[str, Json]:
        """Make the calls; show ``watch`` the progress. Returns how they ended, for run.json.

        Raises Incomplete where a target cannot be called or refuses all calls, and KeyboardInterrupt.
        """
        sweep, recorded = self._sweep, self._sweep.recorded
        sweep.folder.note(state="calling", server=None)
        self._stopping.recall()
        prompts = list(sweep.prompts())
        if prompts_digest(prompts)[1] != sweep.header.asked["prompts"]:
            raise WireError(f"{sweep.folder.path}: its prompts are not those it was begun with; start it anew")
        if recorded.config not in ("", self._config):
            self.warnings.append(
                f"warning: {sweep.header.target!r} has other settings than before; its outputs are of several settings"
            )
        self._take_known(watch)
        # Attempts that a dead process had in flight are lost.
        recorded.note_begun(recorded.begun, {}, {})
        recorded.reserve()
        self._calls = _CallLoop(sweep, self._named, self._config, self._targets, self._stopping, self._note_begun)
        try:
            ended = self._run(prompts, watch)
        except (OSError, StorageError):
            self._note_unwritten()
            raise
        recorded.release()
        if ended == "spent":
            # A failure without a second try counts as a failure: without it the run would look well.
            recorded.put_back()
        return {
            "target": sweep.header.target,
            "planned": sweep.header.total,
            "recorded": recorded.count,
            "errors": recorded.errors,
            "attempts": max(recorded.begun, recorded.ended),
            "repaid": 0,
            "lost": recorded.lost + recorded.gone,
            "cost": recorded.cost,
            "ended": ended,
            "reason": self._calls.spent_reason if ended == "spent" else "",
        }

    def _take_known(self, watch: Watcher) -> None:
        """Take over what earlier runs and the cache have."""
        if not self._intake.known:
            return
        while others := self._intake.waits_for(self._config):
            line = f"{self._cache_file}: waiting, since {others}; nothing is paid twice"
            if line not in self.warnings:
                self.warnings.append(line)
            watch(ShownProgress(0, 0, self._sweep.header.total, unit="calls"))
            time.sleep(_CACHE_SECONDS)
        if reused := self._intake.take_known(self._config):
            self.warnings.append(reused)

    def _run(self, prompts: Sequence[Prompt], watch: Watcher) -> str:
        """Make calls until all are recorded ("done") or the budget is "spent"."""
        calls = self._calls
        with calls.running(prompts), self._noting_the_end():
            try:
                while True:
                    # Before what it made is taken: then all that it made is seen.
                    idle = calls.idle
                    if not self._take(wait=not idle):
                        watch(self._progress())
                    if not (idle and calls.idle and calls.made.empty()):
                        continue
                    missing = self._missing()
                    if calls.failed:
                        kept = f"{self._sweep.recorded.count:,} of {self._sweep.header.total:,} outputs are recorded"
                        raise Incomplete(f"the calls stopped at {calls.failed}; {kept} and kept")
                    if not missing:
                        watch(self._progress())
                        return "done"
                    if calls.spent:
                        return "spent"
                    calls.wake()
            except KeyboardInterrupt:
                self._drain()
                raise

    @contextlib.contextmanager
    def _noting_the_end(self) -> Iterator[None]:
        """A block after which the folder has how many attempts are under way, whatever ends it."""
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                self._note_begun(self._calls.begun, self._calls.wasted)

    def _note_unwritten(self) -> None:
        """The folder takes no more outputs: note in its reserved room how many were paid for and are gone."""
        calls, holder, gone = self._calls, self._holder, self._calls.unrecorded
        tallies = {holder.name: holder.wire(calls.wasted + sum(gone))}
        with contextlib.suppress(OSError):  # the disk itself may be gone
            self._sweep.recorded.note_stopped(calls.begun_before + calls.begun, tallies, {}, len(gone))

    def _take(self, *, wait: bool) -> bool:
        """Record what was made; return False if there was nothing."""
        results: list[Result] = []
        with contextlib.suppress(queue.Empty):
            results.append(self._calls.made.get(timeout=_TICK_SECONDS if wait else 0.001))
            while True:
                results.append(self._calls.made.get_nowait())
        if not results:
            return False
        with self._lock:
            self._intake.record([result.output for result in results])
            for result in results:
                self._holder.count(result.output)
        if self._sweep.live.max_cost and self._sweep.recorded.spending.unknown and not self._warned:
            self._warned = True
            target = self._sweep.header.target
            self.warnings.append(
                f"warning: some answers of {target!r} tell no tokens: they count at the mean cost in --max-cost"
            )
        if self._intake.uncached:
            self.warnings.append(self._intake.uncached)
            self._intake.uncached = ""
        self._calls.recorded(result.output.call for result in results)
        return True

    def _note_begun(self, begun: int, wasted: int) -> None:
        """Note in the folder that ``begun`` attempts began so far, before the last of them may be paid; ``wasted`` of
        them ended without an output.
        """
        with self._lock:
            holder = self._holder
            under_way = begun - holder.attempts - wasted
            tallies = {holder.name: holder.wire(wasted)} if holder.attempts or wasted else {}
            at = {holder.name: under_way} if under_way > 0 else {}
            self._sweep.recorded.note_begun(self._calls.begun_before + begun, tallies, at)

    def _drain(self) -> None:
        """Record what ends in the next moment; make no more calls."""
        self._calls.stop()
        deadline = time.monotonic() + PAUSE_SECONDS
        while not self._calls.idle and time.monotonic() < deadline and not self._hurried():
            self._take(wait=True)
        while self._take(wait=False):
            pass
        self.in_flight = self._calls.busy

    def _missing(self) -> bool:
        recorded, header = self._sweep.recorded, self._sweep.header
        halted = self._stopping.halted
        return any(call % header.cases not in halted and not recorded.has(call) for call in range(header.total))

    def _progress(self) -> ShownProgress:
        recorded, header, stopping = self._sweep.recorded, self._sweep.header, self._stopping
        notes = [f"{self._calls.busy} in flight"]
        notes += [f"{recorded.errors} errors"] if recorded.errors else []
        notes += [f"{len(stopping.halted)} of {header.cases} cases decided"] if stopping.there else []
        notes += [f"cost {recorded.cost:.4g}"] if recorded.cost else []
        return ShownProgress(recorded.count, recorded.count, header.total, note=", ".join(notes), unit="calls")


class _NoLedger:
    """Takes what a ledger is told; here the folder alone has it."""

    def restore(self, run: str, calls: Sequence[int]) -> None:
        """Nothing: the folder has these outputs."""

    def halt(self, run: str, cases: Iterable[int], *, go: bool = False) -> None:
        """Nothing: the loop looks at the decided cases itself."""


class _Holder:
    """What this process made: attempts, outputs and cost, as processes tell a ledger (`ProcessTally`)."""

    def __init__(self) -> None:
        self.name = unique_name()
        self._token = secrets.token_hex(6)
        self.attempts = self._outputs = 0
        self._cost = 0.0

    def count(self, output: Output) -> None:
        """Add an output that is recorded."""
        self.attempts += len(output.attempts)
        self._outputs += 1
        self._cost += output.cost

    def wire(self, wasted: int) -> str:
        """As a ledger keeps it; ``wasted`` attempts ended without an output."""
        attempts = self.attempts + wasted
        return f"{self._token} {self._outputs + wasted} {attempts} {self._outputs} {self._cost!r}"


class _CallLoop:
    """The event loop of the calls, in a thread. It puts each `Result` into ``made``.

    Before attempts begin it calls ``note_begun`` with the number of attempts so far, and of those without an output.
    """

    def __init__(
        self,
        sweep: Sweep,
        named: NamedTarget,
        config: str,
        targets: LocalTargets,
        stopping: EarlyStopping,
        note_begun: Callable[[int, int], None],
    ) -> None:
        recorded = sweep.recorded
        self._header, self._live, self._folder_has = sweep.header, sweep.live, recorded.has
        self._named, self._config = named, config
        self._lanes = targets.calls
        self._down_seconds = targets.down_seconds
        self._stopping = stopping
        self._note_begun = note_begun
        self._where = named.target.address()
        self.made: queue.SimpleQueue[Result] = queue.SimpleQueue()
        self.failed = ""
        """Why no further call is made: a failure that all of them would have."""
        self.begun_before = max(recorded.begun, recorded.ended)
        self.begun = self.wasted = 0
        """Attempts of this process that began, and those that ended without an output."""
        self._chosen: dict[int, bool] = {}
        self._unrecorded: dict[int, int] = {}
        self._paid, self._lost, self._errors = recorded.paid, recorded.lost, recorded.errors
        self._spending = copy.copy(recorded.spending)
        self._answered = bool(recorded.count - recorded.errors)
        self._pointer = 0
        self._stopped = self._ending = False
        self._queued: set[asyncio.Task[None]] = set()
        self._breaker = Breaker()
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._noting: asyncio.Task[None] | None = None
        self._to_note: list[asyncio.Future[None]] = []
        self._error: BaseException | None = None

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
    def spent(self) -> bool:
        """Whether the budgets allow no further call."""
        return self._room() <= 0

    @property
    def spent_reason(self) -> str:
        """Why it is spent."""
        costless = self._unpriced() and self._spending.unknown
        return "the target tells no tokens, so its cost is not known" if costless else "the budget is spent"

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
                self._loop.call_soon_threadsafe(self._main.cancel)
            thread.join()

    # On the loop

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
        pacer = LocalPacer(self._named.target)
        async with Caller(self._named) as caller:
            # As many lanes as calls: one that has nothing to do costs nothing, but to make it.
            count = min(self._lanes, self._header.total)
            tasks = [asyncio.create_task(self._lane(caller, pacer)) for _ in range(count)]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _lane(self, caller: Caller, pacer: LocalPacer) -> None:
        while True:
            call = self._next()
            if call is None:
                await self._released()
                continue
            self._chosen[call] = False
            try:
                await self._one(call, caller, pacer)
            finally:
                self._chosen.pop(call, None)
                self._release()
            # What is paid for and not on disk is at most a call a lane, should the process be killed.
            while call in self._unrecorded:
                await self._released()

    def _next(self) -> int | None:
        """The next call to make; None while there is none."""
        if self._stopped or self.failed or self._room() <= 0 or self._breaker.is_open:
            return None
        halted, cases = self._stopping.halted, self._header.cases
        for call in range(self._pointer, self._header.total):
            if self._folder_has(call) or call in self._chosen or call in self._unrecorded:
                if call == self._pointer and call not in self._chosen:
                    self._pointer += 1
            elif call % cases not in halted:
                return call
        return None

    async def _one(self, call: int, caller: Caller, pacer: LocalPacer) -> None:
        """Make one call, with its retries, and give its result on; nothing where it is not to be made any more."""
        prompt, header = self._prompts[call % self._header.cases], self._header
        asked = Call(prompt.text, prompt.agent, prompt.case, call // header.cases, prompt.messages, header.takes_text)
        tries, attempts = Tries(self._named.target), []
        while True:
            result = await self._attempt(call, asked, caller, pacer)
            if result is None:
                break
            attempts.append(result)
            self._breaker.record(result)
            if isinstance(result, Answer) or not result.down:
                self._answered = True
            elif not self._answered and not result.connected:
                self._fail(f"{self._named.name}: {result.reason} ({self._where})")
            if self._breaker.holds(result):
                # The target's failure, and no fault of this call.
                self._drop([attempts.pop()])
                if not await self._reached_again():
                    break
                continue
            wait = None if self.failed else tries.wait(result)
            if wait is None or not self._again():
                made = result_of(header, self._named, self._config, call, prompt, attempts)
                if made.fatal:
                    self._fail(made.fatal)  # it is no output of its case: all calls would fail alike
                elif self._answered:
                    self._give(made)
                    return
                break
            await self._sleep(wait)
            if self._stopped or self.failed:
                break
        self._drop(attempts)

    async def _attempt(self, call: int, asked: Call, caller: Caller, pacer: LocalPacer) -> Answer | Failure | None:
        """One attempt in its turn; None if it is not to be made any more, however long its turn would take."""
        task = asyncio.current_task()
        assert task is not None

        async def begins() -> bool:
            self._queued.discard(task)
            return await self._begins(call)

        if self._stopped or self.failed:
            return None
        self._queued.add(task)
        try:
            return await attempt(caller, pacer, asked, begins)
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

    def _drop(self, attempts: Sequence[Answer | Failure]) -> None:
        """Count attempts that give no output: one that reached nobody was no attempt."""
        for result in attempts:
            if reached_nobody(result):
                self.begun -= 1
            else:
                self.wasted += 1

    def _give(self, result: Result) -> None:
        output = result.output
        self._unrecorded[output.call] = len(output.attempts)
        self._paid += 1
        self._spending.add(output.cost, known=output.priced == "told", unknown=output.cost_unknown)
        self._errors += output.failed
        self.made.put(result)

    def _fail(self, reason: str) -> None:
        self.failed = self.failed or reason
        self._withdraw()

    async def _begins(self, call: int) -> bool:
        """Have the folder note that an attempt begins; return False if it is not to be made any more."""
        if self._stopped or self.failed:
            return False
        self._chosen[call] = True
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
            await asyncio.to_thread(self._note_begun, self.begun, self.wasted)
            for noted in some:
                if not noted.done():
                    noted.set_result(None)

    async def _reached_again(self) -> bool:
        """Wait until this call may probe a target that is down, or somebody reached it; False if it is given up."""
        while self._breaker.is_open:
            if self._breaker.seconds > self._down_seconds:
                self._fail(f"{self._named.name}: it does not answer: {self._breaker.reason} ({self._where})")
            if self._stopped or self.failed:
                return False
            if self._breaker.room(1):
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
        """Attempts that were begun, and first attempts of calls that were chosen."""
        return self.begun_before + self.begun + sum(not begun for begun in list(self._chosen.values()))

    def _spent_cost(self) -> float:
        # Lost calls count at the mean of those that were paid.
        cost = self._spending.total
        return cost + self._lost * cost / self._paid if self._paid else cost

    def _unpriced(self) -> bool:
        return bool(self._live.max_cost) and self._spending.total == 0 and self._spending.known == 0

    def _room(self) -> float:
        """How many more calls the budgets allow: calls, and cost at the mean of those that were paid."""
        most_calls, most_cost = self._live.max_calls, self._live.max_cost
        room = most_calls - self._started() if most_calls else math.inf
        if most_cost:
            busy = len(self._chosen)
            if self._unpriced():
                # What a call costs shows when one was answered: ten at once could cost many times the budget.
                room = min(room, _ENOUGH_UNPRICED - self._spending.unknown - self._lost - busy, 1 + self._errors - busy)
            elif (cost := self._spending.total) > 0:
                room = min(room, math.floor((most_cost - self._spent_cost()) / (cost / self._paid) + 1e-6) - busy)
        return room

    def _again(self) -> bool:
        """Whether the budgets allow a retry."""
        if self._stopped or self.failed:
            return False
        if self._live.max_calls and self._started() >= self._live.max_calls:
            return False
        return not (self._live.max_cost and self._spent_cost() >= self._live.max_cost)
