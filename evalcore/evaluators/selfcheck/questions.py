"""The questions that a check asks of the evidence, and the danger signals that it searches for, as data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self

import msgspec
from pydantic import Field, field_validator, model_validator

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.evaluators.selfcheck.evidence import Evidence
from evalq.evalcore.scan import Pattern, Scanner, require_searchable


def search_pattern(source: str, *, ignore_case: bool = True) -> Pattern:
    """A pattern of this evaluator: as in Python's `re` on str, but only A-Z match without regard to case."""
    return Pattern(source, ignore_case, "ascii")


_BuiltIn = Literal["tests_pass", "requirements_met", "no_assumptions", "evidence_exists"]
_Key = Literal["testOutput", "requirementsList", "assumptions", "evidence", "codeChanges"]


@dataclass(frozen=True)
class SelfCheckQuestion:
    """A question that ``validator`` answers (it may be asynchronous). A check passes only if each ``required`` question
    is answered with True.
    """

    id: str
    question: str
    validator: Callable[[Evidence], bool | Awaitable[bool]]
    required: bool = True


def _tests_pass(evidence: Evidence) -> bool:
    # An empty output counts as given, as in the specification.
    return evidence.testOutput is not None and evidence.testsPassed is True


def _requirements_met(evidence: Evidence) -> bool:
    # An empty list is not enough, unlike for assumptions: a report must not pass by leaving out its requirements.
    return bool(evidence.requirementsList) and all(item["met"] for item in evidence.requirementsList or ())


def _no_assumptions(evidence: Evidence) -> bool:
    # SPEC, section 3: an empty list is a yes.
    return all(item["verified"] for item in evidence.assumptions or ())


def _evidence_exists(evidence: Evidence) -> bool:
    return evidence.testOutput is not None or bool(evidence.codeChanges) or bool(evidence.evidence)


_BUILT_IN: dict[_BuiltIn, Callable[[Evidence], bool]] = {
    "tests_pass": _tests_pass,
    "requirements_met": _requirements_met,
    "no_assumptions": _no_assumptions,
    "evidence_exists": _evidence_exists,
}


class Question(Params):
    """A question as data: a built-in ``check`` answers it, or the evidence under ``key``.

    With ``key``, the answer is yes if its text matches ``pattern``; without a pattern, if there is any text.
    """

    id: str = Field(min_length=1)
    question: str
    required: bool = True
    check: _BuiltIn | None = None
    key: _Key | None = None
    pattern: str | None = Field(default=None, min_length=1)

    @field_validator("pattern")
    @classmethod
    def _searchable(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            require_searchable(search_pattern(pattern))
        return pattern

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.check is None) == (self.key is None):
            raise ValueError("give either 'check' (a built-in one) or 'key' (with a 'pattern' or without)")
        if self.pattern is not None and self.key is None:
            raise ValueError("'pattern' needs a 'key' whose text it searches")
        return self

    def compiled(self) -> SelfCheckQuestion:
        """The question with a validator that can be called."""
        if self.check is not None:
            return SelfCheckQuestion(self.id, self.question, _BUILT_IN[self.check], self.required)
        scanner = Scanner([search_pattern(self.pattern)]) if self.pattern is not None else None
        return SelfCheckQuestion(self.id, self.question, partial(_key_matches, self.key, scanner), self.required)


def _key_matches(key: _Key | None, scanner: Scanner | None, evidence: Evidence) -> bool:
    value = getattr(evidence, str(key))
    texts = [value] if isinstance(value, str) else [str(part) for item in value or () for part in item.values()]
    text = "\n".join(texts)
    return bool(text) if scanner is None else scanner.firsts(text)[0] is not None


QUESTIONS: tuple[Question, ...] = (
    Question(id="tests_pass", question="모든 테스트 통과? (실제 출력 필수)", check="tests_pass"),
    Question(id="requirements_met", question="모든 요구사항 충족? (구체적 목록)", check="requirements_met"),
    Question(id="no_assumptions", question="검증 없는 가정 없음? (문서 제시)", check="no_assumptions"),
    Question(id="evidence_exists", question="증거 있음? (테스트 결과, 코드 변경, 검증)", check="evidence_exists"),
)
"""The specification's four questions, as data."""

SELF_CHECK_QUESTIONS: tuple[SelfCheckQuestion, ...] = tuple(question.compiled() for question in QUESTIONS)
"""The specification's four questions."""


def evidence_text(question: str, evidence: Evidence) -> str:
    """The evidence that is quoted in the result of the question with this id; empty for a user's own question."""
    match question:
        case "tests_pass":
            return "No test output" if evidence.testOutput is None else evidence.testOutput
        case "requirements_met":
            return _json(evidence.requirementsList)
        case "no_assumptions":
            return _json(evidence.assumptions)
        case "evidence_exists":
            # An empty output is "false" here, as in the specification's code, though it counts as given elsewhere.
            tests = "true" if evidence.testOutput else "false"
            return f"Tests: {tests}, Code: {len(evidence.codeChanges or ())} files"
        case _:
            return ""


