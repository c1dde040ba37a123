"""Cases of a sweep that are decided before all of their calls are made, by its stop rule: they get no more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evalq.evalcore.contract.evaluator import live_calls
from evalq.evalcore.model.calls import Output
from evalq.producer.sweeps.sweep import Sweep
from evalq.workers.ledger.sweeps import SweepLedger

__all__ = ["Stops"]


class Stops:
    """The decided cases of one sweep, which its ledger is told of; none where it has no stop rule."""

    def __init__(self, sweep: Sweep, calls: SweepLedger) -> None:
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
