"""Scores where a baseline has several times a candidate's repeats, as it should: luck at an end of the scale."""

from __future__ import annotations

import numpy as np
import pytest

from evalq.evalcore.compare.comparison import compare, estimate
from evalq.evalcore.compare.intervals import change_of, pooled_of
from evalq.evalcore.compare.pairs import Pairs, Side
from evalq.evalcore.compare.summary import CaseSummary
from tests.unit.compare.made import PASS, SCORE, passes, scores

PAIRS = 1500


def _answered(rng: np.random.Generator, rate: float, cases: int, repeats: int) -> Side:
    passed = rng.binomial(repeats, rate, cases).astype(float)
    return Side(np.full(cases, repeats), passed, passed)


@pytest.mark.parametrize(
    ("cases", "of_base", "of_cand", "rate"),
    [(10, 20, 5, 0.98), (30, 4, 1, 0.95), (30, 12, 3, 0.98), (10, 8, 2, 0.9), (30, 4, 1, 0.05), (10, 20, 5, 0.5)],
)
def test_unchanged_scores_are_surprising_as_rarely_as_is_said(
    cases: int, of_base: int, of_cand: int, rate: float
) -> None:
    """At most .025 either way, and three standard errors; Welch's t alone said "better" in .04 to .21 at the ceiling,
    and "worse" at the floor."""
    rng = np.random.default_rng([cases, of_base])
    alarms = np.zeros(2)
    for _ in range(PAIRS):
        sides = _answered(rng, rate, cases, of_base), _answered(rng, rate, cases, of_cand)
        found = estimate(Pairs([""] * cases, *sides, [], [], 0), SCORE)
        alarms += found.p_worse <= 0.025, found.p_better <= 0.025
    assert max(alarms) / PAIRS <= 0.025 + 3 * (0.025 * 0.975 / PAIRS) ** 0.5


def _ones(rows: list[tuple[int, int]]) -> CaseSummary:
    return scores([[1.0] * passed + [0.0] * (answers - passed) for passed, answers in rows])


def test_a_candidate_without_a_failure_is_not_better_for_that() -> None:
    """Four failures in 200 answers and none in 50: three of ten such candidates have none, if nothing changed."""
    base, cand = [(19, 20)] * 4 + [(20, 20)] * 6, [(5, 5)] * 10
    exact = compare(passes(base), passes(cand), PASS, 0.001).observed
    for turned, wanted in ((False, "p_better"), (True, "p_worse")):
        rows = [[(n - m, n) for m, n in side] if turned else side for side in (base, cand)]
        found = compare(_ones(rows[0]), _ones(rows[1]), SCORE, 0.001)
        assert found.verdict == "inconclusive"
        assert found.observed is not None
        assert exact is not None
        # About what the exact test of the same answers says, which no score has.
        assert getattr(found.observed, wanted) > 0.1 < exact.p_better


def test_as_many_repeats_on_either_side_have_their_own_spread() -> None:
    """Then both are one, and no verdict of such runs is another than it was."""
    rows = [[0.1, 0.5, 0.9], [0.2, 0.2, 0.8]]
    sides = [Side(np.full(2, 3), np.array([sum(r) for r in rows]), np.array([sum(x * x for x in r) for r in rows]))] * 2
    assert pooled_of(*sides) is None
    more = Side(sides[0].answers * 4, sides[0].total * 4, sides[0].squares * 4)
    assert pooled_of(more, sides[1]) is not None


def test_a_case_with_one_answer_a_side_has_the_spread_of_the_others() -> None:
    """By hand: case 1 has 2/3 + 0 over three degrees, 2/9; case 2 has one answer a side, and the same spread."""
    base = Side(np.array([3, 1]), np.array([2.0, 1.0]), np.array([2.0, 1.0]))
    cand = Side(np.array([2, 1]), np.array([2.0, 1.0]), np.array([2.0, 1.0]))
    found = pooled_of(base, cand)
    assert found == pytest.approx((2 / 9 * (1 / 3 + 1 / 2 + 2) / 4, 3.0))
    assert change_of(base, cand, 1.0).spread.freedom == 1  # what Welch has in its place


def test_the_least_spreads_have_as_many_degrees_as_answers() -> None:
    """Their squares are 0 as doubles, which made the freedom 0/0."""
    base = Side(np.full(2, 3), np.full(2, 6e-85), np.full(2, 14e-170))
    cand = Side(np.full(2, 2), np.full(2, 3e-85), np.full(2, 5e-170))
    found = pooled_of(base, cand)
    assert found is not None
    assert found[1] == 6.0
