"""Whether cases reach their thresholds: each by itself, and all of them together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from evalq.evalcore.evaluators.checks.params import Threshold
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.modes import rejected
from evalq.evalcore.statistics.distributions import at_least, at_most
from evalq.evalcore.statistics.rates import ALPHA
from evalq.evalcore.statistics.share_sequence import log_e_above, log_e_below
from evalq.evalcore.statistics.share_spending import MOST_LOOKS, rate_limits

__all__ = ["Demand", "Verdict", "decide"]

Verdict = Literal["holds", "fails", "inconclusive", "no_data"]
_NAMED = 100
_SMALLEST = ALPHA * 2.0**-14
"""P-values of cases that could stop are resolved down to this."""


class Demand(msgspec.Struct, frozen=True):
    """One threshold of one case, and the answers that there are: ``planned`` at most, where it could stop; else 0.

    ``advisory``: fallible checks decide the case, and nobody has labelled enough of their verdicts.
    """

    case: str
    threshold: Threshold
    passed: int
    answers: int
    planned: int = 0
    advisory: bool = False

    @property
    def verdict(self) -> Verdict:
        """By the case alone, each side wrong with probability ALPHA at most."""
        if not self.answers:
            return "no_data"
        if self.p_holds <= ALPHA:
            return "holds"
        return "fails" if self.p_fails <= ALPHA else "inconclusive"

    @property
    def p_holds(self) -> float:
        """How surprising so many passes are if their chance is no more than wanted."""
        share = self.threshold.share
        # However many passed, the next one may fail: that every answer would pass is never shown.
        if share >= 1.0:
            return 1.0
        if self.planned:
            return _level(self.passed, self.answers, share, self.planned, above=True)
        return at_least(self.passed, self.answers, share)

    @property
    def p_fails(self) -> float:
        """How surprising so few are if it is no less."""
        share = self.threshold.share
        if share >= 1.0:
            return float(self.passed == self.answers)  # a single failure is one too many
        if self.planned:
            return _level(self.passed, self.answers, share, self.planned, above=False)
        return at_most(self.passed, self.answers, share)

    def told(self) -> dict[str, Json]:
        """The demand as the report has it."""
        told: dict[str, Json] = {"number": self.threshold.number, "least": self.threshold.least}
        return {**told, "verdict": self.verdict, **({"advisory": True} if self.advisory else {})}


def decide(demands: Sequence[Demand]) -> dict[str, Json]:
    """All together: they hold where each does; they fail where some does by Holm's procedure (1979) over all of them.

    So each is said wrongly with probability ALPHA at most, whatever the number of thresholds. Advisory ones are
    counted, and decide nothing.
    """
    deciding = [demand for demand in demands if not demand.advisory]
    verdicts = Counter(demand.verdict for demand in deciding)
    failed = _failed(deciding)
    whole: str = "advisory" if demands else "none"
    if deciding:
        whole = "fails" if failed else "holds" if verdicts["holds"] == len(deciding) else "inconclusive"
    return {
        "verdict": whole,
        "alpha": ALPHA,
        "correction": "holm",
        "total": len(deciding),
        **{name: verdicts[name] for name in ("holds", "fails", "inconclusive", "no_data")},
        "advisory": len(demands) - len(deciding),
        "failed": failed[:_NAMED],
    }


def _failed(demands: Sequence[Demand]) -> list[str]:
    """The cases that fail with all of them tested together, in the order of how surely they do."""
    # A case without answers has no p-value, and must not make it harder for the others to be seen to fail.
    known = sorted((demand.p_fails, demand.case) for demand in demands if demand.answers)
    # A case that falls short of several thresholds is named once.
    return list(dict.fromkeys(case for _, case in known[: rejected([p for p, _ in known], ALPHA)]))


@lru_cache(maxsize=65536)
def _level(m: int, n: int, share: float, of: int, *, above: bool) -> float:
    """A p-value that holds however often one has looked: the least of ALPHA, ALPHA/2, ... at which ``m`` of ``n`` is
    beyond the limits for ``of`` runs at most; 1 where it is not beyond those of ALPHA.

    Where more runs came than were planned, or the cap is none, that of the confidence sequence.
    """
    if not n <= of <= MOST_LOOKS:
        log_e = (log_e_above if above else log_e_below)(m, n, share)
        ahead = m > share * n if above else m < share * n
        return min(1.0, math.exp(-max(0.0, log_e))) if ahead else 1.0

    def beyond(alpha: float) -> bool:
        limits = rate_limits(share, of, alpha)
        return m >= limits.above[n] if above else m <= limits.below[n]

    level = ALPHA
    if not beyond(level):
        return 1.0
    # By halves: limits are worked out anew for each level, in time with the square of the cap.
    while level > _SMALLEST and beyond(level / 2):
        level /= 2
    return level
