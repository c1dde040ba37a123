"""The check itself: one verdict from questions, danger signals and the goal."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from evalq.evalcore.evaluators.selfcheck.evidence import Evidence, GoalBackwardResult, read_record, scanned_text
from evalq.evalcore.evaluators.selfcheck.params import SelfCheckParams
from evalq.evalcore.evaluators.selfcheck.questions import (
    CONTEXT,
    DANGER_SIGNALS,
    SELF_CHECK_QUESTIONS,
    DangerSignal,
    FoundSignal,
    SelfCheckQuestion,
    SignalScan,
    evidence_text,
)


@dataclass(slots=True)
class QuestionResult:
    """The answer to one question, with its evidence."""

    id: str
    passed: bool
    evidence: str | None = None


@dataclass(slots=True)
class SignalResult:
    """Whether a signal was found, and the text around it."""

    signal: str
    found: bool
    context: str | None = None


@dataclass(slots=True)
class SelfCheckResult:
    """The verdict on one report; ``details`` is there if a goal was verified."""

    passed: bool
    questions: list[QuestionResult]
    dangerSignals: list[SignalResult]
    goalVerification: GoalBackwardResult | None = None
    details: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The specification's result object, without keys that have no value."""
        questions = [{"id": q.id, "passed": q.passed, "evidence": q.evidence} for q in self.questions]
        signals: list[dict[str, Any]] = [{"signal": s.signal, "found": s.found} for s in self.dangerSignals]
        for plain_signal, signal in zip(signals, self.dangerSignals, strict=True):
            if signal.found:
                plain_signal["context"] = signal.context
        plain: dict[str, Any] = {"passed": self.passed, "questions": questions, "dangerSignals": signals}
        if self.goalVerification is not None:
            plain["goalVerification"] = self.goalVerification
        return plain


class SelfCheckProtocol:
    """Asks ``questions`` and searches for ``danger_signals``; both are empty by default.

        protocol = create_default_self_check_protocol()
        result = protocol.check({"testOutput": "12 passed", "testsPassed": True, "requirementsList": []})
        result.passed                                      # False: no requirement is listed
        [question.id for question in result.questions if not question.passed]

    The specification's check is asynchronous, as `acheck` is. ``check`` needs no event loop, and accepts asynchronous
    validators that do not wait.
    """

    def __init__(
        self,
        questions: Sequence[SelfCheckQuestion] = (),
        danger_signals: Sequence[DangerSignal] = (),
        *,
        context: int = CONTEXT,
    ) -> None:
        self._context = context
        self.set_questions(questions)
        self.set_danger_signals(danger_signals)

    def set_questions(self, questions: Sequence[SelfCheckQuestion]) -> None:
        """Replace the questions."""
        self._questions = tuple(questions)

    def set_danger_signals(self, signals: Sequence[DangerSignal]) -> None:
        """Replace the danger signals."""
        self._scan = SignalScan(signals, self._context)
        # Two signals with the same message count as one; the first decides.
        severities = {signal.message: signal.severity for signal in reversed(self._scan.signals)}
        self._fatal = frozenset(message for message, severity in severities.items() if severity == "error")

    def scan_for_danger_signals(self, text: str) -> list[FoundSignal]:
        """The signals found in ``text``, in list order, each at its first match."""
        return self._scan(text)

    def check(self, evidence: Evidence | Mapping[str, Any]) -> SelfCheckResult:
        """The verdict on ``evidence``: passed if all required questions are passed and no error signal is found.

        A goal that was verified must be reached, too. A question whose validator waits is not passed, and its evidence
        says to await `acheck`. Raises RecordFault for a mapping with a key of a wrong type.
        """
        record = _evidence_of(evidence)
        return self._verdict(record, [_answer(question, record) for question in self._questions])

    async def acheck(self, evidence: Evidence | Mapping[str, Any]) -> SelfCheckResult:
        """`check` in an event loop: awaits asynchronous validators one after another."""
        record = _evidence_of(evidence)
        return self._verdict(record, [await _answer_async(question, record) for question in self._questions])

    def _verdict(self, evidence: Evidence, answers: list[QuestionResult]) -> SelfCheckResult:
        signals = self._scan(scanned_text(evidence))
        # In reverse, so that the first of two questions with one id decides, as with signals.
        first = {answer.id: answer.passed for answer in reversed(answers)}
        required = all(first[question.id] for question in self._questions if question.required)
        passed = required and not any(signal.signal in self._fatal for signal in signals)
        goal = evidence.goalVerification
        reached = goal is None or goal.reached
        details = f"SelfCheck: {_json_word(passed)}, GoalBackward: {_json_word(reached)}"
        return SelfCheckResult(
            passed=passed and reached,
            questions=answers,
            dangerSignals=self._signal_results(signals),
            goalVerification=goal,
            details=None if goal is None else details,
        )

    def _signal_results(self, signals: list[FoundSignal]) -> list[SignalResult]:
        contexts = {signal.signal: signal.context for signal in reversed(signals)}
        messages = [signal.message for signal in self._scan.signals]
        return [SignalResult(message, message in contexts, contexts.get(message)) for message in messages]


