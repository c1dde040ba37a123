"""Demands on single cases: unbiased numbers, decisions that err as they may, and nothing decided on too little."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest

from evalq.evalcore.compare.decision import GateDecision
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import CaseDemand, Gate, PerCase, Policy
from evalq.evalcore.compare.single_cases import CasePasses, by_case, case_interval, enough_for, estimate, provable
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.contract.measures import Measure
from evalq.evalcore.contract.params import validate
from evalq.evalcore.errors import ConfigError
from tests.unit.compare.made import passes, run_of

LIMIT = 0.025


def demand(**given: Any) -> CaseDemand:
    """The one demand of a policy's ``per_case``."""
    (found,) = validate(PerCase, given, "here").demands
    return found


AT = demand(pass_at_k={"k": 3, "min": 0.9})
HAT = demand(pass_hat_k={"k": 3, "min": 0.5})
SHARE = demand(min_passes=8, of=10)


def gated(
    rows: Sequence[tuple[int, int]], missing: Sequence[int] = (), minimum: int = 1, **per_case: Any
) -> GateDecision:
    """A run held to what every case has to keep, and to nothing else."""
    gate = Gate(metric="vs.pass_rate", per_case=validate(PerCase, per_case, "here"))
    return decide(Policy(gates=(gate,), minimum_repeats=minimum), [run_of(passes(rows, missing))], {})


@pytest.mark.parametrize("passed", range(7))
def test_estimates_are_the_mean_over_all_choices_of_k_answers(passed: int) -> None:
    """Of six answers every three: at least one passes, all pass."""
    answers = [True] * passed + [False] * (6 - passed)
    chosen = list(combinations(answers, 3))
    assert estimate(AT, passed, 6) == pytest.approx(sum(map(any, chosen)) / len(chosen), abs=1e-12)
    assert estimate(HAT, passed, 6) == pytest.approx(sum(map(all, chosen)) / len(chosen), abs=1e-12)
    assert estimate(HAT, min(passed, 2), 2) is None


def _chances(n: int, p: float) -> list[float]:
    return [math.comb(n, m) * p**m * (1 - p) ** (n - m) for m in range(n + 1)]


@pytest.mark.parametrize("p", [0.05, 0.4, 0.8, 0.97])
@pytest.mark.parametrize(("wanted", "true"), [(AT, lambda p: 1 - (1 - p) ** 3), (HAT, lambda p: p**3)])
def test_estimates_are_unbiased_and_intervals_hold(wanted: CaseDemand, true: Any, p: float) -> None:
    """By enumeration of everything that could have come, at three sizes."""
    for n in (3, 10, 60):
        chances = _chances(n, p)
        mean = sum(chance * (estimate(wanted, m, n) or 0.0) for m, chance in enumerate(chances))
        assert mean == pytest.approx(true(p), abs=1e-9)
        ends = [case_interval(wanted, m, n) for m in range(n + 1)]
        assert sum(chance for chance, (low, _) in zip(chances, ends, strict=True) if low > true(p)) <= LIMIT
        assert sum(chance for chance, (_, high) in zip(chances, ends, strict=True) if high < true(p)) <= LIMIT


@pytest.mark.parametrize("wanted", [AT, HAT, SHARE], ids=["pass@3", "pass^3", "8 of 10"])
@pytest.mark.parametrize("cases", [1, 4, 50])
def test_a_decision_errs_as_rarely_as_it_says(wanted: CaseDemand, cases: int) -> None:
    """Every case just at the demand: NO-GO by any of them, or GO of one that lies below, each at most .025."""
    for n in (3, 10, 60):
        chances = _chances(n, wanted.share)
        some = {m: by_case(wanted, [CasePasses(str(at), n, n) for at in range(cases - 1)] + [CasePasses("x", m, n)])[0]
                for m in range(n + 1)}  # fmt: skip
        assert sum(chances[m] for m in some if some[m]["x"] == "GO") <= LIMIT
        # All others pass always, so Holm's first step is the one that counts: at most its share of the error.
        assert sum(chances[m] for m in some if some[m]["x"] == "NO-GO") <= LIMIT / cases


def test_a_decision_is_where_its_interval_lies() -> None:
    """GO where the interval is above the demand, NO-GO (of one case) where it is below it."""
    for wanted, bound in ((AT, 0.9), (HAT, 0.5), (SHARE, 0.8)):
        for n in (3, 12, 40, 111):
            for m in range(n + 1):
                low, high = case_interval(wanted, m, n)
                decided = by_case(wanted, [CasePasses("x", m, n)])[0]["x"]
                assert decided == ("GO" if low >= bound else "NO-GO" if high < bound else "INCONCLUSIVE"), (m, n)


def test_so_many_answers_prove_it_where_all_pass() -> None:
    """And one fewer does not."""
    for wanted in (AT, HAT, SHARE, demand(pass_hat_k={"k": 5, "min": 0.9}), demand(min_passes=1, of=2)):
        needed = provable(wanted)
        assert needed is not None
        found = [by_case(wanted, [CasePasses("x", n, n)])[0]["x"] for n in (needed, needed - 1)]
        assert found == ["GO", "INCONCLUSIVE"] if needed > wanted.k else ["GO"], wanted
    assert provable(demand(pass_hat_k={"k": 5, "min": 0.9})) == 176


