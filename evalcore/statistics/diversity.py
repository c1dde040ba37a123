"""Diversity of the answers to one case: entropies, effective numbers and estimates of unseen answers.

Every function takes the counts of the distinct answers, in any order, positive and at least one. Entropies are in bits.
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
    """Hill's (1973) effective number of modes, of ``order`` 1 (2 to the plug-in entropy) or 2 (1 / sum p^2)."""
    if order == 1:
        return float(2 ** shannon_bits(counts))
    total = sum(counts)
    return total * total / sum(c * c for c in counts)


def coverage(counts: Collection[int]) -> float:
    """Good's (1953) sample coverage, the total probability of the answers that occurred: 1 - singletons / n."""
    return 1.0 - sum(1 for c in counts if c == 1) / sum(counts)


def chao1(counts: Collection[int]) -> float:
    """Chao's (1984, 2005) bias-corrected estimate of the number of distinct answers, S + f1(f1-1) / (2(f2+1)).

    S is the number of distinct answers that occurred; f1 and f2 of them occurred once and twice.
    """
    seen = Counter(counts)
    return len(counts) + seen[1] * (seen[1] - 1) / (2 * (seen[2] + 1))


def miller_madow_bits(counts: Collection[int]) -> float:
    """Miller's (1955) corrected entropy, in bits: the plug-in entropy plus (S - 1) / 2n nats."""
    return shannon_bits(counts) + (len(counts) - 1) / (2 * sum(counts) * math.log(2))


def chao_shen_bits(counts: Collection[int]) -> float:
    """Chao and Shen's (2003) coverage-adjusted Horvitz-Thompson entropy, in bits.

    If all answers are singletons, the coverage is computed with one of them left out, so that it is not zero.
    """
    n = sum(counts)
    singles = sum(1 for c in counts if c == 1)
    cover = 1.0 - min(singles, n - 1) / n
    shares = [cover * c / n for c in counts]
    # A share of 1 contributes 0, and log1p(-1) is undefined.
    return math.fsum(-p * math.log2(p) / -math.expm1(n * math.log1p(-p)) for p in shares if p < 1.0)


def chao_wang_jost_bits(counts: Collection[int]) -> float:
    """Chao, Wang and Jost's (2013, equation 7) nearly unbiased entropy in bits, by the accumulation curve's slope."""
    n = sum(counts)
    seen = Counter(counts)
    known = math.fsum(times * c / n * (_harmonic(n - 1) - _harmonic(c - 1)) for c, times in seen.items())
    return (known + seen[1] / n * _unseen(n, _rarity(n, seen[1], seen[2]))) / math.log(2)


def _rarity(n: int, singles: int, doubles: int) -> float:
    """The estimated mean probability A of an answer that occurred once."""
    if doubles:
        return 2 * doubles / ((n - 1) * singles + 2 * doubles)
    return 2 / ((n - 1) * (singles - 1) + 2) if singles else 1.0


def _unseen(n: int, rarity: float) -> float:
    """The sum over r >= n of (1-A)^(r-n+1) / r, which equals (-log A - sum over r < n of (1-A)^r / r) (1-A)^(1-n).

    For nA > 1 the difference in parentheses loses accuracy by cancellation. The sum is then computed as (1-A)/n times
    the continued fraction of B_(1-A)(n, 0), which converges fast. For smaller A the sum would take 1/A terms, and
    the difference is accurate.
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
    """1 + 1/2 + ... + 1/m; for m >= 64 by the Euler-Maclaurin series, whose next term is below 1e-17."""
    if m < _SERIES_FROM:
        return math.fsum(1 / k for k in range(1, m + 1))
    square = m * m
    return math.log(m) + _EULER + 1 / (2 * m) - (1 - (0.1 - 1 / (21 * square)) / square) / (12 * square)


# The report's block on one case's counts: the mode share, effective numbers, the verdict and the p-value.

_INTERVAL: dict[str, Json] = {"value": None, "low": None, "high": None}


def share_rule(planned: int) -> ShareRule:
    """The rule for a case: early stopping after at most ``planned`` calls, or a fixed number of runs if that is 0."""
    return stopping_rule(planned) if planned else FIXED_RUNS


def share_of(judged: ShareRule, m: int, n: int) -> dict[str, Json]:
    """The share of an answer that occurred ``m`` times in ``n``, with its interval; nulls if ``n`` is 0."""
    if not n:
        return _INTERVAL
    low, high = judged.interval(m, n)
    return {"value": m / n, "low": low, "high": high}


def modes_block(counts: Collection[int], share: float, planned: int = 0) -> dict[str, Json]:
    """The report's keys ``mode_share`` to ``runs_to_decide`` for the counts of a case's distinct answers.

    The verdict compares the mode's probability with ``share``. ``p_collapsed`` is the p-value of the mode's count if no
    answer is more probable than ``share``. If the case could stop early, after at most ``planned`` calls, the interval,
    the verdict, the p-value and the runs to decide allow for that.
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
