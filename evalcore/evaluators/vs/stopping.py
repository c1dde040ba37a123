"""Which cases of a sweep are decided, as its outputs arrive: what `--stop when-decided` asks before each further call.

It judges lines as the report does, so what it says of the lines it was fed is the verdict of their report.
"""

from __future__ import annotations

from collections import Counter

from evalq.evalcore.contract.stopping import CaseSoFar, StoppingByCase
from evalq.evalcore.evaluators.vs.options import normalize
from evalq.evalcore.evaluators.vs.params import VsParams
from evalq.evalcore.evaluators.vs.score import Judgement, judge_for
from evalq.evalcore.modes import stopping_rule

__all__ = ["stopping_for"]


class _Case(CaseSoFar):
    """How often each option came, and the largest of these."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self._share = share
        self._options: Counter[str] = Counter()
        self._runs = self._mode = 0

    def count(self, test: Judgement) -> None:
        # A run without an option is in no share: it brings the verdict no nearer.
        if test.option is None:
            return
        # Normalised, as the report's verdict has it: a rule of its own would stop on what the report calls undecided.
        kind = normalize(test.option)
        self._options[kind] += 1
        self._runs += 1
        self._mode = max(self._mode, self._options[kind])
        self.decided = stopping_rule(self.planned).decided(self._mode, self._runs, self._share)


def stopping_for(params: VsParams) -> StoppingByCase:
    """Decides each case by the share of its most common recommendation.

    The chance that a case is ever called decided with the wrong verdict is ALPHA at most, however often one asks.
    """
    judge = judge_for(params)

    def judged(line: bytes) -> Judgement | None:
        test = judge.test(line)
        # What the report counts as an error is no answer here either.
        return None if test.plan is None or test.repeat is None or test.scores is None else test

    return StoppingByCase(judged, lambda: _Case(params.collapse.collapse_share))
