"""The params of a self check, with the specification's defaults."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pydantic import Field, field_serializer, field_validator

from evalq.evalcore.contract.claims import Targets
from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.contract.params import by_name, name_of
from evalq.evalcore.evaluators.selfcheck.questions import (
    CONTEXT,
    DANGER_SIGNALS,
    QUESTIONS,
    SIGNAL_LISTS,
    DangerSignal,
    Question,
)
from evalq.evalcore.evaluators.selfcheck.suspicion import SuspicionRules

_QUESTION_LISTS = {"default": QUESTIONS}


class SelfCheckParams(Params):
    """``signals`` and ``questions`` are lists, or names of lists: "default", and for signals "extended", "calibrated".

    ``context`` is in characters; with ``require_labels`` a record without ``hallucinated`` is an error.
    """

    questions: tuple[Question, ...] = QUESTIONS
    signals: tuple[DangerSignal, ...] = DANGER_SIGNALS
    context: int = Field(default=CONTEXT, ge=0, le=10_000)
    targets: Targets = Targets()
    suspicion: SuspicionRules = SuspicionRules()
    require_labels: bool = False

    @field_validator("signals", mode="before")
    @classmethod
    def _signal_list(cls, given: Any) -> Any:
        return by_name(given, SIGNAL_LISTS)

    @field_validator("questions", mode="before")
    @classmethod
    def _question_list(cls, given: Any) -> Any:
        return by_name(given, _QUESTION_LISTS)

    @field_validator("signals")
    @classmethod
    def _one_message_each(cls, signals: tuple[DangerSignal, ...]) -> tuple[DangerSignal, ...]:
        # Only here: a protocol made in Python may have two of the same message, and the first decides.
        _refuse_twins([signal.message for signal in signals], "message")
        return signals

    @field_validator("questions")
    @classmethod
    def _one_id_each(cls, questions: tuple[Question, ...]) -> tuple[Question, ...]:
        _refuse_twins([question.id for question in questions], "id")
        return questions

    @field_serializer("signals")
    def _signal_name(self, signals: tuple[DangerSignal, ...]) -> Any:
        return _shown(signals, SIGNAL_LISTS)

    @field_serializer("questions")
    def _question_name(self, questions: tuple[Question, ...]) -> Any:
        return _shown(questions, _QUESTION_LISTS)


def _shown(items: tuple[Params, ...], lists: dict[str, Any]) -> Any:
    return name_of(items, lists) or [item.model_dump(mode="json") for item in items]


def _refuse_twins(names: list[str], what: str) -> None:
    twins = sorted(name for name, times in Counter(names).items() if times > 1)
    if twins:
        raise ValueError(f"the same {what} twice: {', '.join(twins)} (results are reported by {what})")
