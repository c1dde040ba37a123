"""Outputs on their way into a sweep's run folder, from its ledger, earlier runs and a cache; and what they decide."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from evalq.evalcore.contract.evaluator import live_calls
from evalq.evalcore.errors import StorageError
from evalq.evalcore.model.calls import Output
from evalq.evalcore.views.markdown import plural
from evalq.producer.monitor.progress import Reporter
from evalq.producer.sweep.reuse import Cache, SourceRun, lineage_of
from evalq.producer.sweep.sweep import Sweep

if TYPE_CHECKING:
    from evalq.workers.ledger.sweeps import SweepLedger

COLLECT_STEP = 500
IDLE_SECONDS = 0.05
PAUSE_SECONDS = 3.0
"""How long the producer of a sweep that is paused or cancelled waits for calls in flight; what ends later waits in the
ledger, and of a cancelled sweep nobody collects it."""


class OutputLedger(Protocol):
    """Learns of outputs and decided cases: the sweep's ledger, or nothing if the folder alone holds them."""

    def restore(self, run: str, calls: Sequence[int]) -> None:
        """Count calls as recorded whose outputs the run folder has."""

    def halt(self, run: str, cases: Iterable[int], *, go: bool = False) -> None:
        """Make no more calls of these cases; with ``go``, make them again."""


class OutputIntake:
    """Records outputs of ``sweep``, also those of earlier runs and of a ``cache``; ``stops`` hears of them."""

    def __init__(self, sweep: Sweep, ledger: OutputLedger, stops: EarlyStopping, cache: Cache | None) -> None:
        self._sweep = sweep
        self._ledger = ledger
        self._stops = stops
        self._cache = cache
        self._reuse = bool(sweep.live.reuse) and sweep.folder.info().lineage is None
        self._config: str | None = None
        self.several = False
        """Whether the target was called under other settings than before: since it was begun, or by somebody else."""
        self.uncached = ""
        """Why the cache gets no further outputs, as a message to show once."""

    @property
    def known(self) -> bool:
        """Whether some of its outputs may be known before they are called."""
        return self._reuse or self._cache is not None or self._sweep.given_before

    def record(self, outputs: Sequence[Output], recorded: Callable[[], None] = lambda: None) -> None:
        """Record these in the folder, call ``recorded``, and then give them to the cache."""
        if self._config is None:
            self._config = self._sweep.recorded.config
        fresh = self._keep(outputs)
        recorded()
        self._compare(fresh)
        if self._cache is not None:
            self._remember(self._cache, fresh)

    def _remember(self, cache: Cache, fresh: Sequence[Output]) -> None:
        """Put fresh outputs into the cache, last: what a crash keeps out of it costs only a later sweep a call.

        A cache that takes no more, for want of room, say, ends nothing either: the folder has all that is paid for.
        """
        try:
            cache.keep(fresh)
        except StorageError as error:
            what = f"{self._sweep.live.cache}: this cache takes no more outputs: {error.__cause__}"
            self._cache, self.uncached = None, f"warning: {what}; the run folder has all of them"

    def _compare(self, fresh: Sequence[Output]) -> None:
        """By what was called: whoever calls may read another targets file whenever its process starts again."""
        configs = {output.config for output in fresh}
        self._config = self._config or min(configs, default="")
        self.several |= not configs <= {self._config}

    def waits_for(self, config: str) -> str:
        """Who is asking some of the same now, with the same cache: its answers are waited for, and not paid twice.

        Empty where nobody is; from then on the others wait for this sweep. Raises StorageError.
        """
        if self._cache is None or not config:
            return ""
        others = self._cache.claim(self._sweep.header.target, config, self._sweep.prompts())
        if not others:
            return ""
        count, all_of_them = sum(others.values()), self._sweep.header.cases
        return f"{count:,} of {all_of_them:,} cases are being asked by {', '.join(sorted(others))} (host and pid)"

    def take_known(self, config: str) -> str:
        """Record what is known of a target under ``config``, its settings' digest; says what earlier runs gave.

        Raises UsageError where one of these is gone, WireError where its outputs are damaged.
        """
        message = self._take_over(config) if self._reuse and config else ""
        for outputs in self._sweep.recorded_elsewhere(config) if config else ():
            fresh = self._keep(outputs, cached=True)
            self._ledger.restore(self._sweep.run, [output.call for output in fresh])
        if self._cache is not None and config:
            self._take_from_cache(self._cache, config)
        return message

    def _take_over(self, config: str) -> str:
        live, recorded, prompts = self._sweep.live, self._sweep.recorded, list(self._sweep.prompts())
        givers = [SourceRun(path) for path in live.reuse]
        for giver in givers:
            for outputs in giver.taken(prompts, live, config, recorded.has):
                fresh = self._keep(outputs, cached=True, of=giver.run)
                self._ledger.restore(self._sweep.run, [output.call for output in fresh])
        self._reuse = False
        # Noted at the end: a takeover that was cut off begins again, and passes over what is recorded.
        lineage = lineage_of({giver.run: giver for giver in givers}, recorded.reused)
        self._sweep.folder.note(lineage=msgspec.to_builtins(lineage))
        return "; ".join(
            f"{giver.run} gives {plural(recorded.reused[giver.run], 'output')}"
            + (f" ({giver.otherwise:,} of other settings of the target)" if giver.otherwise else "")
            for giver in givers
        )

    def _take_from_cache(self, cache: Cache, config: str) -> None:
        header, fresh = self._sweep.header, []
        for number, prompt in enumerate(self._sweep.prompts()):
            wanted = [r for r in range(header.repeats) if not self._sweep.recorded.has(r * header.cases + number)]
            found = cache.find(header.target, config, prompt, wanted)
            fresh += [msgspec.structs.replace(o, call=r * header.cases + number) for r, o in sorted(found.items())]
        self._keep(fresh, cached=True)
        # The folder has them by now: counted the other way round, a crash in between would have them paid for.
        self._ledger.restore(self._sweep.run, [output.call for output in fresh])

    def _keep(self, outputs: Sequence[Output], *, cached: bool = False, of: str = "") -> list[Output]:
        mine = list(filter(self._sweep.header.has_call, outputs))
        fresh = self._sweep.recorded.add(mine, cached=cached, of=of)
        self._stops.add(fresh)
        return fresh


