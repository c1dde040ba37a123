"""What a chunk of recorded outputs adds up to: counts by case, mergeable to the last bit."""

from __future__ import annotations

from typing import Self

import msgspec

from evalq.evalcore.contract.evaluator import State
from evalq.evalcore.evaluators.vs.score import Judgement, Scores
from evalq.evalcore.model.merging import Merging
from evalq.evalcore.model.seen import has_seen, merge_seen, overlap, see
from evalq.evalcore.model.tally import Faults
from evalq.evalcore.statistics.exact import ExactSum

__all__ = ["CaseState", "VsState"]


class CaseState(Merging):
    """One case: tests by status, sums of its metrics, its options and issues as counted, and the repeats seen.

    Hits are counts of checks that held; only spreads need a sum of floats. Dicts stay in the order of first sight.
    ``planned`` is how many calls the case was to get if it could stop early, the most that any line says; else 0.
    """

    passed: int = 0
    failed: int = 0
    errors: int = 0
    phases_passed: int = 0
    phase_hits: int = 0
    critique_hits: int = 0
    provenance_hits: int = 0
    # Counted by themselves: a test on Light has none, nor has one whose scores cannot be read.
    spreads: int = 0
    spread: ExactSum = msgspec.field(default_factory=ExactSum)
    options: dict[str, int] = msgspec.field(default_factory=dict)
    issues: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    seen: dict[int, int] = msgspec.field(default_factory=dict)
    planned: int = 0

    @property
    def tests(self) -> int:
        """Tests with a result."""
        return self.passed + self.failed

    @property
    def runs(self) -> int:
        """Runs of any kind, those without a result included."""
        return self.passed + self.failed + self.errors

    def merge(self, later: CaseState) -> None:
        """Take in the tests of later lines."""
        self.passed += later.passed
        self.failed += later.failed
        self.errors += later.errors
        self.phases_passed += later.phases_passed
        self.phase_hits += later.phase_hits
        self.critique_hits += later.critique_hits
        self.provenance_hits += later.provenance_hits
        self.spreads += later.spreads
        # Exact, unlike a sum of floats, which would go by where the input was cut.
        self.spread.merge(later.spread)
        self.planned = max(self.planned, later.planned)
        _add_counts(self.options, later.options)
        for check, kinds in later.issues.items():
            _add_counts(self.issues.setdefault(check, {}), kinds)
        merge_seen(self.seen, later.seen)

    def add_scores(self, scores: Scores, required: int) -> None:
        """Count one test's metrics; ``required`` is how many phases its case needs."""
        self.phases_passed += scores.phases.passed
        self.phase_hits += required - len(scores.phases.missing_phases)
        self.provenance_hits += sum(scores.provenance.checks.values())
        if scores.self_critique is not None:
            self.critique_hits += sum(scores.self_critique.checks.values())


class VsState(State):
    """Cases by id, in the order of first sight. ``overlap``: some (case, repeat) came twice, and `settle` must look.

    ``last`` is the last line counted, ``repeated`` the lines that `settle` left out, ``dead`` those without a result.
    """

    cases: dict[str, CaseState] = msgspec.field(default_factory=dict)
    overlap: bool = False
    last: int = 0
    repeated: Faults = msgspec.field(default_factory=Faults)
    dead: list[int] = msgspec.field(default_factory=list)

    def merge(self, later: Self) -> None:
        """Take in the state of the lines that follow."""
        self.overlap = self.overlap or later.overlap
        self.last = max(self.last, later.last)
        self.repeated.merge(later.repeated)
        self.dead += later.dead
        for name, case in later.cases.items():
            mine = self.cases.setdefault(name, CaseState())
            self.overlap = self.overlap or overlap(mine.seen, case.seen)
            mine.merge(case)

    def to_wire(self) -> bytes:
        """JSON of the fields. Dicts keep the order of first sight, which breaks ties, and which no cut can change."""
        return msgspec.json.encode(self)


def _add_counts(into: dict[str, int], counts: dict[str, int]) -> None:
    for key, count in counts.items():
        into[key] = into.get(key, 0) + count


class Gatherer:
    """Adds tests up to a state. Spreads are summed once at the end: an exact sum is cheap only for many at a time."""

    def __init__(self) -> None:
        self.state = VsState()
        self._spreads: dict[str, list[float]] = {}

    def add(self, line: int, test: Judgement) -> None:
        """Count the test of ``line``; skipped ones and those of no known case leave no trace but the line."""
        self.state.last = line
        plan = test.plan
        if plan is None or test.status == "SKIPPED":
            return
        case = self.state.cases.setdefault(plan.case.id, CaseState())
        case.planned = max(case.planned, test.planned)
        # SPEC, section 1: an error is outside the pass rate, and is counted.
        if test.scores is None or test.repeat is None:
            case.errors += 1
            return
        if test.status == "PASSED":
            case.passed += 1
        else:
            case.failed += 1
        # A kind counts once a test: an output that makes one mistake in ten places is one test with it.
        for kind, check in {finding.kind: finding.check for finding in test.findings}.items():
            kinds = case.issues.setdefault(check, {})
            kinds[kind] = kinds.get(kind, 0) + 1
        # Only noted: which output came first is known when all chunks are merged, and `settle` leaves out the others.
        if see(case.seen, test.repeat):
            self.state.overlap = True
        case.add_scores(test.scores, len(plan.phases))
        if test.option is not None:
            case.options[test.option] = case.options.get(test.option, 0) + 1
        spread = test.scores.t_scores.t_score_spread if test.scores.t_scores else None
        # A spread beyond 1 comes from scores outside [0, 1], which are contract faults, and must not raise the mean.
        if spread is not None and 0 <= spread <= 1:
            self._spreads.setdefault(plan.case.id, []).append(spread)

    def has(self, test: Judgement) -> bool:
        """Whether the state already holds an output of this test's case and repeat."""
        if test.plan is None or test.repeat is None or test.scores is None:
            return False
        case = self.state.cases.get(test.plan.case.id)
        return case is not None and has_seen(case.seen, test.repeat)

    def finish(self) -> VsState:
        """The state, with the spreads in it."""
        for name, spreads in self._spreads.items():
            case = self.state.cases[name]
            case.spreads = len(spreads)
            case.spread = ExactSum.of(spreads)
        return self.state
