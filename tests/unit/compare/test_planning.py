"""What a gate will be able to tell: as the table of power says, from a baseline's own answers, the same every time."""

from __future__ import annotations

import numpy as np
import pytest

from evalq.evalcore.compare.pairs import Side
from evalq.evalcore.compare.planning import Plan, powers
from evalq.evalcore.compare.policy import Gate, PerCase
from evalq.evalcore.contract.measures import Measure
from tests.portions import some
from tests.unit.compare.made import PASS

DROP = Gate(metric="vs.pass_rate", max_drop=0.05)


def _side(passed: list[int], answers: int) -> Side:
    counts = np.array(passed, dtype=float)
    return Side(np.full(len(passed), answers), counts, counts.copy())


@pytest.mark.parametrize(
    ("cases", "repeats", "table"),
    some(
        [
            (10, 5, (0.07, 0.19, 0.61)),
            (10, 20, (0.26, 0.72, 0.99)),
            (30, 1, (0.03, 0.09, 0.34)),
            (30, 5, (0.19, 0.59, 0.99)),
            (30, 20, (0.66, 0.99, 1.0)),
            (100, 1, (0.12, 0.39, 0.92)),
            (100, 5, (0.58, 0.99, 1.0)),
            (300, 1, (0.37, 0.89, 1.0)),
            (300, 5, (0.96, 1.0, 1.0)),
        ]
    ),
)
def test_power_is_as_the_table_says(
    cases: int, repeats: int, table: tuple[float, float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At drops of 5, 10 and 20 points, mean pass rate .8, within four standard errors of 500 draws or fewer."""
    monkeypatch.setattr("evalq.evalcore.compare.planning._TRIES", 0)  # the repeats for 80 % are looked at below
    (found,) = powers(DROP, PASS, Plan(cases, repeats))
    for seen, wanted in zip(found.no_go.values(), table, strict=True):
        assert seen == pytest.approx(
            wanted, abs=0.01 + 4 * (0.25 * 0.9 / 333) ** 0.5 * max(0.1, 4 * wanted * (1 - wanted)) ** 0.5
        )


def test_the_repeats_it_names_give_80_percent_and_the_same_seed_the_same_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a drop of 20 points, whichever number of repeats was planned."""
    plan = Plan(30, 1)
    (found,) = powers(DROP, PASS, plan)
    assert list(powers(DROP, PASS, plan)) == [found]
    named = found.repeats["0.2"]
    assert named is not None
    assert 2 <= named <= 4
    monkeypatch.setattr("evalq.evalcore.compare.planning._TRIES", 0)  # what it would name in turn is not looked at
    (again,) = powers(DROP, PASS, Plan(30, named))
    assert again.no_go["0.2"] == pytest.approx(0.85, abs=0.12)
    assert found.detectable is not None
    assert again.detectable is not None
    assert found.detectable > again.detectable


def test_a_baseline_s_own_noise_bounds_what_any_candidate_can_show() -> None:
    """Ten cases of two answers: however often the candidate is asked, GO within 5 points is out of reach."""
    (found,) = powers(DROP, PASS, Plan(10, 2, _side([2, 2, 1, 2, 0, 2, 1, 2, 2, 2], 2)))
    assert found.repeats["GO"] is None
    assert found.go < 0.1


def test_a_flawless_firm_baseline_lets_an_unchanged_run_go() -> None:
    """Of 100 cases with 20 answers each, all passed: 5 more a case decide."""
    (found,) = powers(DROP, PASS, Plan(100, 5, _side([20] * 100, 20)))
    assert found.go > 0.95
    assert found.no_go["0.1"] > 0.95


def test_bounds_and_cases_have_power_too_and_less_is_better_is_turned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound 15 points below the mean; 8 of 10 by every case; a rate of failures that rises."""
    monkeypatch.setattr("evalq.evalcore.compare.planning._TRIES", 0)
    gate = Gate(metric="vs.pass_rate", min=0.65, per_case=PerCase(min_passes=8, of=10))
    at_least, each = powers(gate, PASS, Plan(30, 20, _side([19] * 30, 20)))
    assert at_least.demand == "at least 0.65"
    assert at_least.go > 0.9
    assert at_least.detectable is None
    assert each.go < 0.8  # some of 30 such cases stay undecided with 20 answers
    failures = Measure("error_rate", better="lower")
    (turned,) = powers(Gate(metric="x.error_rate", max_drop=0.05), failures, Plan(30, 20, _side([1] * 30, 20)))
    assert turned.no_go["0.2"] > 0.99


def test_scores_are_planned_by_a_baseline_of_repeats_alone() -> None:
    """Their spread within a case is not to be had otherwise."""
    score = Measure("mean_score", "score")
    gate = Gate(metric="x.mean_score", max_drop=0.05)
    with pytest.raises(ValueError, match="a baseline with two repeats"):
        list(powers(gate, score, Plan(30, 5)))
    base = Side(np.full(30, 10), np.full(30, 7.0), np.full(30, 5.0))  # mean .7, variance (5 - 4.9) / 9
    (found,) = powers(gate, score, Plan(30, 5, base))
    assert found.go > 0.9
    assert found.no_go["0.1"] > 0.95
