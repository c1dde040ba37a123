"""How a check is declared: its name, what stands behind it, its options, and how it looks at an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.evaluators.checks.answer import Answer
from evalq.evalcore.records.asking import Asked

__all__ = ["BadCheck", "Finding", "JudgeQuestion", "Kind", "Made", "NoOptions", "Run", "holds"]


class BadCheck(ValueError):
    """What is written there is no check; ``path`` leads to what is wrong, from the check on."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.path = path


class Finding(NamedTuple):
    """What a check found: a score from 0 to 1, and what came, in words."""

    score: float
    found: str


Run = Callable[[Answer], Finding]


class JudgeQuestion(NamedTuple):
    """What a check asks a judge about an answer, ``votes`` times in each of so many ``orders`` of two texts.

    ``key`` names it in recorded judgements: the same for the same question, however it is weighed. ``judge`` is the
    target that the check itself names, else empty. ``template`` is the digest of the words around the texts. ``prompt``
    is given what the program was asked, its answer, the other text (empty where the check has its own) and the order.
    ``read`` takes the verdict out of a reply and raises `Unreadable`. ``against``: the other text is an output of
    another run.
    """

    key: str
    judge: str
    votes: int
    orders: int
    template: str
    prompt: Callable[[str | None, str, str, int], Asked]
    read: Callable[[dict[str, Any]], Any]
    against: bool = False


class Made(NamedTuple):
    """A check made ready: what it wants, in words, and how it looks at an answer.

    ``run`` raises `Uncomputable` where the record of an answer lacks what it is about. ``least`` is the score that
    passes, where that depends on the options; ``scaled`` makes one of a ``threshold`` that is in units of its own, and
    raises BadCheck. ``asked`` is there where judges decide.
    """

    wanted: str
    run: Run
    least: float | None = None
    scaled: Callable[[float], float] | None = None
    asked: JudgeQuestion | None = None


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a check that has none of its own."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One check of the vocabulary.

    ``value`` is the type of what stands behind the name, as msgspec names types; None where nothing does. ``options``
    is a msgspec struct of the options beside it, each with a default. ``make`` gets both and raises BadCheck.
    ``threshold`` is the least score that passes where a file does not say: None for checks that hold or do not.
    ``needs`` is the extra that installs what it takes; ``example`` a check as it stands in a file. ``fallible``: its
    verdict may be wrong, as that of a model is; people label some answers to know how often.
    """

    name: str
    summary: str
    value: Any
    make: Callable[[Any, Any], Made]
    example: dict[str, Any]
    options: type[Any] = NoOptions
    threshold: float | None = None
    needs: str = ""
    fallible: bool = False


def holds(fine: bool, found: str) -> Finding:
    """The finding of a check that holds or does not."""
    return Finding(1.0 if fine else 0.0, found)