@pytest.mark.parametrize("rate", [1.0, 0.95])
def test_so_many_answers_prove_it_of_all_cases_in_four_of_five_runs(rate: float) -> None:
    """The chance by enumeration, at the number that is named and at all below it."""
    for wanted in (AT, HAT, SHARE):
        named = enough_for(wanted, rate, 30)
        assert named is not None

        def proved(n: int, wanted: CaseDemand = wanted) -> float:
            chances = _chances(n, rate)
            found = [by_case(wanted, [CasePasses("x", m, n)])[0]["x"] for m in range(n + 1)]
            return sum(chance for chance, each in zip(chances, found, strict=True) if each == "GO") ** 30

        assert proved(named) >= 0.8
        assert all(proved(fewer) < 0.8 for fewer in range(1, named))
    assert enough_for(SHARE, 0.8, 30) is None
    assert enough_for(demand(min_passes=10, of=10), 1.0, 30) is None


def test_too_few_repeats_are_undecided_and_it_says_how_many_it_takes() -> None:
    """Over fewer than k answers nothing is decided, whatever they say; nor is GO before it can be proved."""
    decision = gated([(0, 4)] * 3, pass_hat_k={"k": 5, "min": 0.9})
    assert decision.decided == "INCONCLUSIVE"
    (check,) = decision.checks
    assert "3 cases with fewer than the 5 answers that it takes" in check.reason
    assert "even a case that always passes takes 176 answers to prove it" in check.reason
    (check,) = gated([(20, 20)] * 3, min_passes=10, of=10).checks
    assert (check.decided, "no number of passes proves it" in check.reason) == ("INCONCLUSIVE", True)
    (check,) = gated([(19, 20)] * 3, min_passes=10, of=10).checks
    assert check.decided == "NO-GO"


def test_what_decided_is_named_with_its_numbers() -> None:
    """The lowest case with its interval, the mean over cases, and those that fail."""
    (at, hat) = gated([(20, 20), (2, 20)], pass_at_k={"k": 3, "min": 0.9}, pass_hat_k={"k": 3, "min": 0.3}).checks
    assert (hat.decided, hat.cases, hat.value) == ("NO-GO", ("c000001",), 1)
    assert "pass^3 is 0.5 on average, lowest 0 (2 of 20), with 95 % between 1.883e-06 and" in hat.reason
    assert at.demand == "pass@3 of every case at least 0.9"
    assert at.decided == "NO-GO"


def test_missing_answers_are_held_against_it_before_it_may_go() -> None:
    """Ten passes and nine answers that never came are no GO, nor is a case without any answer."""
    assert gated([(20, 20)] * 2, min_passes=7, of=10).decided == "GO"
    (check,) = gated([(20, 20)] * 2, [0, 9], min_passes=7, of=10).checks
    assert (check.decided, check.cases) == ("INCONCLUSIVE", ("c000001",))
    (check,) = gated([(20, 20), (0, 0)], [0, 20], min_passes=7, of=10).checks
    assert (check.decided, check.cases) == ("INCONCLUSIVE", ("c000001",))
    assert gated([(20, 20), (0, 20)], [0, 20], min_passes=7, of=10).decided == "NO-GO"


def test_a_pass_of_what_is_not_wanted_is_a_failure() -> None:
    """Of a rate that is better the lower it is."""
    run = passes([(20, 20)] * 2)
    run.measures[0] = Measure("pass_rate", better="lower")
    gate = Gate(metric="vs.pass_rate", per_case=PerCase(min_passes=7, of=10))
    assert decide(Policy(gates=(gate,)), [run_of(run)], {}).decided == "NO-GO"


def test_minimum_repeats_hold_for_every_demand() -> None:
    """A bound, a drop and a case's own: with one case below it none is decided."""
    gate = Gate(metric="vs.pass_rate", min=0.2, max_drop=0.3, per_case=PerCase(min_passes=1, of=2))
    rows = [(20, 20)] * 19
    base = run_of(passes([*rows, (20, 20)]))

    def decided(run: RunCases, minimum: int) -> list[str]:
        policy = Policy(gates=(gate,), minimum_repeats=minimum, missing=20)
        return [check.decided for check in decide(policy, [run], {"vs": base}).checks]

    few = run_of(passes([*rows, (8, 8)]))
    assert decided(few, 8) == ["GO"] * 3
    assert decided(few, 9) == ["INCONCLUSIVE"] * 3
    (check,) = gated([*rows, (8, 8)], minimum=9, min_passes=1, of=2).checks
    assert "1 case with fewer than the 9 answers that it takes" in check.reason


@pytest.mark.parametrize(
    ("per_case", "said"),
    [
        ({"pass_hat_k": {"k": 0, "min": 0.5}}, "gates.0.per_case.pass_hat_k.k: Input should be greater than"),
        ({"pass_hat_k": {"k": 5}}, "gates.0.per_case.pass_hat_k.min: Field required"),
        ({"pass_at_k": {"k": 5, "min": 1}}, "gates.0.per_case.pass_at_k.min: Input should be less than 1"),
        ({"pass_at_k": {"k": 5, "mni": 1}}, "gates.0.per_case.pass_at_k.mni: unknown key (known here: k, min)"),
        ({"min_passes": 8}, "gates.0.per_case: min_passes and of go together"),
        ({"min_passes": 8, "of": 7}, "gates.0.per_case: min_passes cannot be more than of"),
        ({}, "gates.0.per_case: one of min_passes (with of), pass_at_k, pass_hat_k is needed"),
    ],
    ids=json.dumps,
)
def test_what_is_wrong_in_a_policy_is_named_by_its_keys(per_case: dict[str, Any], said: str) -> None:
    """Down to the last one."""
    with pytest.raises(ConfigError) as caught:
        validate(Policy, {"gates": [{"metric": "vs.pass_rate", "per_case": per_case}]}, "policy.yaml")
    assert said in str(caught.value)
