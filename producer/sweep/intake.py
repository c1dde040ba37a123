"""Record a sweep's outputs in its run folder, from its ledger, earlier runs and a cache, and stop decided cases."""

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
"""How long the producer of a paused or cancelled sweep waits for calls in flight. Later outputs stay in the ledger; for
a cancelled sweep they are lost."""


class OutputLedger(Protocol):
    """Receives recorded calls and decided cases: the sweep's ledger, or nothing for a sweep without a server."""

    def restore(self, run: str, calls: Sequence[int]) -> None:
        """Count these calls as recorded, because the run folder has their outputs."""

    def halt(self, run: str, cases: Iterable[int], *, go: bool = False) -> None:
        """Make no further calls of these cases; with ``go``, allow them again."""


class OutputIntake:
    """Records outputs of ``sweep``, also those of earlier runs and of a ``cache``, and passes them to ``stops``."""

    def __init__(self, sweep: Sweep, ledger: OutputLedger, stops: EarlyStopping, cache: Cache | None) -> None:
        self._sweep = sweep
        self._ledger = ledger
        self._stops = stops
        self._cache = cache
        self._reuse = bool(sweep.live.reuse) and sweep.folder.info().lineage is None
        self._config: str | None = None
        self.several = False
        """Whether the target was called under several settings, in this sweep or by different processes."""
        self.uncached = ""
        """Why the cache gets no further outputs, as a message to show once."""

    @property
    def known(self) -> bool:
        """Whether a cache or earlier runs may have some of the outputs."""
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
        """Add fresh outputs to the cache. This comes last: if a crash prevents it, only a later sweep pays again.

        A cache that cannot be written, for example on a full disk, does not end the sweep: the folder has all outputs.
        """
        try:
            cache.keep(fresh)
        except StorageError as error:
            what = f"{self._sweep.live.cache}: this cache takes no more outputs: {error.__cause__}"
            self._cache, self.uncached = None, f"warning: {what}; the run folder has all of them"

    def _compare(self, fresh: Sequence[Output]) -> None:
        """Compare the settings of the calls: a restarted worker may have read another targets file."""
        configs = {output.config for output in fresh}
        self._config = self._config or min(configs, default="")
        self.several |= not configs <= {self._config}

    def waits_for(self, config: str) -> str:
        """A text on the other sweeps that ask some of the same cases now with the same cache; "" if there are none.

        This sweep waits for their answers instead of paying twice. After "", others wait for this sweep. Raises
        StorageError.
        """
        if self._cache is None or not config:
            return ""
        others = self._cache.claim(self._sweep.header.target, config, self._sweep.prompts())
        if not others:
            return ""
        count, all_of_them = sum(others.values()), self._sweep.header.cases
        return f"{count:,} of {all_of_them:,} cases are being asked by {', '.join(sorted(others))} (host and pid)"

    def take_known(self, config: str) -> str:
        """Record all outputs that are known for the target's settings (digest ``config``).

        Returns a message about the outputs of earlier runs. Raises UsageError if one of these runs is gone, WireError
        if its outputs are damaged.
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
        # Note it at the end: an interrupted takeover starts again, and skips outputs that are recorded.
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
        # Only after the folder has them. Otherwise, a crash in between would leave them to be paid again.
        self._ledger.restore(self._sweep.run, [output.call for output in fresh])

    def _keep(self, outputs: Sequence[Output], *, cached: bool = False, of: str = "") -> list[Output]:
        mine = list(filter(self._sweep.header.has_call, outputs))
        fresh = self._sweep.recorded.add(mine, cached=cached, of=of)
        self._stops.add(fresh)
        return fresh


class SweepIntake(OutputIntake):
    """Collects outputs from a ledger."""

    def __init__(self, sweep: Sweep, calls: SweepLedger, stops: EarlyStopping, cache: Cache | None) -> None:
        super().__init__(sweep, calls, stops, cache)
        self._calls = calls
        self.in_flight = 0
        """Calls that were still in flight when the wait after a pause or cancellation ended."""

    def take(self) -> bool:
        """Move outputs from the ledger to the folder; False if there were none.

        They leave the ledger only after the folder has them.
        """
        found = self._calls.collect(self._sweep.run, COLLECT_STEP)
        if not found.outputs:
            return False
        self.record(found.outputs, lambda: self._calls.trim(self._sweep.run, found))
        return True

    def drain(self, hurried: Callable[[], bool] = bool) -> None:
        """Record outputs of calls in flight for up to PAUSE_SECONDS, or until ``hurried``."""
        deadline = time.monotonic() + PAUSE_SECONDS
        while (look := self._calls.poll(self._sweep.run)) is not None:
            # Note it in the folder as well: a server that loses the sweep loses the calls in flight.
            self._sweep.recorded.note_begun(look.started, look.tallies, look.under_way)
            self.in_flight = look.busy
            if not (look.busy or look.waiting):
                return
            if self.take():
                continue  # collect all recorded outputs: there are at most as many as calls in flight
            if hurried() or time.monotonic() > deadline:
                return
            time.sleep(IDLE_SECONDS)


def warn_of_calls(in_flight: int, reporter: Reporter) -> None:
    """Warn about calls that were still in flight when the command left the sweep."""
    if in_flight:
        reporter.warn(f"{plural(in_flight, 'call')} had not ended then, and may have to be paid all the same")


# Cases that the stop rule decides before all of their calls are made.


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
        """Decide cases by the recorded outputs; `tell` reports them to the ledger."""
        # Only once: a rule that counts an output twice decides too soon.
        if self._rule is not None and not self._cases:
            recorded, rule = self._sweep.recorded, self._rule
            self._take(output for call in recorded.calls() if (output := recorded.get(call)) is not None)
            self._cases = {prompt.case: number for number, prompt in enumerate(self._sweep.prompts())}
            self.halted = {number for case, number in self._cases.items() if rule.decided(case)}

    def add(self, outputs: Sequence[Output]) -> None:
        """Halt cases that these outputs decide, and resume cases that they make undecided again."""
        if self._rule is not None:
            self._take(outputs)
            self._halt({output.case for output in outputs})

    def tell(self) -> None:
        """Report all decided cases to the ledger again, which may have lost them."""
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
        # In both directions: an answer to a call in flight can make a decided case undecided again.
        halt, go = decided - self.halted, (numbers.keys() - decided) & self.halted
        self.halted = (self.halted | halt) - go
        if halt:
            self._calls.halt(self._sweep.run, halt)
        if go:
            self._calls.halt(self._sweep.run, go, go=True)