def _json(items: list[Any] | None) -> str:
    return msgspec.json.encode(items or []).decode()


# Danger signals

CONTEXT = 50
"""Characters shown on each side of a signal."""


class DangerSignal(Params):
    """A regular expression to find in a text. An error fails the check, a warning never does."""

    pattern: str = Field(min_length=1)
    severity: Literal["warning", "error"]
    message: str
    ignore_case: bool = True

    @field_validator("pattern")
    @classmethod
    def _searchable(cls, pattern: str) -> str:
        # Case does not matter for whether a pattern is refused.
        require_searchable(search_pattern(pattern))
        return pattern


def _unsure(kind: str, words: str) -> DangerSignal:
    # SPEC, section 3: as written, without word boundaries, so that "improbably" is a match.
    return DangerSignal(pattern=words, severity="warning", message=f'{kind} 표현 감지: "{words}"')


# Messages are the seed's, word for word: results name signals by them.
DANGER_SIGNALS: tuple[DangerSignal, ...] = (
    _unsure("불확실한", "should work"),
    _unsure("불확실한", "probably"),
    _unsure("주관적", "I believe"),
    _unsure("주관적", "I think"),
    _unsure("일반화", "typically"),
    _unsure("일반화", "usually"),
    DangerSignal(pattern="without concrete evidence", severity="error", message="증거 없는 주장 감지"),
)
"""The specification's seven signals."""

EXTENDED_DANGER_SIGNALS: tuple[DangerSignal, ...] = (
    *DANGER_SIGNALS,
    _unsure("불확실한", "might be"),
    _unsure("불확실한", "could be"),
    _unsure("불확실한", "perhaps"),
    _unsure("가정", "assume"),
    DangerSignal(pattern="TODO|FIXME|HACK", severity="error", message="미완성 마커 감지"),
)
"""The seven and the specification's five further ones."""

# Tuned on half A of examples/labelled.jsonl alone, never on half B.
_CALIBRATED: tuple[tuple[str, str], ...] = (
    (
        (
            r"\b(?:simulated|placeholder|illustrative|mental walk|expected output)\b"
            r"|\bmock(?:ed)? (?:run|result|output|eval)"
        ),
        "stand-in for a result",
    ),
    (
        r"\b(?:don't|do not|didn't|did not|couldn't|could not) (?:have|get) (?:access|credentials)|\bnot attached\b",
        "without access to what was to be tested",
    ),
    (
        (
            r"\b(?:all|full|entire) (?:the )?(?:unit )?tests? (?:are |is |were )?(?:green|passing|passes)\b"
            r"|\beverything (?:is |was |looks )?(?:green|fine|good|passes|works)\b"
            r"|\b(?:verified|validated|tested) (?:on (?:simulator|device|staging|production)|end to end)"
            r"|\b(?:held up well|was a success|in good shape)\b"
        ),
        "blanket claim in place of output",
    ),
    (
        r"\bwill be (?:kicked off|added|done|run|enabled|finished|tested) |\bcan follow\b|\breplace with\b",
        "work put off",
    ),
    (
        r"(?m)^\S{0,40}\s?(?:error|warning): |\bAddressSanitizer\b|\b[1-9]\d* (?:failing|errors?)\b",
        "failure in the output",
    ),
    (r"\bshould work\b|\bI believe\b", "belief in place of a result"),
    # "Without a problem", written with a space or without, and "have finished it".
    (r"문제\s?없이|완성했습니다", "출력 없는 단정"),
)
# Errors, since a warning never fails a check (SPEC, section 3).
CALIBRATED_DANGER_SIGNALS: tuple[DangerSignal, ...] = tuple(
    DangerSignal(pattern=pattern, severity="error", message=message) for pattern, message in _CALIBRATED
)
"""evalq's own list, tuned on one half of its labelled set (docs/reference/selfcheck-effectiveness.md)."""

SIGNAL_LISTS: dict[str, tuple[DangerSignal, ...]] = {
    "default": DANGER_SIGNALS,
    "extended": EXTENDED_DANGER_SIGNALS,
    "calibrated": CALIBRATED_DANGER_SIGNALS,
}


@dataclass(slots=True)
class FoundSignal:
    """A signal's message, and the text around its first match."""

    signal: str
    context: str


class SignalScan:
    """Searches for ``signals``, and shows ``context`` characters on each side."""

    def __init__(self, signals: Sequence[DangerSignal], context: int = CONTEXT) -> None:
        self.signals = tuple(signals)
        self._context = context
        self._scanner = Scanner([search_pattern(s.pattern, ignore_case=s.ignore_case) for s in self.signals])

    def __call__(self, text: str) -> list[FoundSignal]:
        """The signals found in ``text``, in list order."""
        signals = []
        for signal, span in zip(self.signals, self._scanner.firsts(text), strict=True):
            if span:
                around = text[max(0, span[0] - self._context) : span[1] + self._context]
                # Dots on both sides, as in the seed's code, even at the ends of the text.
                signals.append(FoundSignal(signal.message, f"...{around}..."))
        return signals
