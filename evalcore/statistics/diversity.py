"""Diversity of the answers to a question, from the counts of distinct ones in any order.

Every function takes positive counts and needs at least one. Entropies are in bits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from functools import lru_cache

from evalq.evalcore.model.canonical import Json
from evalq.evalcore.statistics.distributions import beta_fraction
from evalq.evalcore.statistics.exact import shannon_bits
from evalq.evalcore.statistics.mode_share import (
    FIXED_RUNS,
    ShareRule,
    collision_interval,
    collision_probability,
    runs_to_decide,
    stopping_rule,
)

_EULER = 0.5772156649015329
_SERIES_FROM = 64


def hill(counts: Collection[int], order: int) -> float:
    """Effective number of modes of ``order`` 1 (2 to the plug-in entropy) or 2 (1 / sum p^2); Hill (1973)."""
    if order == 1:
        return float(2 ** shannon_bits(counts))
    total = sum(counts)
    return total * total / sum(c * c for c in counts)


def coverage(counts: Collection[int]) -> float:
    """Good's (1953) share of the answers' probability that was seen at all: 1 - singletons / n."""
    return 1.0 - sum(1 for c in counts if c == 1) / sum(counts)


def chao1(counts: Collection[int]) -> float:
    """Bias-corrected estimate of how many distinct answers there are, S + f1(f1-1) / (2(f2+1)); Chao (1984, 2005)."""
    seen = Counter(counts)
    return len(counts) + seen[1] * (seen[1] - 1) / (2 * (seen[2] + 1))


def miller_madow_bits(counts: Collection[int]) -> float:
    """Plug-in entropy plus (S - 1) / 2n nats; Miller (1955)."""
    return shannon_bits(counts) + (len(counts) - 1) / (2 * sum(counts) * math.log(2))


def chao_shen_bits(counts: Collection[int]) -> float:
    """Coverage-adjusted Horvitz-Thompson entropy; Chao and Shen (2003). All singletons: one is left out of f1."""
    n = sum(counts)
    singles = sum(1 for c in counts if c == 1)
    cover = 1.0 - min(singles, n - 1) / n
    shares = [cover * c / n for c in counts]
    # A share of 1 adds nothing, and has no logarithm of what is left.
    return math.fsum(-p * math.log2(p) / -math.expm1(n * math.log1p(-p)) for p in shares if p < 1.0)


def chao_wang_jost_bits(counts: Collection[int]) -> float:
    """Nearly unbiased entropy from the slope of the accumulation curve; Chao, Wang and Jost (2013), equation 7."""
    n = sum(counts)
    seen = Counter(counts)
    known = math.fsum(times * c / n * (_harmonic(n - 1) - _harmonic(c - 1)) for c, times in seen.items())
    return (known + seen[1] / n * _unseen(n, _rarity(n, seen[1], seen[2]))) / math.log(2)


def _rarity(n: int, singles: int, doubles: int) -> float:
    """The estimated mean probability A of an answer seen once."""
    if doubles:
        return 2 * doubles / ((n - 1) * singles + 2 * doubles)
    return 2 / ((n - 1) * (singles - 1) + 2) if singles else 1.0


def _unseen(n: int, rarity: float) -> float:
    """Sum over r >= n of (1-A)^(r-n+1) / r: what -log A - sum over r < n of (1-A)^r / r leaves, by (1-A)^(1-n).

    Where nA > 1 that difference cancels, and the sum is (1-A)/n times the fraction of B_(1-A)(n, 0), which then
    converges fast; below, the sum would take 1/A terms, and the difference is exact enough.
    """
    rest = 1.0 - rarity
    if rest <= 0.0:
        return 0.0
    if rest <= (n + 1) / (n + 2):
        return rest / n * beta_fraction(n, 0.0, rest)
    power, terms = 1.0, []
    for r in range(1, n):
        power *= rest
        terms.append(power / r)
    return (-math.log(rarity) - math.fsum(terms)) * math.exp((1 - n) * math.log1p(-rarity))


@lru_cache(maxsize=65536)
def _harmonic(m: int) -> float:
    """1 + 1/2 + ... + 1/m; from 64 on by the Euler-Maclaurin series, whose next term is below 1e-17."""
    if m < _SERIES_FROM:
        return math.fsum(1 / k for k in range(1, m + 1))
    square = m * m
    return math.log(m) + _EULER + 1 / (2 * m) - (1 - (0.1 - 1 / (21 * square)) / square) / (12 * square)


# What the counts of a case's answers by kind say: the commonest kind's share, how many kinds, and how sure that is.

_INTERVAL: dict[str, Json] = {"value": None, "low": None, "high": None}


def share_rule(planned: int) -> ShareRule:
    """How a case is judged: by what may be looked at again and again where it could stop early (``planned`` calls being
    the most), else as a fixed number of runs.
    """
    return stopping_rule(planned) if planned else FIXED_RUNS


def share_of(judged: ShareRule, m: int, n: int) -> dict[str, Json]:
    """The share of a kind that came ``m`` times in ``n``, with its interval; nulls where nothing came."""
    if not n:
        return _INTERVAL
    low, high = judged.interval(m, n)
    return {"value": m / n, "low": low, "high": high}


def modes_block(counts: Collection[int], share: float, planned: int = 0) -> dict[str, Json]:
    """``mode_share`` to ``runs_to_decide`` of answers counted by kind, the verdict being on a mode's ``share``.

    ``p_collapsed`` is how surprising the mode is if no kind has a probability above ``share``. Where the case could
    stop early, ``planned`` calls being the most, share, verdict, p-value and runs to decide allow for it.
    """
    if not counts:
        return _NOTHING
    n, mode, judged = sum(counts), max(counts), share_rule(planned)
    agreement = collision_probability(counts)
    low, high = (None, None) if agreement is None else collision_interval(agreement, mode, n)
    return {
        "mode_share": share_of(judged, mode, n),
        "collision_probability": {"value": agreement, "low": low, "high": high},
        "effective_modes": {"q1": hill(counts, 1), "q2": hill(counts, 2)},
        "entropy_bits": {"plugin": shannon_bits(counts), "chao_wang_jost": chao_wang_jost_bits(counts)},
        "coverage": coverage(counts),
        "chao1": chao1(counts),
        "verdict": judged.verdict(mode, n, share),
        "p_collapsed": judged.p_value(mode, n, share),
        "runs_to_decide": runs_to_decide(mode, n, share, judged.decided),
    }


_NOTHING: dict[str, Json] = {
    "mode_share": _INTERVAL,
    "collision_probability": _INTERVAL,
    "effective_modes": {"q1": None, "q2": None},
    "entropy_bits": {"plugin": None, "chao_wang_jost": None},
    "coverage": None,
    "chao1": None,
    "verdict": "no_data",
    "p_collapsed": None,
    "runs_to_decide": None,
}
