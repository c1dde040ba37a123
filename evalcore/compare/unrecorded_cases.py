"""Cases that should have been answered, and that no record is about: what a bound takes for them."""

from __future__ import annotations

import msgspec

from evalq.evalcore.compare.summary import CaseSummary, of_cases

__all__ = ["with_unrecorded"]


def with_unrecorded(cases: CaseSummary) -> CaseSummary:
    """``cases`` with those that no record is about, as if asked as often as the one that was asked most, in vain.

    What is compared with a baseline needs none of this: cases that the baseline has are missing anyway.
    """
    added = sorted(set(cases.unrecorded or ()).difference(cases.ids))
    if not added:
        return cases
    counts = [each.count for each in cases.columns.values()]
    most = max(
        (max(asked, default=0) + lacking for *asked, lacking in zip(*counts, cases.missing, strict=True)), default=1
    )
    every = of_cases(cases, sorted([*cases.ids, *added]), lacking=max(1, most))
    return msgspec.structs.replace(every, unrecorded=[])
