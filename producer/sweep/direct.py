"""The calls of a small sweep, made by this process alone: no server, no Celery, no process that calls.

The calls run on an event loop in a thread. The thread of the command records what comes, so an interrupt never cuts a
record. Budgets, retries and stop rules are those of the ledger's scripts (`workers/ledger/lua/sweeps`).
"""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from evalq.evalcore.errors import ConfigError, Incomplete, StorageError, UsageError, WireError
from evalq.evalcore.model.calls import Prompt, Used
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.markdown import plural
from evalq.producer.monitor.progress import ShownProgress, Watcher
from evalq.producer.run.backend import CALLS_HERE, CALLS_MOST, Backend
from evalq.producer.sweep.head import changed_settings, prompts_digest, settings_of_run, warning_text
from evalq.producer.sweep.intake import PAUSE_SECONDS, EarlyStopping, OutputIntake
from evalq.producer.sweep.reuse import Cache
from evalq.producer.sweep.sweep import Sweep
from evalq.workers.callers.call_loop import CallLoop, CallsBefore, Limits, Talks, Uses
from evalq.workers.ledger.sweep_model import EndedAttempts, ProcessTally, differing_settings
from evalq.workers.processes.identity import unique_name
from evalq.workers.targets import NamedTarget, load_targets
from evalq.workers.targets.config import choose
from evalq.workers.targets.spec import is_spec
from evalq.workers.targets.target import config_digest, shown_settings

SMALL_CALLS = 10_000
"""The most calls that one process makes alone. A larger sweep has a server, which outlives a killed process."""
SMALL_BYTES = 64 << 20
"""The largest file of outputs whose judges this process calls alone."""
_TICK_SECONDS = 0.05
_CACHE_SECONDS = 0.5
_NO_CALL = -1
"""In place of a call: its attempts gave no output."""


def calls_alone(sweep: Sweep, backend: Backend) -> bool:
    """Whether this command makes the calls of ``sweep`` itself: it names targets, and no server, fleet or workers."""
    if backend.inline:
        return True
    if not may_call_alone(backend):
        return False
    if sweep.live.target:
        return sweep.header.total <= SMALL_CALLS
    return all(_size(path) <= SMALL_BYTES for path in [*map(Path, sweep.request.inputs), sweep.outputs])


def may_call_alone(backend: Backend) -> bool:
    """Whether this command makes the calls of small sweeps itself, so that no server need start before one does."""
    return not backend.settings.broker and not backend.workers and bool(backend.settings.targets)


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
            raise ConfigError("live calls from here need a targets file: name yours with --targets FILE")
        self._shown = "--target" if is_spec(path) else path
        self._targets = load_targets(path)
        seal(key_names(self._targets))
        most = max(CALLS_HERE, *(named.target.max_concurrency or 0 for named in self._targets.values()))
        self.calls = backend.settings.calls or min(most, CALLS_MOST)
        self.down_seconds = backend.settings.down_seconds

    def named(self, name: str, *, priced: bool, user: bool = False) -> NamedTarget:
        """The target of that name. Raises UsageError for an unknown one, and for one that lacks a price (``priced``) or
        the target that simulates its users (``user``).
        """
        found = choose(self._targets, name)
        if found is None:
            raise UsageError(f"{self._shown}: no target {name!r} (known: {', '.join(sorted(self._targets))})")
        if priced or user:
            from evalq.workers.callers.target_sessions import target_facts  # imports the clients of servers

            if why := target_facts(found).lacks(name, "the targets file", priced=priced, user=user):
                raise UsageError(why)
        return found


