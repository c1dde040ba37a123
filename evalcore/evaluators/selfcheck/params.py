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
    def _signal_list(cls, value: Any) -> Any:
        return by_name(value, SIGNAL_LISTS)

    @field_validator("questions", mode="before")
    @classmethod
    def _question_list(cls, value: Any) -> Any:
        return by_name(value, _QUESTION_LISTS)

    @field_validator("signals")
    @classmethod
    def _one_message_each(cls, signals: tuple[DangerSignal, ...]) -> tuple[DangerSignal, ...]:
        # Only for params: a protocol made in Python may have two of one message, and the first decides.
        _refuse_duplicates([signal.message for signal in signals], "message")
        return signals

    @field_validator("questions")
    @classmethod
    def _one_id_each(cls, questions: tuple[Question, ...]) -> tuple[Question, ...]:
        _refuse_duplicates([question.id for question in questions], "id")
        return questions

    @field_serializer("signals")
    def _signal_name(self, signals: tuple[DangerSignal, ...]) -> Any:
        return _list_name_or_data(signals, SIGNAL_LISTS)

    @field_serializer("questions")
    def _question_name(self, questions: tuple[Question, ...]) -> Any:
        return _list_name_or_data(questions, _QUESTION_LISTS)


def _list_name_or_data(items: tuple[Params, ...], lists: dict[str, Any]) -> Any:
    return name_of(items, lists) or [item.model_dump(mode="json") for item in items]


def _refuse_duplicates(names: list[str], key: str) -> None:
    duplicates = sorted(name for name, times in Counter(names).items() if times > 1)
    if duplicates:
        raise ValueError(f"the same {key} twice: {', '.join(duplicates)} (the report lists results by {key})")
