"""Which cases of a sweep are decided, as its outputs arrive: what `--stop when-decided` asks before each further call.

It judges lines as the report does, so what it says of the lines it was fed is the verdict of their report.
"""

from __future__ import annotations

from collections import Counter

from evalq.evalcore.evaluators.vs.options import normalize
from evalq.evalcore.evaluators.vs.params import VsParams
from evalq.evalcore.evaluators.vs.score import judge_for
from evalq.evalcore.modes import stopping_rule

__all__ = ["Stopping"]


class _Case:
    """The answers of one case so far: repeats seen, how often each option came, and the largest of these."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.options: Counter[str] = Counter()
        self.runs = self.mode = self.planned = 0
        self.decided = False

    def count(self, option: str, share: float) -> None:
        kind = normalize(option)
        self.options[kind] += 1
        self.runs += 1
        self.mode = max(self.mode, self.options[kind])
        self.decided = stopping_rule(self.planned).decided(self.mode, self.runs, share)


class Stopping:
    """Lines of outputs.jsonl in, decided cases out.

    The chance that a case is ever called decided with the wrong verdict is ALPHA at most, however often one asks. A
    decided case may be undecided again when answers arrive to calls that were under way; it is then to be called on.
    """

    def __init__(self, params: VsParams) -> None:
        self._judge = judge_for(params)
        self._share = params.collapse.collapse_share
        self._cases: dict[str, _Case] = {}

    def add(self, line: bytes) -> str | None:
        """Take in one line; the id of its case if the line has decided it, else None.

        Lines may come in any order. Errors, and outputs of a repeat that has one already, change nothing.
        """
        test = self._judge.test(line)
        if test.plan is None or test.repeat is None or test.scores is None:
            return None
        case = self._cases.setdefault(test.plan.case.id, _Case())
        # As `settle` does for the report: both count the same outputs.
        if test.repeat in case.seen:
            return None
        case.seen.add(test.repeat)
        case.planned = max(case.planned, test.planned)
        before = case.decided
        if test.option is not None:
            case.count(test.option, self._share)
        return test.plan.case.id if case.decided and not before else None

    def decided(self, case: str) -> bool:
        """Whether the case has a verdict as of now; false for one of which nothing has come."""
        return case in self._cases and self._cases[case].decided
