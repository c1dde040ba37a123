"""The output contract: every breach has its path, and the fast check and the slow explanation never disagree."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.evaluators.vs import ContractFault, contract_faults
from evalq.evalcore.evaluators.vs.validators import OUTPUT, _explain
from tests.unit.vs.helpers import good_output, with_value, without
from tests.unit.vs.test_validators import json_values

PATHS = [
    "agent_id",
    "vs_level",
    "execution_timestamp",
    "vs_metadata",
    "vs_metadata.phase_executed",
    "vs_metadata.modal_identified",
    "vs_metadata.t_scores",
    "vs_metadata.final_selection",
    "vs_metadata.final_selection.option",
    "vs_metadata.final_selection.t_score",
    "vs_metadata.final_selection.justification",
    "content",
    "content.summary",
    "content.main_output",
    "content.confidence",
    "provenance",
    "provenance.sources",
    "provenance.reasoning_trace",
    "provenance.assumptions",
    "self_critique",
    "self_critique.strengths",
]
TESTED_BY_VALIDATORS = {
    "vs_metadata.phase_executed",
    "vs_metadata.t_scores",
    "vs_metadata.final_selection.t_score",
    "provenance",
    "provenance.sources",
    "provenance.reasoning_trace",
    "provenance.assumptions",
    "self_critique",
    "self_critique.strengths",
}


def faults(output: dict[str, Any]) -> list[tuple[str, str]]:
    return [(fault.path, fault.reason) for fault in contract_faults(output)]


def test_a_good_output_has_no_fault() -> None:
    """Nor has one with the optional keys, of any kind."""
    assert faults(good_output()) == []
    assert faults(good_output() | {"next_agents": [], "warnings": None, "limitations": "few", "further": 1}) == []


@pytest.mark.parametrize("path", PATHS)
def test_a_missing_key_is_one_fault_unless_a_validator_tests_it(path: str) -> None:
    """Each required key is named when it is missing; absences that fail a validator are not counted twice."""
    expected = [] if path in TESTED_BY_VALIDATORS else [(path, "missing")]
    assert faults(without(good_output(), path)) == expected


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("agent_id", 3, "a number where a string is wanted"),
        ("vs_level", None, "null where a string is wanted"),
        ("vs_metadata", [], "a list where an object is wanted"),
        ("vs_metadata.phase_executed", "0", "a string where a list is wanted"),
        ("vs_metadata.modal_identified", {}, "an object where a list is wanted"),
        ("vs_metadata.final_selection.t_score", True, "a boolean where a number is wanted"),
        ("vs_metadata.final_selection.t_score", -0.1, "outside 0 to 1"),
        ("vs_metadata.final_selection.option", ["x"], "a list where a string is wanted"),
        ("provenance.sources", "a book", "a string where a list is wanted"),
        ("self_critique", "good", "a string where an object is wanted"),
        ("self_critique.strengths", "many", "a string where a list is wanted"),
        ("self_critique.weaknesses", {}, "an object where a list is wanted"),
        ("self_critique.improvement_suggestions", 1, "a number where a list is wanted"),
        ("provenance.reasoning_trace", None, "null where a list is wanted"),
        ("vs_metadata.t_scores", {}, "an object where a list is wanted"),
        ("vs_metadata.final_selection.justification", 1, "a number where a string is wanted"),
        ("content.summary", 1, "a number where a string is wanted"),
        ("execution_timestamp", 0, "a number where a string is wanted"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_wanted(path: str, value: Any, reason: str) -> None:
    """The path, what was found and what is wanted."""
    assert faults(with_value(good_output(), path, value)) == [(path, reason)]


def test_every_breach_is_listed_with_its_position() -> None:
    """Several wrong scores and phases are as many faults, in the contract's order."""
    output = with_value(good_output(), "vs_metadata.phase_executed", [0, "1", 2.0, True])
    output["vs_metadata"]["t_scores"] = [
        {"option": "a", "score": "0.4", "rationale": "r"},
        {"option": "b", "score": 1.5, "rationale": "r"},
        {"option": "c", "score": 10**400},
        "d",
    ]
    assert faults(output) == [
        ("vs_metadata.phase_executed[1]", "a string where an integer is wanted"),
        ("vs_metadata.phase_executed[2]", "a number where an integer is wanted"),
        ("vs_metadata.phase_executed[3]", "a boolean where an integer is wanted"),
        ("vs_metadata.t_scores[0].score", "a string where a number is wanted"),
        ("vs_metadata.t_scores[1].score", "outside 0 to 1"),
        ("vs_metadata.t_scores[2].score", "outside 0 to 1"),
        ("vs_metadata.t_scores[2].rationale", "missing"),
        ("vs_metadata.t_scores[3]", "a string where an object is wanted"),
    ]


def test_the_list_of_faults_is_bounded() -> None:
    """A million wrong phases are not a million faults."""
    output = with_value(good_output(), "vs_metadata.phase_executed", ["x"] * 10_000)
    assert len(contract_faults(output)) == 100
    assert contract_faults(output, most=2) == [
        ContractFault(f"vs_metadata.phase_executed[{n}]", "a string where an integer is wanted") for n in range(2)
    ]


@given(st.sampled_from(PATHS), json_values)
def test_the_fast_check_objects_exactly_when_there_is_something_to_explain(path: str, value: Any) -> None:
    """For any value anywhere, the typed conversion and the walk through the table agree."""
    try:
        output = with_value(good_output(), path, json.loads(json.dumps(value, allow_nan=False)))
    except ValueError:
        return  # JSON has no NaN
    assert contract_faults(output) == list(_explain(output, OUTPUT, ""))
