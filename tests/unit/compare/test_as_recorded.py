"""Recorded runs held to their answers: what passed has to pass, without any statistics."""

from __future__ import annotations

import pytest

from evalq.evalcore.compare.as_recorded import as_recorded, recorded_once
from evalq.evalcore.compare.decision import Decision
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.run import RunCases
from tests.unit.compare.made import passes, run_of, scores

POLICY = Policy.model_validate({"gates": [{"metric": "vs.pass_rate", "max_drop": 0.05}]})
IDS = [f"c{number}" for number in range(4)]


def run(rows: list[tuple[int, int]], ids: list[str] | None = None, specification: str = "s") -> RunCases:
    return run_of(passes(rows, ids=ids or IDS[: len(rows)]), specification=specification)


def held(base: RunCases, cand: RunCases) -> Decision:
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
