"""Recorded runs held to their answers: what passed has to pass, without any statistics."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from evalq.evalcore.compare.decision import GateDecision
from evalq.evalcore.compare.eligibility import as_recorded, recorded_once
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.contract.measures import Number
from tests.unit.compare.made import passes, run_of, scores, taken

POLICY = Policy.model_validate({"gates": [{"metric": "vs.pass_rate", "max_drop": 0.05}]})
IDS = [f"c{number}" for number in range(4)]


def run(rows: list[tuple[int, int]], ids: list[str] | None = None, specification: str = "s") -> RunCases:
    return run_of(passes(rows, ids=ids or IDS[: len(rows)]), specification=specification)


def held(base: RunCases, cand: RunCases) -> GateDecision:
    statistical = decide(POLICY, [cand], {"vs": base})
    return as_recorded(POLICY, [cand], {"vs": base}, statistical, ["vs"])


WELL = run([(1, 1)] * 4)


@pytest.mark.parametrize(
    ("cand", "code", "named"),
    [
        (run([(1, 1)] * 4), 0, ()),
        (run([(1, 1), (0, 1), (1, 1), (0, 1)]), 1, ("c1", "c3")),
        (run([(1, 1)] * 3), 4, ("c3",)),
        (run([(1, 1), (0, 1), (1, 1)]), 1, ("c1",)),
        (run([(1, 1)] * 4, ["x", "y", "z", "w"], specification="other"), 5, ()),
        (run([(3, 3), (2, 2), (1, 1), (9, 10)]), 1, ("c3",)),
    ],
    ids=["the same", "two fail", "one is gone", "fails and gone", "nothing in both", "one of ten repeats fails"],
)
def test_the_exit_code_says_what_became_of_what_passed(cand: RunCases, code: int, named: tuple[str, ...]) -> None:
    """0, 1, 4 or 5; and who it is."""
    decision = held(WELL, cand)
    assert decision.exit_code == code
    if named:
        assert next(check.cases for check in decision.checks if check.decided != "GO") == named
    assert any("by statistics it would be" in note for note in decision.notes)
    assert all(check.tier != "critical" for check in decision.checks if check.demand.startswith("falls"))


def test_what_failed_before_may_fail_and_may_improve() -> None:
    """Neither blocks."""
    base = run([(0, 1), (0, 1), (1, 1), (1, 1)])
    assert held(base, base).exit_code == 0
    assert held(base, WELL).exit_code == 0
    assert held(WELL, base).exit_code == 1


def test_the_same_files_are_go_and_said_to_be_equal() -> None:
    """The rule on equal outputs is one of statistics."""
    same = run([(1, 1)] * 4)
    same.inputs = ["a" * 64]
    decision = held(same, same)
    assert decision.exit_code == 0
    assert any("equal files" in note for note in decision.notes)


def test_one_answer_a_case_is_what_it_is_meant_for() -> None:
    """By passing or failing; scores have no such thing."""
    assert recorded_once(WELL, WELL)
    assert not recorded_once(WELL, run([(2, 2)] * 4))
    assert not recorded_once(run_of(scores([[0.5]])), run_of(scores([[0.5]])))


def asked(rows: dict[str, tuple[int, int]], asks: str = "") -> RunCases:
    """A run whose cases are listed with what each asks: ``asks`` and its id."""
    found = run(list(rows.values()), list(rows), specification=f"{asks} {sorted(rows)}")
    found.cases.specified = {case: f"{asks}{case}" for case in rows}
    return found


TEN = asked({f"c{n}": (1, 1) for n in range(10)})


def test_a_case_that_is_asked_no_more_has_no_answer() -> None:
    """Deleted, or asked and failed under another name: it passed before, and nothing says that it does now."""
    for more in ({}, {"renamed": (0, 1)}):
        decision = held(TEN, asked({f"c{n}": (1, 1) for n in range(9)} | more))
        assert decision.exit_code == 4
        assert [check.cases for check in decision.checks if check.decided != "GO" and check.tier == "critical"] == [
            ("c9",)
        ]
    one = decide(POLICY, [asked({"c0": (1, 1)})], {"vs": TEN})
    intersection = POLICY.model_copy(update={"specification": "intersection"})
    few = asked({"c0": (1, 1)})
    assert as_recorded(intersection, [few], {"vs": TEN}, one, ["vs"]).exit_code == 0


@pytest.mark.parametrize(("changed", "code"), [(0, 0), (1, 0), (5, 0), (6, 4), (9, 4), (10, 5)])
def test_changed_cases_are_listed_and_most_of_them_leave_nothing_to_hold_to(changed: int, code: int) -> None:
    """Others that are asked otherwise, and fail, must not pass by the few that are left."""
    cand = asked({f"c{n}": (int(n >= changed), 1) for n in range(10)})
    cand.cases.specified |= {f"c{n}": "another input" for n in range(changed)}
    decision = held(TEN, cand)
    assert decision.exit_code == code
    assert decision.paired[0].changed_count == changed


def test_a_run_that_has_nothing_in_common_is_not_passed_by_another() -> None:
    """Of a suite's two runs one kept all, and the other asks other cases."""
    kept, base, other = TEN, asked({"x": (1, 1)}), asked({"y": (0, 1)})
    candidates = [msgspec.structs.replace(each, name=name) for each, name in ((kept, "one"), (other, "two"))]
    partners = {"one": kept, "two": base}
    policy = Policy.model_validate({"gates": [{"metric": "one.pass_rate", "max_drop": 0.05}]})
    decision = as_recorded(policy, candidates, partners, decide(policy, candidates, partners), ["one", "two"])
    assert (decision.decided, decision.exit_code) == ("INCONCLUSIVE", 4)


