"""Comparing two runs: every measure that both have."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from evalq.evalcore.compare.comparison import Comparison, compare
from evalq.evalcore.compare.decision import PairedCases
from evalq.evalcore.compare.intersection import paired
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.compare.shared_answers import doubled, same_answers, shared
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
    # GATE, The question: what is asked or checked otherwise now is another case, whatever its id.
    held, twice = paired(cand, base), tuple(_twice(base, cand))
    base = held.partner
    known = {each.name for each in base.cases.measures}
    wanted = [each for each in cand.cases.measures if each.name in known and measure in ("", each.name)]
    if not wanted:
        names = ", ".join(sorted(known)) or "none"
        raise UsageError(f"{cand.evaluator} has no measure {measure!r}; there are: {names}")
    found = [compare(base.cases, cand.cases, each, margin * each.width, by_cases=by_cases) for each in wanted]
    if twice:
        # An interval of answers that count twice is too narrow, whichever way it decides.
        found = [msgspec.structs.replace(each, verdict="inconclusive", repeats=None) for each in found]
    copies = (*twice, *([f"{same[0].upper()}{same[1:]}."] if (same := same_answers(cand, base)) else []))
    found = [msgspec.structs.replace(each, copies=copies) for each in found]
    return [_with_changed(each, held.cases) for each in found] if held.cases.changed else found


def _twice(base: RunCases, cand: RunCases) -> Iterator[str]:
    for side, each in (("baseline", base), ("candidate", cand)):
        if twice := doubled(each):
            yield f"Of the {side} {twice}, so that the same answers count twice: evaluate each once."


def _with_changed(found: Comparison, cases: PairedCases) -> Comparison:
    """A changed case is in both, and neither new nor answered by one side alone."""
    return msgspec.structs.replace(
        found,
        changed=list(cases.changed),
        changed_count=cases.changed_count,
        new=[case for case in found.new if case not in cases.changed],
        new_count=max(0, found.new_count - cases.changed_count),
    )