class SweepIntake(OutputIntake):
    """Takes outputs from a ledger."""

    def __init__(self, sweep: Sweep, calls: SweepLedger, stops: EarlyStopping, cache: Cache | None) -> None:
        super().__init__(sweep, calls, stops, cache)
        self._calls = calls
        self.in_flight = 0
        """Calls that had not ended when it was paused or cancelled, and the moment for that was over."""

    def take(self) -> bool:
        """Take recorded outputs; they leave the ledger once they are safe in the folder. False when there was none."""
        found = self._calls.collect(self._sweep.run, COLLECT_STEP)
        if not found.outputs:
            return False
        self.record(found.outputs, lambda: self._calls.trim(self._sweep.run, found))
        return True

    def drain(self, hurried: Callable[[], bool] = bool) -> None:
        """Keep what ends in the next moment of calls that are handed out no more; less of it where ``hurried``."""
        deadline = time.monotonic() + PAUSE_SECONDS
        while (look := self._calls.poll(self._sweep.run)) is not None:
            # In the folder, too: a server that forgets the sweep no longer knows what was in flight.
            self._sweep.recorded.note_begun(look.started, look.tallies, look.under_way)
            self.in_flight = look.busy
            if not (look.busy or look.waiting):
                return
            if self.take():
                continue  # what is recorded is kept, however much it is: no more of it comes than is in flight
            if hurried() or time.monotonic() > deadline:
                return
            time.sleep(IDLE_SECONDS)


def warn_of_calls(in_flight: int, reporter: Reporter) -> None:
    """Warn of calls that had not ended when their sweep was left."""
    if in_flight:
        reporter.warn(f"{plural(in_flight, 'call')} had not ended then, and may have to be paid all the same")


# Cases that its stop rule decides before all of their calls are made.


class EarlyStopping:
    """The decided cases of one sweep, which it reports to its ledger; none without a stop rule."""

    def __init__(self, sweep: Sweep, calls: OutputLedger) -> None:
        self._sweep = sweep
        self._calls = calls
        self._rule = live_calls(sweep.evaluator).stopping(sweep.request) if sweep.live.stop else None
        self._cases: dict[str, int] = {}
        self.halted: set[int] = set()
        """Decided cases, by number."""

    @property
    def there(self) -> bool:
        """Whether the sweep has a stop rule."""
        return self._rule is not None

    def recall(self) -> None:
        """Decide cases by what the folder has; `tell` lets the ledger know of these."""
        # Once only: a rule that counted the same outputs twice would decide too soon.
        if self._rule is not None and not self._cases:
            recorded, rule = self._sweep.recorded, self._rule
            self._take(output for call in recorded.calls() if (output := recorded.get(call)) is not None)
            self._cases = {prompt.case: number for number, prompt in enumerate(self._sweep.prompts())}
            self.halted = {number for case, number in self._cases.items() if rule.decided(case)}

    def add(self, outputs: Sequence[Output]) -> None:
        """Halt cases that these decide, and resume those that calls in flight have opened again."""
        if self._rule is not None:
            self._take(outputs)
            self._halt({output.case for output in outputs})

    def tell(self) -> None:
        """Let the ledger know of all decided cases once more: it may have lost them."""
        if self.halted:
            self._calls.halt(self._sweep.run, self.halted)

    def _take(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            if self._rule is not None:
                self._rule.add(output.line(self._sweep.stop_note))

    def _halt(self, cases: Iterable[str]) -> None:
        if self._rule is None:
            return
        numbers = {self._cases[case]: case for case in cases if case in self._cases}
        decided = {number for number, case in numbers.items() if self._rule.decided(case)}
        # Both ways, because answers to calls that were under way may open a decided case again.
        halt, go = decided - self.halted, (numbers.keys() - decided) & self.halted
        self.halted = (self.halted | halt) - go
        if halt:
            self._calls.halt(self._sweep.run, halt)
        if go:
            self._calls.halt(self._sweep.run, go, go=True)