def test_what_is_demanded_exactly_blocks_all_the_same() -> None:
    """A count has no statistics that could be left out; a bound that needs them has them."""
    some = run([(1, 1), (1, 1), (1, 1), (0, 1)])
    some.results, some.numbers = {"failed": 1}, [Number("failed")]
    for gate, code in (
        ({"metric": "vs.failed", "max": 0}, 1),
        ({"metric": "vs.failed", "max": 1}, 0),
        ({"metric": "vs.failed", "max": 0, "tier": "supporting"}, 0),
        ({"metric": "vs.pass_rate", "equals": 1}, 1),
        ({"metric": "vs.pass_rate", "min": 0.99}, 4),
        ({"metric": "vs.pass_rate", "max_drop": 0.05}, 0),
    ):
        policy = Policy.model_validate({"gates": [gate], "as_recorded": True})
        decision = as_recorded(policy, [some], {"vs": some}, decide(policy, [some], {"vs": some}), ["vs"])
        assert decision.exit_code == code, gate


def demanded(base: RunCases, cand: RunCases, written: bool = True, **policy: object) -> GateDecision:
    """Of a policy that says as_recorded."""
    wanted = Policy.model_validate({"as_recorded": True, **policy})
    statistical = decide(wanted, [cand], {"vs": base})
    return as_recorded(wanted, [cand], {"vs": base}, statistical, ["vs"], written=written)


DROP = {"metric": "vs.pass_rate", "max_drop": 0.05}


@pytest.mark.parametrize(
    ("passed", "more", "wanted"),
    [
        (8, {"gates": [{"metric": "vs.pass_rate", "min": 0.9}]}, "NO-GO"),
        (8, {"gates": [{"metric": "vs.pass_rate", "min": 0.8}]}, "INCONCLUSIVE"),
        (8, {"gates": [{"metric": "vs.pass_rate", "min": 0.5}]}, "GO"),
        (10, {"gates": [{"metric": "vs.pass_rate", "max": 0.5}]}, "NO-GO"),
        (10, {"gates": [{"metric": "vs.pass_rate", "per_case": {"min_passes": 9, "of": 10}}]}, "INCONCLUSIVE"),
        (2, {"gates": [{"metric": "vs.pass_rate", "per_case": {"min_passes": 9, "of": 10}}]}, "NO-GO"),
        (10, {"gates": [DROP], "collapse": "none"}, "INCONCLUSIVE"),
        (10, {"gates": [DROP], "collapse": "none-new"}, "INCONCLUSIVE"),
        (10, {"gates": [DROP], "collapse": "allowed"}, "GO"),
    ],
)
def test_what_else_a_policy_demands_is_decided_and_never_set_aside(
    passed: int, more: dict[str, Any], wanted: str
) -> None:
    """Each case that passed before passes now; what only statistics can tell is held to them, by a policy's author."""
    base, cand = (run_of(passes([(passed, 10)] * 20)) for _ in range(2))
    decision = demanded(base, cand, **more)
    assert decision.decided == wanted
    assert any(check.tier == "critical" and check.decided == wanted for check in decision.checks)
    if "collapse" not in more:
        assert demanded(base, cand, written=False, **more).decided == "GO", "nobody demanded it"


def test_a_rise_of_another_number_is_no_matter_of_passes() -> None:
    """Three times as slow is NO-GO, though each case passes as before; that passes fell is reported case by case."""
    rng = Random(7)
    base, slow = (taken([[times * rng.lognormvariate(0, 0.3)] for _ in range(200)]) for times in (1.0, 3.0))
    wanted = Policy.model_validate(
        {
            "gates": [
                {"metric": "checks.latency_seconds.mean", "max_relative_rise": 0.1},
                {"metric": "checks.pass_rate", "max_drop": 0.01},
            ]
        }
    )
    for cand, decided in ((slow, "NO-GO"), (base, "GO")):
        decision = as_recorded(wanted, [cand], {"checks": base}, decide(wanted, [cand], {"checks": base}), ["checks"])
        assert decision.decided == decided
        tiers = {check.metric: check.tier for check in decision.checks if check.demand.startswith(("falls", "rises"))}
        assert tiers == {"checks.latency_seconds.mean": "critical", "checks.pass_rate": "advisory"}
