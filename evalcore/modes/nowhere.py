"""The one statement over all cases: that none of them is collapsed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from evalq.evalcore.model.canonical import Json
from evalq.evalcore.modes.decide import fisher_combined, holm
from evalq.evalcore.modes.intervals import ALPHA

__all__ = ["CaseCounts", "Somewhere", "collapse_nowhere", "collapsed_somewhere"]


@dataclass(frozen=True)
class CaseCounts:
    """A case's verdict, and how surprising its commonest kind of answer is if the case is not collapsed.

    ``p`` is that of the rule that ended the case (`modes_block` has it); None for a case without any answer. ``fuzzy``
    is the verdict with near-duplicates as one, None where there is none.
    """

    case: str
    p: float | None
    verdict: str
    fuzzy: str | None = None

    @property
    def surely_diverse(self) -> bool:
        """Whether it is diverse by either count: one answer in two wordings looks diverse, and is not."""
        return self.verdict == "diverse" and self.fuzzy in (None, "diverse")


class Somewhere(NamedTuple):
    """Whether some case is collapsed: ``p`` is the p-value of that.

    ``together`` is Fisher's, 1.0 where it does not count, and ``adjusted`` Holm's of each case, in the given order;
    ``tests`` is how many of these two share the error.
    """

    p: float
    together: float
    adjusted: list[float]
    tests: int

    def named(self, alpha: float) -> list[int]:
        """Which cases are surely collapsed, where all that is said errs with ``alpha`` at most."""
        return [at for at, p in enumerate(self.adjusted) if p <= alpha / self.tests]


def collapsed_somewhere(p_values: Sequence[float], *, independent: bool = True) -> Somewhere:
    """Two tests share the error in halves: Fisher's finds many cases that lean the same way, Holm's names single ones.

    Twenty cases of ten equal answers each are no news one by one, and all together they are; one case of fifty equal
    answers among nineteen diverse ones is seen by Holm's alone. Cases that are not ``independent``, such as those
    answered from one cache, have no joint p-value: Holm's alone counts then, as for a single case.
    """
    adjusted = holm(p_values)
    single = min(adjusted, default=1.0)
    if not independent or len(p_values) < 2:
        return Somewhere(single, 1.0, adjusted, 1)
    together = fisher_combined(p_values)
    return Somewhere(min(1.0, 2 * min(single, together)), together, adjusted, 2)


def collapse_nowhere(cases: Iterable[CaseCounts]) -> dict[str, Json]:
    """The one statement over all cases, that none is collapsed: whether it ``holds``, ``fails`` or is ``inconclusive``.

    It fails where the p-value over all cases, ``p``, is at most ALPHA (`collapsed_somewhere`). ``collapsed`` names the
    cases that are surely so, none where they are seen only ``together``. It holds when every case is diverse by
    itself, which needs no adjustment: to hold wrongly, the test of the very case that is collapsed must err
    (intersection-union).
    """
    known = list(cases)
    tested = [(case.case, case.p) for case in known if case.p is not None]
    found = collapsed_somewhere([p for _, p in tested])
    named = found.named(ALPHA)
    collapsed: list[Json] = [{"case": tested[at][0], "p": found.adjusted[at]} for at in named]
    if found.p <= ALPHA:
        answer = "fails"
    else:
        # Of no case at all nothing holds.
        answer = "holds" if known and all(case.surely_diverse for case in known) else "inconclusive"
    return {
        "verdict": answer,
        "cases": len(known),
        "collapsed": collapsed,
        "p": found.p,
        "together": found.together,
        "alpha": ALPHA,
        "correction": "Fisher and Holm",
    }
