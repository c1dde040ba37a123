"""Cases that should have been answered, and that no record is about: what a bound takes for them."""

from __future__ import annotations

import msgspec

from evalq.evalcore.compare.summary import CaseSummary, Column

__all__ = ["with_unrecorded"]


def with_unrecorded(cases: CaseSummary) -> CaseSummary:
    """``cases`` with those that no record is about, as if asked as often as the one that was asked most, in vain.

    What is compared with a baseline needs none of this: cases that the baseline has are missing anyway.
    """
    added = sorted(set(cases.unrecorded).difference(cases.ids))
    if not added:
        return cases
    order = sorted([*cases.ids, *added])
    place = {case: at for at, case in enumerate(cases.ids)}
    counts = [each.count for each in cases.columns.values()]
    most = max((max(asked) + lacking for *asked, lacking in zip(*counts, cases.missing, strict=True)), default=1)
    return msgspec.structs.replace(
        cases,
        ids=order,
        missing=[cases.missing[place[case]] if case in place else max(1, most) for case in order],
        columns={
            name: Column(
                [each.count[place[case]] if case in place else 0 for case in order],
                [each.total[place[case]] if case in place else 0.0 for case in order],
                [each.squares[place[case]] if case in place else 0.0 for case in order],
            )
            for name, each in cases.columns.items()
        },
        labels=[cases.labels[place[case]] if case in place else {} for case in order] if cases.labels else [],
        unrecorded=[],
    )
