"""The two ways to judge a mode's share: for a number of runs fixed beforehand, and for one that the answers decided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

from evalq.evalcore.modes.decide import Verdict
from evalq.evalcore.modes.intervals import ALPHA, mode_share_interval, mode_share_p_value
from evalq.evalcore.modes.sequence import mode_share_sequence
from evalq.evalcore.modes.spending import spending_p_value, spending_verdict
from evalq.evalcore.statistics.distributions import at_most

__all__ = ["FIXED_RUNS", "ShareRule", "stopping_rule"]


@dataclass(frozen=True)
class ShareRule:
    """How counts are read; all but the interval take (count of the mode, runs, share in question)."""

    interval: Callable[[int, int], tuple[float, float]]
    verdict: Callable[[int, int, float], Verdict]
    p_value: Callable[[int, int, float], float]

    def decided(self, m: int, n: int, share: float) -> bool:
        """Whether a mode seen ``m`` of ``n`` times has a verdict."""
        return self.verdict(m, n, share) != "inconclusive"


def _fixed_verdict(m: int, n: int, share: float) -> Verdict:
    """Which side of ``share`` the interval lies on, without looking for its ends."""
    # Below, not at most: the interval begins with the least share whose p-value reaches ALPHA (SPEC, section 1).
    if mode_share_p_value(m, n, share) < ALPHA:
        return "collapsed"
    return "diverse" if at_most(m, n, share) < ALPHA else "inconclusive"


FIXED_RUNS = ShareRule(mode_share_interval, _fixed_verdict, mode_share_p_value)


@lru_cache(maxsize=256)  # of equal rules, what is known of the one is known of the other
def stopping_rule(of: int) -> ShareRule:
    """For a case that ended when it had a verdict, ``of`` runs being the most: the error is spent over these."""
    return ShareRule(mode_share_sequence, partial(spending_verdict, of=of), partial(spending_p_value, of=of))
