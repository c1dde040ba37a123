"""Which cases got worse: named only where that is no accident among all of them."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from evalq.evalcore.compare.hypergeometric import between
from evalq.evalcore.compare.intervals import ALPHA
from evalq.evalcore.compare.pairs import Pairs

__all__ = ["fisher", "worse_cases"]

_Row = tuple[float, float, str]
"""(its p-value, the smallest that its counts allow, its name)."""


def worse_cases(
    pairs: Pairs, *, turned: bool = False, alpha: float = ALPHA, stopped: Collection[str] = ()
) -> list[str]:
    """Cases whose passes fell, by Fisher's exact test of each, the most surprising first; any false name in ``alpha``.

    Cases that could not be surprising whatever their answers cost the others nothing (Tarone 1990), and the correction
    is Holm's. With one answer a side nobody can be named. ``turned``: where a pass is what is not wanted. Nor is any of
    the ``stopped``: the test is for numbers of answers that do not go by what these are.
    """
    rows: list[_Row] = []
    # Where a pass is not wanted getting worse is a rise: from candidate to base that is a fall.
    sides = (pairs.base, pairs.cand) if not turned else (pairs.cand, pairs.base)
    counts = zip(
        pairs.ids,
        *(column.tolist() for side in sides for column in (side.answers, side.total)),
        strict=True,
    )
    for case, n_b, m_b, n_c, m_c in counts:
        if case in stopped:
            continue
        p, least = fisher(n_b, round(m_b), n_c, round(m_c))
        rows.append((p, least, case))
    named: list[str] = []
    rows.sort()
    while rows:
        # Anew in each round, as Holm has it: cases that are named leave the others a larger share of the error.
        wanted = alpha / _hypotheses(sorted(least for _, least, _ in rows), alpha)
        found = [row for row in rows if row[0] <= wanted]
        if not found:
            break
        named += [case for _, _, case in found]
        rows = [row for row in rows if row[0] > wanted]
    return named


def _hypotheses(least: list[float], alpha: float) -> int:
    """Tarone's number: the smallest k so that at most k tests could reach alpha/k."""
    import bisect

    k = 1
    while bisect.bisect_right(least, alpha / k) > k:
        k += 1
    return k


@lru_cache(maxsize=65536)
def fisher(n_b: int, m_b: int, n_c: int, m_c: int) -> tuple[float, float]:
    """P(so few passes fall to the candidate), and the smallest value that this could have had.

    In whole numbers, divided once, up to `EXACT` answers: what is tested may be smaller than what sums of doubles lose.
    Beyond, the first is never too small and the second never too large, so that nobody is named by an error of either.
    """
    # Where few passes fall to the candidate many fall to the base.
    m, every = m_b + m_c, n_b + n_c
    return between(n_b, m, every, m_b)[1], between(n_b, m, every, min(m, n_b))[0]
