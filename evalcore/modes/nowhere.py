"""The one statement over all cases: that none of them is collapsed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from evalq.evalcore.model.canonical import Json
from evalq.evalcore.modes.block import share_rule
from evalq.evalcore.modes.decide import holm
from evalq.evalcore.modes.intervals import ALPHA

__all__ = ["CaseCounts", "collapse_nowhere"]


@dataclass(frozen=True)
class CaseCounts:
    """How often a case's commonest kind of answer came, of how many runs, and its verdict on a mode's ``share``.

    ``fuzzy`` is the verdict with near-duplicates as one, None where there is none; ``planned`` as in `modes_block`.
    """

    case: str
    mode: int
    runs: int
    verdict: str
    share: float
    fuzzy: str | None = None
    planned: int = 0

    @property
    def surely_diverse(self) -> bool:
        """Whether it is diverse by either count: one answer in two wordings looks diverse, and is not."""
        return self.verdict == "diverse" and self.fuzzy in (None, "diverse")

    @property
    def p_value(self) -> float:
        """Against "no kind has a probability above ``share``"."""
        return share_rule(self.planned).p_value(self.mode, self.runs, self.share)


def collapse_nowhere(cases: Iterable[CaseCounts]) -> dict[str, Json]:
    """The one statement over all cases, that none is collapsed: whether it ``holds``, ``fails`` or is ``inconclusive``.

    It fails for the cases whose p-values, adjusted by Holm, are at most ALPHA, so the chance of naming any case
    wrongly stays below ALPHA however many there are. It holds when every case is diverse by itself, which
    needs no adjustment: to hold wrongly, the test of the very case that is collapsed must err (intersection-union).
    """
    known = list(cases)
    tested = [case for case in known if case.runs]
    adjusted = holm([case.p_value for case in tested])
    collapsed: list[Json] = [
        {"case": case.case, "p": p} for case, p in zip(tested, adjusted, strict=True) if p <= ALPHA
    ]
    if collapsed:
        answer = "fails"
    else:
        # Of no case at all nothing holds.
        answer = "holds" if known and all(case.surely_diverse for case in known) else "inconclusive"
    return {"verdict": answer, "cases": len(known), "collapsed": collapsed, "alpha": ALPHA, "correction": "Holm"}
