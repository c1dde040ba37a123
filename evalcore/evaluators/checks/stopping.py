"""Which cases of a sweep are decided, as its outputs arrive: what `--stop when-decided` asks before each further call.

It judges lines as the report does, so what it says of the lines it was fed is the verdict of their report.
"""

from __future__ import annotations

from evalq.evalcore.evaluators.checks.deciding import Demand
from evalq.evalcore.evaluators.checks.params import ChecksParams, thresholds_of
from evalq.evalcore.evaluators.checks.score import Plan, judge_for

__all__ = ["Stopping"]


class _Case:
    """The answers of one case so far."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.passed = self.answers = self.planned = 0
        self.decided = False

    def count(self, plan: Plan, params: ChecksParams) -> None:
        demands = [
            Demand(plan.case.id, each, self.passed, self.answers, self.planned)
            for each in thresholds_of(plan.case, params)
        ]
        self.decided = bool(demands) and all(demand.verdict in ("holds", "fails") for demand in demands)


class Stopping:
    """Lines of outputs.jsonl in, decided cases out: those of which each threshold holds or fails.

    The chance that a threshold is ever said to hold, or to fail, wrongly is ALPHA at most, however often one asks. A
    decided case may be undecided again when answers arrive to calls that were under way; it is then to be called on.
    """

    def __init__(self, params: ChecksParams) -> None:
        self._judge = judge_for(params)
        self._params = params
        self._cases: dict[str, _Case] = {}

    def add(self, line: bytes) -> str | None:
        """Take in one line; the id of its case if the line has decided it, else None.

        Lines may come in any order. Errors, and outputs of a repeat that has one already, change nothing.
        """
        test = self._judge.test(line)
        if test.plan is None or test.repeat is None or test.score is None:
            return None
        case = self._cases.setdefault(test.plan.case.id, _Case())
        # As `settle` does for the report: both count the same outputs.
        if test.repeat in case.seen:
            return None
        case.seen.add(test.repeat)
        case.planned = max(case.planned, test.planned)
        case.answers += 1
        case.passed += test.status == "passed"
        before = case.decided
        case.count(test.plan, self._params)
        return test.plan.case.id if case.decided and not before else None

    def decided(self, case: str) -> bool:
        """Whether the case has its verdicts as of now; false for one of which nothing has come."""
        return case in self._cases and self._cases[case].decided
