"""What a gate will be able to tell: as the table of power says, from a baseline's own answers, the same every time."""

from __future__ import annotations

import numpy as np
import pytest

from evalq.evalcore.compare.comparison import measured
from evalq.evalcore.compare.decision import Decided
from evalq.evalcore.compare.outlook import Plan, Power, change_checks, dropped, powers
from evalq.evalcore.compare.pairs import Pairs, Side
from evalq.evalcore.compare.policy import Gate, PerCase
from evalq.evalcore.compare.spending import DUE, GateLook
from evalq.evalcore.contract.measures import Measure
from tests.portions import some
from tests.unit.compare.made import PASS

DROP = Gate(metric="vs.pass_rate", max_drop=0.05)


def _side(passed: list[int], answers: int) -> Side:
    counts = np.array(passed, dtype=float)
    return Side(np.full(len(passed), answers), counts, counts.copy())


DECIDED = ("GO", "SUSPECT", "INCONCLUSIVE", "NO-GO")


def _shares(power: Power, drop: float, *decided: Decided) -> float:
    (found,) = [each for each in power.chances if abs(each.drop - drop) < 1e-9]
    assert sum(found.shares.values()) == pytest.approx(1)
    assert tuple(found.shares) == DECIDED
    return sum(found.shares[each] for each in decided)


def _stated(no_go: float, go: float) -> tuple[tuple[Decided, float], ...]:
    return ("NO-GO", no_go), ("GO", go)


