"""Cases that are named as worse: none of those whose numbers of answers went by what they answered."""

from __future__ import annotations

import numpy as np

from evalq.evalcore.compare.comparison import compare, fisher
from evalq.evalcore.statistics.sequences import rate_limits
from tests.unit.compare.made import PASS, passes


def test_no_case_that_stopped_is_named() -> None:
    """On whichever side, and the others are named as before."""
    base, cand = passes([(40, 40)] * 3), passes([(5, 40)] * 3)
    assert compare(base, cand, PASS, 0.05).named == cand.ids
    cand.stopped = cand.ids[:1]
    assert compare(base, cand, PASS, 0.05).named == cand.ids[1:]
    base.stopped = base.ids[2:]
    assert compare(base, cand, PASS, 0.05).named == cand.ids[1:2]


def test_cases_that_stop_would_be_named_more_often_than_the_test_has_it() -> None:
    """Why: of 4,000 unchanged cases, held to 8 of 10 and asked 100 times at most, more than .025 would be."""
    limits = rate_limits(0.8, 100)

    def asked(rng: np.random.Generator, rate: float, *, stops: bool) -> list[tuple[int, int]]:
        passed = np.cumsum(rng.random((4_000, 100)) < rate, 1)
        over = (passed >= np.array(limits.above[1:])) | (passed <= np.array(limits.below[1:]))
        last = np.where(over.any(1) & stops, over.argmax(1), 99)
        return [(int(end) + 1, int(row[end])) for row, end in zip(passed, last, strict=True)]

    def named(base: bool, cand: bool, rate: float) -> int:
        rng = np.random.default_rng(5)
        pairs = zip(asked(rng, rate, stops=base), asked(rng, rate, stops=cand), strict=True)
        return sum(fisher(*before, *now)[0] <= 0.025 for before, now in pairs)

    assert named(base=False, cand=False, rate=0.7) <= 0.025 * 4_000 < 0.04 * 4_000 <= named(False, True, 0.7)
    assert named(base=True, cand=True, rate=0.7) > 0.035 * 4_000
