"""Cases that collapsed since the baseline: that are collapsed now, and whose answers agree more than they did."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from evalq.evalcore.compare.hypergeometric import EXACT, between, ways
from evalq.evalcore.compare.intervals import ALPHA
from evalq.evalcore.compare.summary import CaseSummary
from evalq.evalcore.modes import holm

__all__ = ["NewCollapse", "new_collapses", "newly_collapsed", "undecided_collapses"]

_DRAWS = 20_000
_MOST_DRAWS = 400_000


class NewCollapse(NamedTuple):
    """A case that both runs answered twice or more: how surprising its answers are unless it collapsed since, and the
    same adjusted by Holm's procedure for all such cases.
    """

    case: str
    p: float
    adjusted: float


def newly_collapsed(base: CaseSummary, cand: CaseSummary, alpha: float = ALPHA) -> list[str]:
    """Cases that surely collapsed since the baseline; any of them is wrong with probability ``alpha`` at most."""
    return sorted(each.case for each in new_collapses(base, cand, alpha) if each.adjusted <= alpha)


def new_collapses(base: CaseSummary, cand: CaseSummary, alpha: float = ALPHA) -> list[NewCollapse]:
    """Every case that both runs answered twice or more, the most surprising first.

    Verdicts alone differ in four of ten unchanged cases. So p is the larger one of two: that the case is collapsed in
    the candidate, and a permutation test of whether two of its answers agree more often than in the baseline. The
    draws, more for a smaller ``alpha``, are seeded by the case's own counts, so that the same runs are always judged
    alike. What is rarer than draws can show has an exact bound in their place: over many cases, or at a late look, no
    number of draws suffices.
    """
    before = dict(zip(base.ids, base.labels, strict=True)) if base.labels else {}
    now = dict(zip(cand.ids, cand.labels, strict=True)) if cand.labels else {}
    collapse_p = cand.collapse_p or {}
    # A single answer agrees with nothing: such a case has no test, and takes no share of the error.
    both = [case for case in now if case in before and sum(before[case].values()) > 1 and sum(now[case].values()) > 1]
    # So that the smallest p that can be drawn still counts after Holm's factor, as far as the most draws reach.
    draws = min(_MOST_DRAWS, max(_DRAWS, 4 * len(both) * round(1 / alpha)))
    found: list[tuple[float, str]] = []
    for case in both:
        p = collapse_p.get(case, 1.0)
        # Above it the larger of the two is not at most it, either: no need to draw.
        found.append((p if p > alpha else max(p, _surprise(case, before[case], now[case], draws)), case))
    found.sort()
    adjusted = holm([p for p, _ in found])
    return [NewCollapse(case, p, each) for (p, case), each in zip(found, adjusted, strict=True)]


def undecided_collapses(base: CaseSummary | None, cand: CaseSummary) -> list[str]:
    """Cases of the candidate that are not decided diverse, nor were decided collapsed in the baseline, if there is one.

    With one answer, or none, a case is never decided.
    """
    fine = set(cand.diverse).union(base.collapsed if base is not None else ())
    return [case for case in (*cand.ids, *(cand.unrecorded or ())) if case not in fine]


def _surprise(case: str, before: Mapping[str, int], now: Mapping[str, int], draws: int) -> float:
    """How often a candidate drawn from all answers of both runs agrees with itself as much as this one."""
    import numpy as np

    labels = sorted({*before, *now})
    counts = [now.get(label, 0) for label in labels]
    together = [count + before.get(label, 0) for count, label in zip(counts, labels, strict=True)]
    bound = _bound(together, counts)
    # Draws cannot show less than this, and a late look may ask for less: there the bound, though cautious, decides.
    if bound <= 1 / (draws + 1):
        return bound
    ours, pooled = np.array(counts), np.array(together)
    name = f"{case}\0{pooled.tolist()}\0{ours.tolist()}".encode(errors="surrogatepass")
    seed = int.from_bytes(hashlib.sha256(name).digest()[:16])
    observed = int((ours * (ours - 1)).sum())
    as_much, done, rng = 0, 0, np.random.default_rng(seed)
    while done < draws:
        # Two million numbers at once, so that many labels take no more memory than few.
        some = min(draws - done, max(1, 2_000_000 // len(labels)))
        drawn = rng.multivariate_hypergeometric(pooled, int(ours.sum()), some, method="marginals")
        as_much += int(((drawn * (drawn - 1)).sum(axis=1) >= observed).sum())
        done += some
    # The observed one is a draw, too: without it p could be 0, which no number of draws shows.
    return (as_much + 1) / (draws + 1)


def _bound(pooled: Sequence[int], ours: Sequence[int]) -> float:
    """At most so likely is it to draw answers of ``pooled`` that agree as much as ``ours``.

    Of n answers with counts c, sum c(c-1) is at most n (max c - 1): so one label has to come at least so often. Each
    label's count is hypergeometric, and the chances of all of them are added (Boole's inequality): exactly up to
    `EXACT` answers, and never too small beyond.
    """
    taken, total = sum(ours), sum(pooled)
    least = 1 + -(-sum(count * (count - 1) for count in ours) // taken)
    # Labels with as many answers have one chance: where there are thousands of them most came once or twice.
    labels = Counter(pooled).items()
    if total > EXACT:
        return min(1.0, sum(many * between(taken, count, total, least)[1] for count, many in labels))
    return min(1.0, sum(many * ways(taken, count, total, least) for count, many in labels) / math.comb(total, taken))
