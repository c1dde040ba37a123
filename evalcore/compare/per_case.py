"""What every single case has to keep: a share of passes, by the exact interval of its answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from evalq.evalcore.compare.decision import Check, Decided
from evalq.evalcore.compare.intervals import ALPHA
from evalq.evalcore.compare.pairs import pairs_of
from evalq.evalcore.compare.policy import Gate, PerCase
from evalq.evalcore.compare.summary import CaseSummary
from evalq.evalcore.contract.measures import Measure
from evalq.evalcore.distributions import at_least, at_most
from evalq.evalcore.errors import UsageError

__all__ = ["held_by_cases", "sorted_out"]

_LISTED = 20


class SortedOut(NamedTuple):
    """Positions of cases: those that fail, and those whose answers cannot tell; ``p_worse`` is of the worst of all."""

    failing: list[int]
    undecided: list[int]
    p_worse: float

    @property
    def decided(self) -> Decided:
        """What it comes to, where there is any case."""
        return "NO-GO" if self.failing else "INCONCLUSIVE" if self.undecided else "GO"


def sorted_out(counts: Sequence[tuple[int, int]], share: float, alpha: float) -> SortedOut:
    """Of cases, each (passes, answers), those whose chance to pass is not ``share`` and those that may have it or not.

    A case is in order where the lower end of its interval (Clopper and Pearson 1934) is ``share`` at least. Those that
    fail are found by Holm's procedure over all of them, so that any false one is in ``alpha``.
    """
    surprises = sorted((at_most(m, n, share), number) for number, (m, n) in enumerate(counts))
    failing: list[int] = []
    for rank, (p, number) in enumerate(surprises):
        if p > alpha / (len(surprises) - rank):
            break
        failing.append(number)
    failed = set(failing)
    undecided = [
        number for number, (m, n) in enumerate(counts) if number not in failed and at_least(m, n, share) > ALPHA
    ]
    return SortedOut(failing, undecided, min(1.0, surprises[0][0] * len(surprises)) if surprises else 1.0)


def held_by_cases(gate: Gate, wanted: PerCase, run: CaseSummary, measure: Measure, alpha: float) -> Check:
    """Every case keeps a share of passes; undecided is undecided. Raises UsageError for a score."""
    demand = f"every case passes {wanted.min_passes} of {wanted.of}"
    if measure.kind != "pass":
        raise UsageError(f"{gate.metric}: per_case is about passes, and this is a score")
    pairs = pairs_of(run, run, measure)
    counts = [(round(m), n) for m, n in zip(pairs.cand.total.tolist(), pairs.cand.answers.tolist(), strict=True)]
    found = sorted_out(counts, wanted.share, alpha)
    decided = found.decided if counts else "INCONCLUSIVE"
    reason = (
        f"{len(found.failing)} of {len(counts)} case(s) fail it, {len(found.undecided)} have too few answers to tell"
    )
    cases = tuple(pairs.ids[number] for number in found.failing or found.undecided)[:_LISTED]
    return Check(gate.metric, demand, gate.tier, decided, reason, len(found.failing), None, None, found.p_worse, cases)
