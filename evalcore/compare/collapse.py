"""Cases that collapsed since the baseline: whose own verdict says so, and whose answers agree more than they did."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence

from evalq.evalcore.compare.hypergeometric import EXACT, between, ways
from evalq.evalcore.compare.intervals import ALPHA
from evalq.evalcore.compare.summary import CaseSummary

__all__ = ["collapse_surprises", "newly_collapsed", "untold"]

_DRAWS = 20_000
_MOST_DRAWS = 400_000


def newly_collapsed(base: CaseSummary, cand: CaseSummary, alpha: float = ALPHA) -> list[str]:
    """Cases that the candidate calls collapsed and the baseline does not, and in which that is no accident."""
    return sorted(case for p, case in collapse_surprises(base, cand, alpha) if p <= alpha)


def collapse_surprises(base: CaseSummary, cand: CaseSummary, alpha: float = ALPHA) -> list[tuple[float, str]]:
    """(how surprising, its case) of all that the candidate calls collapsed and the baseline does not, the most first.

    Verdicts alone differ in four of ten unchanged cases. So a permutation test within the case counts, too: of the
    chance that two of its answers agree, adjusted by Holm's procedure over all cases that both answered. If all that is
    at most ``alpha`` is called new, any of it is wrong with no larger probability. The draws, more for a smaller
    ``alpha``, are seeded by the case's own counts, so that the same runs are always judged alike. What is rarer than
    draws can show has an exact bound in their place: over many cases, or at a late look, no number of draws suffices.
    """
    before = dict(zip(base.ids, base.labels, strict=True)) if base.labels else {}
    now = dict(zip(cand.ids, cand.labels, strict=True)) if cand.labels else {}
    # A single answer agrees with nothing: such a case has no test, and takes no share of the error.
    both = [case for case in now if case in before and sum(before[case].values()) > 1 and sum(now[case].values()) > 1]
    suspects = sorted((set(cand.collapsed) - set(base.collapsed)) & set(both))
    # So that the smallest p that can be drawn still counts after Holm's factor, as far as the most draws reach.
    draws = min(_MOST_DRAWS, max(_DRAWS, 4 * len(both) * round(1 / alpha)))
    found: list[tuple[float, str]] = []
    highest = 0.0
    for rank, (p, case) in enumerate(
        sorted((_surprise(case, before[case], now[case], draws), case) for case in suspects)
    ):
        # All that both answered, not the suspects alone: those were picked by the answers that are tested.
        highest = max(highest, min(1.0, p * (len(both) - rank)))
        found.append((highest, case))
    return found


def untold(base: CaseSummary, cand: CaseSummary) -> list[str]:
    """Cases that the candidate calls collapsed and the baseline does not, of which no label tells whether that is new.

    Either the baseline has fewer than two labelled answers, or no baseline with that many could make the candidate's
    look surprising: each of them has a label of its own, as texts do that are alike in words or in meaning, but not in
    letters.
    """
    before = dict(zip(base.ids, base.labels or [{}] * len(base.ids), strict=True))
    now = dict(zip(cand.ids, cand.labels, strict=True)) if cand.labels else {}
    suspects = sorted((set(cand.collapsed) - set(base.collapsed)) & before.keys() & now.keys())
    return [case for case in suspects if not _tells(case, sum(before[case].values()), now[case])]


def _tells(case: str, before: int, now: Mapping[str, int]) -> bool:
    """Whether the candidate would surprise behind the baseline of ``before`` answers that makes it most surprising."""
    # No two of those agree, with each other or with any of the candidate's: a label of no digest is nobody else's.
    apart = {f" {number}": 1 for number in range(before)}
    return before > 1 and sum(now.values()) > 1 and _surprise(case, apart, now, _DRAWS) <= ALPHA


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
