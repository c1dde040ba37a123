"""The tables of how often the demands beside the mean err: their vectorised verdicts are the gate's own."""

from __future__ import annotations

import numpy as np
import pytest

from evalq.evalcore.compare.intervals import MeanChange, QuantileChange
from tests.bench.family_errors import drawn, of_mean, of_quantile, said, taken


@pytest.mark.parametrize(("cases", "repeats", "own"), [(20, 10, 0.0), (20, 10, 0.4), (100, 1, 0.0), (9, 10, 0.0)])
@pytest.mark.parametrize("times", [0.8, 1.1, 1.3, 2.0])
def test_what_is_simulated_is_what_a_gate_decides(cases: int, repeats: int, own: float, times: float) -> None:
    """Ten pairs of runs (seed 8), by quantile and mean, with answers of a case that are alike, and without."""
    rng, shape = np.random.default_rng(8), (10, cases, repeats)
    base, cand = (drawn(rng, shape, np.zeros(shape[:2]), own, each) for each in (1.0, times))
    pairs = [(taken(b), taken(c)) for b, c in zip(base, cand, strict=True)]
    assert of_quantile(base, cand, 0.95) == [
        said(QuantileChange.of(b, c, 0.95, worst=False, rises=True)) for b, c in pairs
    ]
    assert of_mean(base, cand) == [said(MeanChange.of(b, c, worst=False, rises=True)) for b, c in pairs]