def _evidence_of(evidence: Evidence | Mapping[str, Any]) -> Evidence:
    return evidence if isinstance(evidence, Evidence) else read_record(evidence).evidence


def _answer(question: SelfCheckQuestion, evidence: Evidence) -> QuestionResult:
    try:
        answer: object = question.validator(evidence)
        if isinstance(answer, Awaitable):
            answer = _run(answer)
        return _question_result(question, evidence, answer)
    except Exception as error:
        # An exception in a user's validator counts as no.
        return _failed_question(question, error)


async def _answer_async(question: SelfCheckQuestion, evidence: Evidence) -> QuestionResult:
    try:
        answer = question.validator(evidence)
        if isinstance(answer, Awaitable):
            answer = await answer
        return _question_result(question, evidence, answer)
    except Exception as error:
        return _failed_question(question, error)


def _run(answer: Awaitable[object]) -> object:
    """The result of ``answer``, if it does not wait. Raises RuntimeError if it does."""
    # One step by hand: asyncio.run() refuses to run inside a running loop, as in a notebook.
    steps = answer.__await__()
    try:
        next(steps)
    except StopIteration as done:
        return done.value
    steps.close()
    raise RuntimeError("the validator waits: await acheck() instead of check()")


def _question_result(question: SelfCheckQuestion, evidence: Evidence, answer: object) -> QuestionResult:
    # A truthy value, such as a string, must not count as yes.
    if not isinstance(answer, bool):
        raise TypeError(f"the validator returned {type(answer).__name__}, not a boolean")
    return QuestionResult(question.id, answer, evidence_text(question.id, evidence))


def _failed_question(question: SelfCheckQuestion, error: Exception) -> QuestionResult:
    return QuestionResult(question.id, False, f"{type(error).__name__}: {error}")


def _json_word(value: bool) -> str:
    return "true" if value else "false"


def create_self_check_protocol(
    questions: Sequence[SelfCheckQuestion] = (), danger_signals: Sequence[DangerSignal] = ()
) -> SelfCheckProtocol:
    """A protocol with your own questions and signals."""
    return SelfCheckProtocol(questions, danger_signals)


def create_default_self_check_protocol() -> SelfCheckProtocol:
    """The specification's four questions and seven signals."""
    return SelfCheckProtocol(SELF_CHECK_QUESTIONS, DANGER_SIGNALS)


# Compiling a list of patterns takes 10 to 20 ms (decision 5): too long for every chunk.
@lru_cache(maxsize=64)
def protocol(params: SelfCheckParams) -> SelfCheckProtocol:
    """The protocol that ``params`` describe."""
    questions = [question.compiled() for question in params.questions]
    return SelfCheckProtocol(questions, params.signals, context=params.context)
