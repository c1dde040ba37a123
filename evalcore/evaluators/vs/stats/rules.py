"""The two ways to judge a mode's share: for a number of runs fixed beforehand, and for one that the answers decided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from evalcore.evaluators.vs.stats.decide import Verdict, decided, verdict
from evalcore.evaluators.vs.stats.intervals import mode_share_interval, mode_share_p_value
from evalcore.evaluators.vs.stats.sequence import (
    mode_share_sequence,
    sequence_decided,
    sequence_p_value,
    sequence_verdict,
)

__all__ = ["FIXED_RUNS", "SEQUENCE", "ShareRule"]


@dataclass(frozen=True)
class ShareRule:
    """How counts are read; all but the interval take (count of the mode, runs, share in question)."""

    name: str
    interval: Callable[[int, int], tuple[float, float]]
    verdict: Callable[[int, int, float], Verdict]
    decided: Callable[[int, int, float], bool]
    p_value: Callable[[int, int, float], float]


def _fixed_verdict(m: int, n: int, share: float) -> Verdict:
    return verdict(*mode_share_interval(m, n), share)


FIXED_RUNS = ShareRule("fixed number of runs", mode_share_interval, _fixed_verdict, decided, mode_share_p_value)
SEQUENCE = ShareRule("confidence sequence", mode_share_sequence, sequence_verdict, sequence_decided, sequence_p_value)