class DirectCalls:
    """All calls of one sweep that its folder does not have yet; `make` makes them."""

    def __init__(
        self, sweep: Sweep, targets: LocalTargets, cache: Cache | None = None, hurried: Callable[[], bool] = bool
    ) -> None:
        """``hurried`` says whether the user wants to wait for calls in flight no longer. Raises UsageError."""
        self._sweep = sweep
        header, priced = sweep.header, bool(sweep.live.max_cost)
        self._named = targets.named(header.target, priced=priced, user=header.has_users)
        self._config = config_digest(self._named)
        if not sweep.header.may_call(self._config):
            now = shown_settings(self._named)
            raise UsageError(changed_settings(sweep.header, [self._config], sweep.settings_then(), now))
        self._hurried = hurried
        self._cache_file = sweep.live.cache
        ledger = _NoLedger()
        self._stopping = EarlyStopping(sweep, ledger)
        self._intake = OutputIntake(sweep, ledger, self._stopping, cache)
        self._lock = threading.Lock()
        self._targets = targets
        self._name, self._tally, self._wasted = unique_name(), ProcessTally(), 0
        self._warned = self._troubled = False
        self.warnings: list[str] = []
        """Lines for the user that were not shown yet."""
        self.in_flight = 0
        """Calls that had not ended when an interrupt cut them off."""

    def make(self, watch: Watcher) -> dict[str, Json]:
        """Make the calls; show ``watch`` the progress. Returns how they ended, for run.json.

        Raises Incomplete where a target cannot be called or refuses all calls, and KeyboardInterrupt.
        """
        sweep, recorded = self._sweep, self._sweep.recorded
        sweep.note_settings(shown_settings(self._named))
        sweep.folder.note(state="calling", server=None)
        self._stopping.recall()
        prompts = list(sweep.prompts())
        if prompts_digest(prompts)[1] != sweep.header.asked["prompts"]:
            raise WireError(f"{sweep.folder.path}: its prompts are not those it was begun with; start it anew")
        if recorded.config not in ("", self._config):
            then, now = settings_of_run(str(sweep.folder.path)), shown_settings(self._named)
            differs = differing_settings(then, now)
            self.warnings.append(warning_text("changed", sweep.header.target) + (differs and f" ({differs})"))
        self._take_known(watch)
        # Attempts that a dead process had in flight are lost.
        recorded.note_begun(recorded.begun, {}, {})
        recorded.reserve()
        self._before = max(recorded.begun, recorded.ended)
        self._calls = self._call_loop()
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
            "attempts": max(recorded.begun, recorded.ended) + sum(talk.attempts for talk in recorded.talks.values()),
            "repaid": 0,
            "lost": recorded.lost + recorded.gone,
            "cost": recorded.cost,
            "ended": ended,
            "reason": self._calls.spent_reason if ended == "spent" else "",
            **recorded.counted(),
        }

    def _call_loop(self) -> CallLoop:
        sweep, recorded = self._sweep, self._sweep.recorded
        limits = Limits(sweep.live.max_calls, sweep.live.max_cost, self._targets.down_seconds)
        answered = recorded.count > recorded.errors
        spending = copy.copy(recorded.spending)
        talks = {call: (kept.attempts, kept.cost) for call, kept in recorded.talks.items()}
        before = CallsBefore(self._before, recorded.lost, recorded.paid, recorded.errors, spending, answered, talks)
        return CallLoop(
            sweep.header, self._named, self._config, limits, before, self._targets.calls, recorded.has,
            lambda: self._stopping.halted, self._note_begun, Talks(self._talk, self._keep_talk),
            Uses(self._used, self._keep_used),
        )  # fmt: skip

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
                    self._note_trouble()
                    if not self._take(wait=not idle):
                        watch(self._progress())
                    if not (idle and calls.idle and not calls.made):
                        continue
                    missing = self._missing()
                    if calls.failed:
                        raise Incomplete(f"the calls stopped at {calls.failed}; {self._sweep.kept_text()}")
                    if not missing:
                        watch(self._progress())
                        return "done"
                    if calls.spent:
                        return "spent"
                    calls.wake()
            except KeyboardInterrupt:
                self._drain()
                raise

    def _note_trouble(self) -> None:
        """Tell the user once when the target stops answering, and once when it answers again."""
        trouble, target = self._calls.trouble, self._sweep.header.target
        if bool(trouble) != self._troubled:
            self._troubled = bool(trouble)
            self.warnings.append(
                f"waiting: {target!r} does not answer: {trouble}; calls are held, none is lost"
                if trouble
                else warning_text("again", target)
            )

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
        calls, gone = self._calls, self._calls.unrecorded
        tallies = self._tallies(calls.wasted + sum(gone))
        with contextlib.suppress(OSError):  # the disk itself may be gone
            self._sweep.recorded.note_stopped(self._before + calls.begun, tallies, {}, len(gone))

    def _take(self, *, wait: bool) -> bool:
        """Record what was made; return False if there was nothing."""
        calls = self._calls
        calls.arrived.wait(_TICK_SECONDS if wait else 0.001)
        calls.arrived.clear()
        results = list(calls.made)
        if not results:
            return False
        with self._lock:
            self._intake.record([result.output for result in results])
            # Only now: an interrupt may come at any line, and what is still there is recorded after it.
            for _ in results:
                output = calls.made.popleft().output
                self._tally.count({output.call: EndedAttempts.of(output)})
                self._tally.confirm([output.call])
        if self._sweep.live.max_cost and self._sweep.recorded.untold and not self._warned:
            self._warned = True
            self.warnings.append(warning_text("untold", self._sweep.header.target))
        if self._intake.uncached:
            self.warnings.append(self._intake.uncached)
            self._intake.uncached = ""
        self._calls.recorded(result.output.call for result in results)
        return True

    def _talk(self, call: int) -> bytes | None:
        with self._lock:
            return self._sweep.recorded.talk(call)

    def _keep_talk(self, call: int, attempts: int, cost: float, state: bytes) -> None:
        with self._lock:
            self._sweep.recorded.note_talk(call, attempts, cost, state)

    def _used(self, call: int) -> Used:
        return Used(*self._sweep.recorded.used.get(call, ()))

    def _keep_used(self, call: int, used: Used) -> None:
        with self._lock:
            self._sweep.recorded.note_used(call, *used)

    def _note_begun(self, begun: int, wasted: int) -> None:
        """Note in the folder that ``begun`` attempts began so far, before the last of them may be paid; ``wasted`` of
        them ended without an output.
        """
        with self._lock:
            tallies = self._tallies(wasted)
            under_way = begun - self._tally.attempts
            at = {self._name: under_way} if under_way > 0 else {}
            self._sweep.recorded.note_begun(self._before + begun, tallies if self._tally.attempts else {}, at)

    def _tallies(self, wasted: int) -> dict[str, str]:
        """This process's tally, as the folder keeps it; ``wasted`` attempts in all ended without an output."""
        if (more := wasted - self._wasted) > 0:
            self._wasted = wasted
            self._tally.count({_NO_CALL: EndedAttempts(more)})
            self._tally.confirm([_NO_CALL])
        return {self._tally.name: self._tally.sums()}

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
        notes += [plural(recorded.errors, "error")] if recorded.errors else []
        notes += [f"{len(stopping.halted)} of {header.cases} cases decided"] if stopping.there else []
        notes += [f"cost {recorded.cost:.4g}"] if recorded.cost else []
        return ShownProgress(recorded.count, recorded.count, header.total, note=", ".join(notes), unit="calls")


class _NoLedger:
    """In place of a ledger: the run folder alone holds these facts."""

    def restore(self, run: str, calls: Sequence[int]) -> None:
        """Nothing: the folder has these outputs."""

    def halt(self, run: str, cases: Iterable[int], *, go: bool = False) -> None:
        """Nothing: the loop looks at the decided cases itself."""
