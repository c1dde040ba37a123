"""A check made ready, and what it says of an answer; a composed one goes by what its parts say."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from evalq.evalcore.evaluators.checks.answer import Answer, Uncomputable, Unfit
from evalq.evalcore.evaluators.checks.vocabulary.declaring import JudgeQuestion, Made
from evalq.evalcore.naming import shorten
from evalq.evalcore.records.extract import NoJson
from evalq.evalcore.records.json_path import NothingThere, find, parse_path
from evalq.evalcore.statistics.exact import is_below

__all__ = ["FOUND_CHARACTERS", "WANTED_CHARACTERS", "Check", "CommonOptions", "Composed", "Verdict", "mean_by_weight"]

WANTED_CHARACTERS = 120
FOUND_CHARACTERS = 200


class Verdict(msgspec.Struct, omit_defaults=True):
    """What became of a check: ``passed`` and ``score`` are None, and ``error`` says why, where it cannot be computed.

    ``looked`` is false where the answer has nothing that it could look at: it then fails, negated or not. ``checks``
    are the parts of a composed one. Texts are cut to a bounded length.
    """

    name: str
    passed: bool | None
    score: float | None
    wanted: str
    found: str = ""
    error: str = ""
    weight: float = 1.0
    looked: bool = True
    checks: list[Verdict] = []


class CommonOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of every check."""

    name: str | None = None
    weight: float = 1.0
    threshold: float | None = None
    at: str | None = None


class Check:
    """One check made ready, its parts included."""

    __slots__ = ("_at", "_made", "_negated", "_threshold", "name", "wanted", "weight")

    def __init__(
        self, name: str, shared: CommonOptions, negated: bool, wanted: str, made: Made | None, least: float
    ) -> None:
        self.name = shorten(shared.name or name)
        self.weight = shared.weight
        self.wanted = shorten(f"not: {wanted}" if negated else wanted, WANTED_CHARACTERS)
        self._negated = negated
        self._threshold = least
        self._made = made
        self._at = None if shared.at is None else parse_path(shared.at)

    def judge(self, answer: Answer) -> Verdict:
        """What becomes of it, looking at ``answer``."""
        try:
            answer = self._seen(answer)
        except (NoJson, NothingThere) as error:
            return self._unlooked(str(error))
        return self._judged(answer)

    def _unlooked(self, why: str, parts: Sequence[Verdict] = ()) -> Verdict:
        """Nothing is there to look at, of which neither the check nor its opposite is true."""
        found = shorten(why, FOUND_CHARACTERS)
        return Verdict(self.name, False, 0.0, self.wanted, found, "", self.weight, False, list(parts))

    def _seen(self, answer: Answer) -> Answer:
        """What it looks at. Raises NoJson, NothingThere."""
        return answer if self._at is None else answer.part(find(answer.json, self._at, "the answer"))

    def asks(self) -> Iterator[JudgeQuestion]:
        """What it asks judges, and its parts do."""
        if self._made is not None and self._made.asked is not None:
            yield self._made.asked

    def questions(self, answer: Answer) -> Iterator[tuple[JudgeQuestion, Answer]]:
        """What is to be asked, and about what, so that it can be computed."""
        with contextlib.suppress(NoJson, NothingThere):
            seen = self._seen(answer)
            yield from self._questions(seen)

    def _questions(self, answer: Answer) -> Iterator[tuple[JudgeQuestion, Answer]]:
        return ((asked, answer) for asked in self.asks())

    def _judged(self, answer: Answer) -> Verdict:
        assert self._made is not None, "a composed check judges by its parts"
        try:
            score, found = self._made.run(answer)
        except Uncomputable as error:
            return Verdict(self.name, None, None, self.wanted, "", shorten(str(error), FOUND_CHARACTERS), self.weight)
        except Unfit as error:
            return self._unlooked(str(error))
        # As decimals: in floats 1 - 8/25 is a little less than .68.
        passed = not is_below(score, self._threshold)
        if self._negated:
            passed, score = not passed, 1.0 - score
        return Verdict(self.name, passed, score, self.wanted, shorten(found, FOUND_CHARACTERS), "", self.weight)


class Composed(Check):
    """``any``, ``all`` or ``at-least`` so many of its parts."""

    __slots__ = ("_count", "_kind", "_parts")

    def __init__(
        self, name: str, shared: CommonOptions, negated: bool, kind: str, parts: Sequence[Check], count: int
    ) -> None:
        wanted = f"{count} of {len(parts)} checks" if kind == "at-least" else f"{kind} of {len(parts)} checks"
        super().__init__(name, shared, negated, wanted, None, 0.0)
        self._kind, self._parts, self._count = kind, parts, count

    def asks(self) -> Iterator[JudgeQuestion]:
        """What its parts ask judges."""
        return (asked for part in self._parts for asked in part.asks())

    def _questions(self, answer: Answer) -> Iterator[tuple[JudgeQuestion, Answer]]:
        # All of them: which part decides depends on the others, and an answer must not count by what was asked of it.
        return (question for part in self._parts for question in part.questions(answer))

    def _judged(self, answer: Answer) -> Verdict:
        parts = [part.judge(answer) for part in self._parts]
        deciding = _deciding(parts)
        error = next((part.error for part in deciding if part.passed is None), "")
        if error:
            # Even where the others decide: an answer must not count by whether its record happens to be whole.
            return Verdict(self.name, None, None, self.wanted, "", error, self.weight, checks=parts)
        held, unlooked = sum(part.passed is True for part in deciding), sum(not part.looked for part in deciding)
        needed = {"any": 1, "all": len(deciding)}.get(self._kind, self._count)
        found = f"{held} of {len(deciding)} hold"
        if held < needed <= held + unlooked:
            # By Kleene's logic: what could not be looked at decides, and may be either.
            return self._unlooked(f"{found}, {unlooked} found nothing to look at", parts)
        passed, score = held >= needed, self._score(deciding, held)
        if self._negated:
            passed, score = not passed, 1.0 - score
        return Verdict(self.name, passed, score, self.wanted, found, "", self.weight, checks=parts)

    def _score(self, deciding: Sequence[Verdict], held: int) -> float:
        """Before it is turned round; a part that could not be looked at adds nothing to the score that is told."""
        unlooked = 1.0 if self._negated else 0.0
        pairs = [(part.weight, part.score or 0.0 if part.looked else unlooked) for part in deciding]
        if self._kind == "any":
            return max(score for _, score in pairs)
        if self._kind == "all":
            return mean_by_weight(pairs)
        could = held + sum(not part.looked for part in deciding) * unlooked
        return min(1.0, could / self._count)


def _deciding(parts: Sequence[Verdict]) -> Sequence[Verdict]:
    """Those of the parts that have a weight; all where none has."""
    return [part for part in parts if part.weight] or parts


def mean_by_weight(scores: Iterable[tuple[float, float]]) -> float:
    """The mean of (weight, score); the plain mean where nothing has a weight, and 1 where nothing is there."""
    pairs = list(scores)
    whole = sum(weight for weight, _ in pairs)
    if whole <= 0.0:
        pairs, whole = [(1.0, score) for _, score in pairs], float(len(pairs))
    return min(1.0, sum(weight * score for weight, score in pairs) / whole) if pairs else 1.0
