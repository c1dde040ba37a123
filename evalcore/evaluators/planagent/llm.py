"""Scores that a language model gave in the input, kept next to ours, and how far the two agree."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from evalq.evalcore.evaluators.planagent.params import TOP_SCORE, Rules
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import Merging
from evalq.evalcore.statistics.exact import ExactSum

__all__ = ["Agreement", "LlmScore", "llm_accuracy", "read_llm_score", "weighted_kappa"]

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_SIZE = TOP_SCORE + 1


def _empty_square() -> list[int]:
    return [0] * _SIZE**2


class LlmScore(msgspec.Struct, frozen=True):
    """What the LLM columns of a row hold: ``score`` is None where the text is no number from 0 to 5."""

    score: float | None
    state: str
    comment: str


class Agreement(Merging, array_like=True):
    """Pairs of our score and the LLM's: counts that add up, and the whole-numbered pairs as a square, ours first.

    ``unreadable`` counts LLM scores that are no number from 0 to 5; they are in no pair.
    """

    pairs: int = 0
    exact: int = 0
    within_one: int = 0
    unreadable: int = 0
    distance: ExactSum = msgspec.field(default_factory=ExactSum)
    square: list[int] = msgspec.field(default_factory=_empty_square)

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, float | None]]) -> Agreement:
        """The agreement of rows that have both scores; None is an unreadable one."""
        both = [(ours, llm) for ours, llm in pairs if llm is not None]
        apart = [abs(llm - ours) for ours, llm in both]
        square = _empty_square()
        for ours, llm in both:
            # Kappa needs categories: a 3.5 counts in the mean difference and in no cell.
            if llm.is_integer():
                square[ours * _SIZE + int(llm)] += 1
        return cls(
            pairs=len(both),
            exact=sum(distance == 0 for distance in apart),
            within_one=sum(distance <= 1 for distance in apart),
            unreadable=len(pairs) - len(both),
            distance=ExactSum.of(apart),
            square=square,
        )

    def merge(self, later: Agreement) -> None:
        """Take in the pairs of other rows."""
        self.pairs += later.pairs
        self.exact += later.exact
        self.within_one += later.within_one
        self.unreadable += later.unreadable
        self.distance.merge(later.distance)
        self.square = [a + b for a, b in zip(self.square, later.square, strict=True)]

    def section(self) -> dict[str, Json]:
        """The report's ``llm``: shares of all pairs; kappa is over the ``kappa_pairs`` whole-numbered ones."""
        return {
            "pairs": self.pairs,
            "unreadable": self.unreadable,
            "exact": self.exact / self.pairs if self.pairs else None,
            "within_one": self.within_one / self.pairs if self.pairs else None,
            "mean_absolute_difference": self.distance.mean(self.pairs) if self.pairs else None,
            "weighted_kappa": weighted_kappa(self.square),
            "kappa_pairs": sum(self.square),
        }


def weighted_kappa(square: list[int]) -> float | None:
    """Cohen's kappa with quadratic weights of a square of counts (rows one rater, columns the other).

    1 - observed / expected disagreement, where a disagreement weighs the squared distance (Cohen 1968). None where
    chance alone leaves no disagreement, as with no pairs or a single score on both sides.
    """
    rows = [sum(square[i * _SIZE : (i + 1) * _SIZE]) for i in range(_SIZE)]
    columns = [sum(square[j::_SIZE]) for j in range(_SIZE)]
    cells = [(i, j) for i in range(_SIZE) for j in range(_SIZE)]
    observed = sum((i - j) ** 2 * square[i * _SIZE + j] for i, j in cells)
    expected = sum((i - j) ** 2 * rows[i] * columns[j] for i, j in cells)
    # Whole numbers up to this one division, so that no order of summing shows.
    return 1 - observed * sum(square) / expected if expected else None


def read_llm_score(score: str, state: str, comment: str) -> LlmScore | None:
    """The LLM columns of a row; None where no score is recorded."""
    text = score.strip()
    if not text:
        return None
    # float() would take "nan", "1e0" and "1_0" as well.
    number = float(text) if _NUMBER.fullmatch(text) else -1.0
    return LlmScore(number if 0 <= number <= TOP_SCORE else None, state, comment)


def llm_accuracy(found: LlmScore, rules: Rules) -> float | msgspec.UnsetType:
    """The score that stands for a row's accuracy in place of ours; none unless ``rules`` say so, and it is a number."""
    if found.score is None or rules.accuracy != "llm_when_present":
        return msgspec.UNSET
    return found.score
