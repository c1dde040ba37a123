"""Which cases of a sweep are decided, as its outputs arrive: what `--stop when-decided` asks before each further call.

It judges lines as the report does, so what it says of the lines it was fed is the verdict of their report.
"""

from __future__ import annotations

from evalq.evalcore.contract.stopping import CaseSoFar, StoppingByCase
from evalq.evalcore.evaluators.checks.deciding import Demand
from evalq.evalcore.evaluators.checks.diversity.kind_counts import MOST_REPEATS
from evalq.evalcore.evaluators.checks.diversity.looser import without_doubt
from evalq.evalcore.evaluators.checks.diversity.near import Kinds
from evalq.evalcore.evaluators.checks.params import ChecksParams, Diversity, thresholds_of
from evalq.evalcore.evaluators.checks.score import Judgement, judge_for
from evalq.evalcore.modes.block import share_rule

__all__ = ["stopping_for"]


class _Case(CaseSoFar):
    """How many outputs had a verdict, how many of them passed, and how many were of which kind."""

    def __init__(self, params: ChecksParams) -> None:
        super().__init__()
        self._params = params
        self._passed = self._answers = 0
        self._kinds: Kinds | None = None

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
        settled = [demand.verdict in ("holds", "fails") for demand in demands]
        if test.plan.diversity is not None:
            settled.append(self._one_kind(test, test.plan.diversity))
        self.decided = bool(settled) and all(settled)

    def _one_kind(self, test: Judgement, how: Diversity) -> bool:
        """Whether it is known that the answers collapsed, or did not."""
        kinds = self._kinds = self._kinds or Kinds(how.similarity)
        if test.mark.text and test.repeat is not None and test.repeat < MOST_REPEATS:
            kinds.add(test.mark.text, test.mark.likeness)
        if kinds.answers < 2:
            return False  # a single answer repeats nothing
        said = share_rule(self.planned).verdict(kinds.mode, kinds.answers, how.collapse_share)
        # Another answer may join kinds that were two, so that nearness alone never shows an end of diversity.
        if how.by == "near":
            return said == "collapsed" and without_doubt(said, kinds, share_rule(self.planned), how)
        return said in ("collapsed", "diverse")


def stopping_for(params: ChecksParams) -> StoppingByCase:
    """Decides each case when each of its thresholds holds or fails, and its answers are collapsed or diverse.

    The chance that either verdict of one of them is ever wrong is ALPHA at most, however often one asks.
    """
    judge = judge_for(params)

    def judged(line: bytes) -> Judgement | None:
        test = judge.test(line)
        return None if test.plan is None or test.repeat is None or test.score is None else test

    return StoppingByCase(judged, lambda: _Case(params))
