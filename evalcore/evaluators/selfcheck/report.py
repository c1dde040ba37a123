"""The state that self checks merge into, and the results of the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from evalq.evalcore.contract.claims import ClaimsTally, ClaimsVerdict, Confusion, effectiveness
from evalq.evalcore.contract.evaluator import InputResult, State
from evalq.evalcore.evaluators.selfcheck.params import SelfCheckParams
from evalq.evalcore.evaluators.selfcheck.score import QuestionResult, SelfCheckResult, SignalResult
from evalq.evalcore.evaluators.selfcheck.suspicion import REASONS
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import Faults, LeftOut, add_counts
from evalq.evalcore.views.markdown import failed_section


class SelfCheckState(State):
    """Counts of checks: passed, by question passed, by signal found, by goal; and the labelled ones by call.

    ``by_verdict`` calls a record hallucinated if its check does not pass, ``by_signal`` if any signal is found,
    ``by_suspicion`` if it is suspected, ``by_judge`` if a judge found an unsupported claim. ``suspected`` counts the
    suspected records, ``suspicions`` counts them by reason. ``failed`` holds the lines of records that did not pass,
    with the reasons. ``unresolved`` counts records that were not checked because their expected paths are not looked
    up.
    """

    checked: int = 0
    passed: int = 0
    questions: dict[str, int] = msgspec.field(default_factory=dict)
    signals: dict[str, int] = msgspec.field(default_factory=dict)
    goals: int = 0
    goals_reached: int = 0
    by_verdict: Confusion = msgspec.field(default_factory=Confusion)
    by_signal: Confusion = msgspec.field(default_factory=Confusion)
    by_suspicion: Confusion = msgspec.field(default_factory=Confusion)
    by_judge: Confusion = msgspec.field(default_factory=Confusion)
    judged: ClaimsTally = msgspec.field(default_factory=ClaimsTally)
    suspected: int = 0
    suspicions: dict[str, int] = msgspec.field(default_factory=dict)
    failed: Faults = msgspec.field(default_factory=Faults)
    unresolved: int = 0

    def add(self, result: SelfCheckResult, label: bool | None, reasons: Sequence[str] = ()) -> None:
        """Count one check. ``label``: people call the record hallucinated; ``reasons``: why it is suspected."""
        self.suspected += bool(reasons)
        add_counts(self.suspicions, dict.fromkeys(reasons, 1))
        self.checked += 1
        self.passed += result.passed
        signals = [signal.signal for signal in result.dangerSignals if signal.found]
        add_counts(self.questions, {question.id: 1 for question in result.questions if question.passed})
        add_counts(self.signals, dict.fromkeys(signals, 1))
        if result.goalVerification is not None:
            self.goals += 1
            self.goals_reached += result.goalVerification.reached
        if label is not None:
            self.by_verdict.add(positive=label, called=not result.passed)
            self.by_signal.add(positive=label, called=bool(signals))
            self.by_suspicion.add(positive=label, called=bool(reasons))

    def add_verdict(self, verdict: ClaimsVerdict, label: bool | None, line: int, left_out: LeftOut) -> None:
        """Count a judge's verdict on one record."""
        self.judged.add(verdict, line, left_out)
        if label is not None and verdict.finding is not None:
            self.by_judge.add(positive=label, called=not verdict.holds)

    def merge(self, later: SelfCheckState) -> None:
        """Take in the counts of later records."""
        self.checked += later.checked
        self.passed += later.passed
        add_counts(self.questions, later.questions)
        add_counts(self.signals, later.signals)
        self.goals += later.goals
        self.goals_reached += later.goals_reached
        self.by_verdict.merge(later.by_verdict)
        self.by_signal.merge(later.by_signal)
        self.by_suspicion.merge(later.by_suspicion)
        self.by_judge.merge(later.by_judge)
        self.judged.merge(later.judged)
        self.suspected += later.suspected
        add_counts(self.suspicions, later.suspicions)
        self.failed.merge(later.failed)
        self.unresolved += later.unresolved


def failure_reasons(params: SelfCheckParams) -> Callable[[Sequence[QuestionResult], Sequence[SignalResult]], list[str]]:
    """Why a check failed: the required questions that were not passed, and the fatal signals that were found."""
    # A warning, or a question that is not required, is no reason: a report passes with it.
    required = {question.id for question in params.questions if question.required}
    fatal = {signal.message for signal in params.signals if signal.severity == "error"}

    def reasons(questions: Sequence[QuestionResult], signals: Sequence[SignalResult]) -> list[str]:
        missed = [question.id for question in questions if not question.passed and question.id in required]
        found = [signal.signal for signal in signals if signal.found and signal.signal in fatal]
        parts = [f"not passed: {', '.join(missed)}"] if missed else []
        return [*parts, f"signals: {', '.join(found)}"] if found else parts

    return reasons


def section(results: Sequence[InputResult[SelfCheckState]], params: SelfCheckParams) -> dict[str, Json]:
    """Pass rate, rates by question, counts by signal; goals if verified, effectiveness if labelled."""
    state = SelfCheckState.zero()
    for result in results:
        state.merge(result.state)
    share = {q.id: _share(state.questions.get(q.id, 0), state.checked) for q in params.questions}
    plain: dict[str, Json] = {
        "passed": state.passed,
        "pass_rate": _share(state.passed, state.checked),
        "questions": share,
        "signals": {signal.message: state.signals.get(signal.message, 0) for signal in params.signals},
    }
    reasons = {reason: state.suspicions.get(reason, 0) for reason in REASONS}
    plain["suspected"] = {"records": state.suspected, "reasons": reasons}
    plain["failed"] = failed_section((result.name, result.state.failed) for result in results)
    if state.goals:
        plain["goals"] = {"verified": state.goals, "reached": state.goals_reached}
    if state.unresolved:
        plain["unresolved"] = state.unresolved
    if state.by_verdict.total:
        any_signal = effectiveness(state.by_signal, params.targets)
        suspected = effectiveness(state.by_suspicion, params.targets)
        by_verdict = effectiveness(state.by_verdict, params.targets)
        plain["labels"] = {**by_verdict, "any_signal": any_signal, "suspected": suspected}
        if state.by_judge.total:
            plain["labels"]["judged"] = effectiveness(state.by_judge, params.targets)
    if state.judged.total:
        plain["judged"] = state.judged.section()
    return plain


def _share(count: int, of: int) -> float | None:
    return count / of if of else None