@pytest.mark.parametrize(
    ("cases", "repeats", "margin", "table"),
    some(
        [
            (30, 5, 0.05, ((0.0, 0.08), (0.02, 0.03), (0.16, 0.0), (0.56, 0.0), (0.84, 0.0))),
            (100, 1, 0.05, ((0.0, 0.07), (0.01, 0.03), (0.17, 0.0), (0.5, 0.0), (0.81, 0.0))),
            (100, 5, 0.05, ((0.0, 0.3), (0.02, 0.02), (0.64, 0.0), (1.0, 0.0), (1.0, 0.0))),
            (200, 1, 0.1, ((0.0, 0.24), (0.04, 0.03), (0.64, 0.0), (1.0, 0.0), (1.0, 0.0))),
        ]
    ),
)
def test_the_four_chances_are_as_the_rules_state(
    cases: int, repeats: int, margin: float, table: tuple[tuple[float, float], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """NO-GO and GO at half the margin, at it, and at two to four times it; mean pass rate .8, 500 draws or fewer."""
    monkeypatch.setattr("evalq.evalcore.compare.outlook._TRIES", 0)  # the repeats for 80 % are looked at below
    (found,) = powers(Gate(metric="vs.pass_rate", max_drop=margin), PASS, Plan(cases, repeats))
    for times, (no_go, go) in zip((0.5, 1, 2, 3, 4), table, strict=True):
        for decided, wanted in _stated(no_go, go):
            # What is stated was simulated with cases of another spread: up to .1 where a power is neither 0 nor 1.
            error = 0.02 + 4 * (max(0.01, wanted * (1 - wanted)) / 400) ** 0.5 + 0.1 * (0.1 < wanted < 0.9)
            assert _shares(found, times * margin, decided) == pytest.approx(wanted, abs=error)


@pytest.mark.parametrize(
    ("cases", "repeats", "table"),
    some(
        [
            (10, 20, (0.26, 0.72, 0.99)),
            (30, 5, (0.19, 0.59, 0.99)),
            (100, 1, (0.12, 0.39, 0.92)),
            (300, 1, (0.37, 0.89, 1.0)),
        ]
    ),
)
def test_a_fall_beyond_chance_is_no_go_or_suspect_as_the_table_says(
    cases: int, repeats: int, table: tuple[float, float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At falls of 5, 10 and 20 points: what neither excludes is SUSPECT, so that power is that of the earlier rule."""
    monkeypatch.setattr("evalq.evalcore.compare.outlook._TRIES", 0)
    (found,) = powers(DROP, PASS, Plan(cases, repeats))
    for drop, wanted in zip((0.05, 0.1, 0.2), table, strict=True):
        error = 0.02 + 4 * (max(0.02, wanted * (1 - wanted)) / 333) ** 0.5
        assert _shares(found, drop, "NO-GO", "SUSPECT") == pytest.approx(wanted, abs=error)


def test_planning_decides_as_a_gate_does() -> None:
    """By intervals in place of p-values, over falls from nothing to four margins, and errors of later looks."""
    rng = np.random.default_rng(5)
    seen = set()
    for number in range(300):
        rates = rng.beta(3, 1, 20)
        cand = rates * (1 - 0.1 * (number % 6))
        base, now = (rng.binomial(8, each).astype(float) for each in (rates, cand))
        pairs = Pairs([f"{n:02}" for n in range(20)], Side(np.full(20, 8), base, base), Side(np.full(20, 8), now, now),
                      [], [], 0)  # fmt: skip
        errors = GateLook(1 + number % 3, 1 + number % 2).errors
        both = measured(pairs, PASS, errors.go)
        (check,) = change_checks(DROP, PASS, both, both, errors)
        assert dropped(pairs, PASS, 0.05, errors) == check.decided
        seen.add(check.decided)
    assert seen == set(DECIDED)


def test_the_repeats_it_names_give_80_percent_and_the_same_seed_the_same_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a fall of 20 points, whichever number of repeats was planned."""
    plan = Plan(30, 1)
    (found,) = powers(DROP, PASS, plan)
    assert list(powers(DROP, PASS, plan)) == [found]
    (named,) = [each.repeats for each in found.chances if each.drop == pytest.approx(0.2)]
    assert named is not None
    assert 3 <= named <= 8
    monkeypatch.setattr("evalq.evalcore.compare.outlook._TRIES", 0)  # what it would name in turn is not looked at
    (again,) = powers(DROP, PASS, Plan(30, named))
    assert _shares(again, 0.2, "NO-GO") == pytest.approx(0.85, abs=0.12)
    assert found.suspect_from is not None
    assert again.suspect_from is not None
    assert found.suspect_from > again.suspect_from
    assert again.no_go_from == pytest.approx(again.suspect_from + 0.05)


def test_a_baseline_s_own_noise_bounds_what_any_candidate_can_show() -> None:
    """Ten cases of two answers: however often the candidate is asked, GO within 5 points is out of reach."""
    (found,) = powers(DROP, PASS, Plan(10, 2, _side([2, 2, 1, 2, 0, 2, 1, 2, 2, 2], 2)))
    assert found.chances[0].repeats is None
    assert _shares(found, 0.0, "GO") < 0.1


def test_a_flawless_firm_baseline_lets_an_unchanged_run_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 cases with 20 answers each, all passed: 5 more a case decide."""
    monkeypatch.setattr("evalq.evalcore.compare.outlook._TRIES", 0)
    (found,) = powers(DROP, PASS, Plan(100, 5, _side([20] * 100, 20)))
    assert _shares(found, 0.0, "GO") > 0.95
    assert _shares(found, 0.15, "NO-GO") > 0.95


def test_each_look_at_a_baseline_sees_less_than_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the look on at which a new baseline is due, falls have to be half as large again."""
    monkeypatch.setattr("evalq.evalcore.compare.outlook._TRIES", 0)
    plan = Plan(30, 5, _side([16] * 30, 20))
    sees = [next(iter(powers(DROP, PASS, plan, GateLook(look).errors))).suspect_from or 0.0 for look in (1, 2, DUE)]
    assert sees[0] < sees[1] < 1.4 * sees[0] < sees[2]


def test_bounds_and_cases_have_power_too_and_less_is_better_is_turned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound 15 points below the mean; 8 of 10 by every case; a rate of failures that rises."""
    monkeypatch.setattr("evalq.evalcore.compare.outlook._TRIES", 0)
    gate = Gate(metric="vs.pass_rate", min=0.65, per_case=PerCase(min_passes=8, of=10))
    at_least, each = powers(gate, PASS, Plan(30, 20, _side([19] * 30, 20)))
    assert at_least.demand == "at least 0.65"
    assert _shares(at_least, 0.0, "GO") > 0.9
    assert at_least.suspect_from is None
    assert _shares(each, 0.0, "GO") < 0.8  # some of 30 such cases stay undecided with 20 answers
    failures = Measure("error_rate", better="lower")
    (turned,) = powers(Gate(metric="x.error_rate", max_drop=0.05), failures, Plan(30, 20, _side([1] * 30, 20)))
    assert _shares(turned, 0.2, "NO-GO") > 0.99
    (rises,) = powers(Gate(metric="x.error_rate", max_rise=0.05), failures, Plan(30, 20, _side([1] * 30, 20)))
    assert rises.chances == turned.chances


def test_scores_are_planned_by_a_baseline_of_repeats_alone() -> None:
    """Their spread within a case is not to be had otherwise."""
    score = Measure("mean_score", "score")
    gate = Gate(metric="x.mean_score", max_drop=0.05)
    with pytest.raises(ValueError, match="a baseline with at least two repeats"):
        list(powers(gate, score, Plan(30, 5)))
    base = Side(np.full(30, 10), np.full(30, 7.0), np.full(30, 5.0))  # mean .7, variance (5 - 4.9) / 9
    (found,) = powers(gate, score, Plan(30, 5, base))
    assert _shares(found, 0.0, "GO") > 0.9
    assert _shares(found, 0.15, "NO-GO") > 0.95
