"""The verdict on the share of the commonest answer, however often one has looked."""

from __future__ import annotations

from functools import lru_cache

from evalq.evalcore.modes.decide import Verdict
from evalq.evalcore.modes.intervals import ALPHA
from evalq.evalcore.statistics.sequences import (
    log_e_above,
    log_e_below,
    mode_share_sequence,
    sequence_p_value,
    surely_above,
    surely_below,
)

__all__ = [
    "log_e_above",
    "log_e_below",
    "mode_share_sequence",
    "sequence_p_value",
    "sequence_verdict",
]


@lru_cache(maxsize=65536)
def sequence_verdict(m: int, n: int, share: float, alpha: float = ALPHA) -> Verdict:
    """Where the bounds lie, without looking for them: above ``share``, below it, or across it."""
    if m > share * n:  # the other e-value is below 1
        return "collapsed" if surely_above(m, n, share, alpha) else "inconclusive"
    return "diverse" if surely_below(m, n, share, alpha) else "inconclusive"
