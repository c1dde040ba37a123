"""Comparing two runs: every measure that both have."""

from __future__ import annotations

from evalq.evalcore.compare.comparison import Comparison, compare
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.compare.shared_answers import shared
from evalq.evalcore.errors import UsageError

__all__ = ["MARGIN", "compare_runs"]

MARGIN = 0.05
"""Changes of less than this share of a measure's scale are the same, unless told otherwise."""


def compare_runs(
    base: RunCases, cand: RunCases, margin: float = MARGIN, measure: str = "", *, by_cases: bool = False
) -> list[Comparison]:
    """Compare by every measure of the candidate, or by the one called ``measure``.

    ``margin`` is a share of each measure's scale. Raises UsageError for runs of two evaluators, and for a measure that
    there is not, and for runs that have answers in common.
    """
    # Of answers that both have no change would be found, whatever changed.
    if common := shared(cand, base):
        raise UsageError(f"{common}: they tell nothing of a change; compare runs that were asked apart")
    if base.evaluator != cand.evaluator:
        raise UsageError(f"{base.run} is a run of {base.evaluator} and {cand.run} one of {cand.evaluator}")
    known = {each.name for each in base.cases.measures}
    wanted = [each for each in cand.cases.measures if each.name in known and measure in ("", each.name)]
    if not wanted:
        names = ", ".join(sorted(known)) or "none"
        raise UsageError(f"{cand.evaluator} has no measure {measure!r}; there are: {names}")
    return [compare(base.cases, cand.cases, each, margin * each.width, by_cases=by_cases) for each in wanted]
