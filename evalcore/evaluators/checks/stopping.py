"""Which cases of a sweep are decided, as its outputs arrive: what `--stop when-decided` asks before each further call.

It judges lines as the report does, so what it says of the lines it was fed is the verdict of their report.
"""

from __future__ import annotations

from evalq.evalcore.contract.stopping import CaseSoFar, StoppingByCase
from evalq.evalcore.evaluators.checks.deciding import Demand
from evalq.evalcore.evaluators.checks.params import ChecksParams, thresholds_of
from evalq.evalcore.evaluators.checks.score import Judgement, judge_for

__all__ = ["stopping_for"]


class _Case(CaseSoFar):
    """How many outputs had a verdict, and how many of them passed."""

    def __init__(self, params: ChecksParams) -> None:
        super().__init__()
        self._params = params
        self._passed = self._answers = 0

    def count(self, test: Judgement) -> None:
        if test.plan is None:
            return
        self._answers += 1
        self._passed += test.status == "passed"
        case = test.plan.case
        demands = [
            Demand(case.id, each, self._passed, self._answers, self.planned)
            for each in thresholds_of(case, self._params)
        ]
        self.decided = bool(demands) and all(demand.verdict in ("holds", "fails") for demand in demands)


def stopping_for(params: ChecksParams) -> StoppingByCase:
    """Decides each case when each of its thresholds holds or fails.

    The chance that a threshold is ever said to hold, or to fail, wrongly is ALPHA at most, however often one asks.
    """
    judge = judge_for(params)

    def judged(line: bytes) -> Judgement | None:
        test = judge.test(line)
        return None if test.plan is None or test.repeat is None or test.score is None else test

    return StoppingByCase(judged, lambda: _Case(params))
