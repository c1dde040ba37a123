"""Whether cases reach their thresholds: each by itself, and all of them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec

from evalq.evalcore.distributions import at_least, at_most
from evalq.evalcore.evaluators.checks.params import Threshold
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.rates import ALPHA

__all__ = ["Demand", "Verdict", "decide"]

Verdict = Literal["holds", "fails", "inconclusive", "no_data"]
_NAMED = 100


class Demand(msgspec.Struct, frozen=True):
    """One threshold of one case, and the answers that there are: ``planned`` of them at most, where it could stop."""

    case: str
    threshold: Threshold
    passed: int
    answers: int
    planned: int = 0

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
        return at_least(self.passed, self.answers, share) if share < 1.0 else 1.0

    @property
    def p_fails(self) -> float:
        """How surprising so few are if it is no less."""
        share = self.threshold.share
        return at_most(self.passed, self.answers, share) if share < 1.0 else float(self.passed == self.answers)

    def told(self) -> dict[str, Json]:
        """As it stands in the report."""
        return {"number": self.threshold.number, "least": self.threshold.least, "verdict": self.verdict}


def decide(demands: Sequence[Demand]) -> dict[str, Json]:
    """All together: they hold where each does; they fail where some does by Holm's procedure (1979) over all of them.

    So each is said wrongly with probability ALPHA at most, whatever the number of thresholds.
    """
    verdicts = Counter(demand.verdict for demand in demands)
    failed = _failed(demands)
    whole: str = "none"
    if demands:
        whole = "fails" if failed else "holds" if verdicts["holds"] == len(demands) else "inconclusive"
    return {
        "verdict": whole,
        "alpha": ALPHA,
        "correction": "holm",
        "total": len(demands),
        **{name: verdicts[name] for name in ("holds", "fails", "inconclusive", "no_data")},
        "failed": failed[:_NAMED],
    }


def _failed(demands: Sequence[Demand]) -> list[str]:
    """The cases that fail with all of them tested together, in the order of how surely they do."""
    known = sorted((demand.p_fails, demand.case) for demand in demands if demand.answers)
    found: dict[str, None] = {}
    for rank, (p, case) in enumerate(known):
        if p > ALPHA / (len(known) - rank):
            break
        found[case] = None
    return list(found)
