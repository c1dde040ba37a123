"""The intervals of checks hold the truth as often as they say; `tests.bench.checks_coverage` has the whole table."""

from __future__ import annotations

import numpy as np
import pytest

from tests.bench.checks_coverage import LEAST, case_coverage, clustered_coverage


@pytest.mark.parametrize("answers", [1, 2, 5, 10, 30])
def test_a_case_is_covered_whatever_its_rate(answers: int) -> None:
    """Counted over all numbers of passes: never below 95 %, at rates of 0 and 1 always."""
    assert min(case_coverage(rate / 50, answers) for rate in range(51)) >= 0.95
    assert (case_coverage(0.0, answers), case_coverage(1.0, answers)) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("cases", "repeats", "mean", "correlation"), [(3, 20, 0.5, 0.5), (10, 5, 0.8, 0.9), (30, 20, 0.95, 0.5)]
)
def test_cases_are_covered_as_clusters(cases: int, repeats: int, mean: float, correlation: float) -> None:
    """Where answers to one case are alike; simulated, with room for chance."""
    held, wide = clustered_coverage(cases, repeats, mean, correlation, 300, np.random.default_rng(1))
    assert held >= LEAST - 0.03
    assert wide < 1.0
