"""The questions a check asks of the evidence: the specification's four, and how others are declared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self

import msgspec
from pydantic import Field, field_validator, model_validator

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.evaluators.selfcheck.record import Evidence
from evalq.evalcore.evaluators.selfcheck.signals import search_pattern
from evalq.evalcore.scan import Scanner, require_searchable

__all__ = ["QUESTIONS", "SELF_CHECK_QUESTIONS", "Question", "SelfCheckQuestion", "evidence_text"]

BuiltIn = Literal["tests_pass", "requirements_met", "no_assumptions", "evidence_exists"]
Key = Literal["testOutput", "requirementsList", "assumptions", "evidence", "codeChanges"]


@dataclass(frozen=True)
class SelfCheckQuestion:
    """A question, answered by ``validator``, which may be asynchronous; where it is ``required``, only True lets a
    check pass.
    """

    id: str
    question: str
    validator: Callable[[Evidence], bool | Awaitable[bool]]
    required: bool = True


def _tests_pass(evidence: Evidence) -> bool:
    # An empty output counts as given, as in the specification.
    return evidence.testOutput is not None and evidence.testsPassed is True


def _requirements_met(evidence: Evidence) -> bool:
    # Unlike with assumptions, none listed is not enough: a report must not pass by leaving its requirements out.
    return bool(evidence.requirementsList) and all(item["met"] for item in evidence.requirementsList or ())


def _no_assumptions(evidence: Evidence) -> bool:
    # SPEC, section 3: none listed is a yes here; whether that is believed is for other questions.
    return all(item["verified"] for item in evidence.assumptions or ())


def _evidence_exists(evidence: Evidence) -> bool:
    return evidence.testOutput is not None or bool(evidence.codeChanges) or bool(evidence.evidence)


_BUILT_IN: dict[BuiltIn, Callable[[Evidence], bool]] = {
    "tests_pass": _tests_pass,
    "requirements_met": _requirements_met,
    "no_assumptions": _no_assumptions,
    "evidence_exists": _evidence_exists,
}


class Question(Params):
    """A question as data: answered by one of the built-in ``check``s, or by what stands under ``key`` of the evidence.

    With ``key``, the answer is yes when its text matches ``pattern``, or without a pattern when there is any text.
    """

    id: str = Field(min_length=1)
    question: str
    required: bool = True
    check: BuiltIn | None = None
    key: Key | None = None
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
            raise ValueError("'pattern' needs a 'key' to be looked for in")
        return self

    def compiled(self) -> SelfCheckQuestion:
        """The question with a validator that can be called."""
        if self.check is not None:
            return SelfCheckQuestion(self.id, self.question, _BUILT_IN[self.check], self.required)
        scanner = Scanner([search_pattern(self.pattern)]) if self.pattern is not None else None
        return SelfCheckQuestion(self.id, self.question, partial(_holds, self.key, scanner), self.required)


def _holds(key: Key | None, scanner: Scanner | None, evidence: Evidence) -> bool:
    given = getattr(evidence, str(key))
    texts = [given] if isinstance(given, str) else [str(value) for item in given or () for value in item.values()]
    text = "\n".join(texts)
    return bool(text) if scanner is None else scanner.firsts(text)[0] is not None


QUESTIONS: tuple[Question, ...] = (
    Question(id="tests_pass", question="모든 테스트 통과? (실제 출력 필수)", check="tests_pass"),
    Question(id="requirements_met", question="모든 요구사항 충족? (구체적 목록)", check="requirements_met"),
    Question(id="no_assumptions", question="검증 없는 가정 없음? (문서 제시)", check="no_assumptions"),
    Question(id="evidence_exists", question="증거 있음? (테스트 결과, 코드 변경, 검증)", check="evidence_exists"),
)
"""The specification's four, as data."""

SELF_CHECK_QUESTIONS: tuple[SelfCheckQuestion, ...] = tuple(question.compiled() for question in QUESTIONS)
"""The specification's four."""


def evidence_text(question: str, evidence: Evidence) -> str:
    """What the result of the question with this id quotes; empty for ids of the user's own."""
    match question:
        case "tests_pass":
            return "No test output" if evidence.testOutput is None else evidence.testOutput
        case "requirements_met":
            return _json(evidence.requirementsList)
        case "no_assumptions":
            return _json(evidence.assumptions)
        case "evidence_exists":
            # By truth, as the specification's code writes it, though an empty output counts as given elsewhere.
            tests = "true" if evidence.testOutput else "false"
            return f"Tests: {tests}, Code: {len(evidence.codeChanges or ())} files"
        case _:
            return ""


def _json(items: list[Any] | None) -> str:
    return msgspec.json.encode(items or []).decode()
