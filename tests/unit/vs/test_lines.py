"""One line of recorded outputs: its status, metrics, issue and remedy, whatever was written in it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.evaluators.vs import evaluator
from evalq.evalcore.evaluators.vs.params import VsParams
from evalq.evalcore.evaluators.vs.score import REMEDIES, phase_finding
from evalq.evalcore.evaluators.vs.validators import PhaseResult
from tests.unit.vs.helpers import FULL, PARAMS, good_output, line, make_params, with_value, without
from tests.unit.vs.test_validators import json_values


def record(data: bytes, **params: Any) -> dict[str, Any]:
    """The records.jsonl line of the one line ``data``."""
    outcome = evaluator.evaluate(Batch("out.jsonl", 7, data), make_params(**params))
    assert len(outcome.lines) == 1
    assert outcome.tally.total == 1
    return dict(json.loads(outcome.lines[0]))


def with_expected(**expected: Any) -> list[dict[str, Any]]:
    """Cases of which the Full one expects more."""
    relations = [{"key": key, "op": op, "want": want} for key, (op, want) in expected.items()]
    return [{**PARAMS["cases"][0], "expected": relations}, *PARAMS["cases"][1:]]


def test_a_passed_line_has_its_metrics_and_no_issue() -> None:
    """The keys come in the order of the report's documentation."""
    found = record(line("F", 3, good_output()))
    assert list(found) == [
        "record",
        "id",
        "status",
        "metrics",
        "issue",
        "remediation",
        "case",
        "repeat",
        "agent",
        "option",
        "faults",
        "checks",
    ]
    del found["checks"]
    assert found == {
        "record": "out.jsonl:7",
        "id": "F#3",
        "status": "PASSED",
        "metrics": {
            "vs_phase_score": 1.0,
            "t_score_diversity": pytest.approx(0.6),
            "self_critique_quality": 1.0,
            "provenance_completeness": 1.0,
        },
        "issue": None,
        "remediation": None,
        "case": "F",
        "repeat": 3,
        "agent": FULL,
        "option": "a quiet theory",
        "faults": [],
    }


def test_only_the_levels_validators_apply() -> None:
    """An Enhanced output needs no self-critique, a Light one no T-scores either; their metrics are null."""
    bare = without(without(good_output(), "self_critique"), "vs_metadata.t_scores")
    assert record(line("F", 0, bare))["status"] == "FAILED"
    enhanced = record(line("E", 0, bare))
    assert (enhanced["status"], enhanced["metrics"]["self_critique_quality"]) == ("FAILED", None)
    assert enhanced["issue"] == "No T-scores provided"
    light = record(line("L", 0, bare))
    assert (light["status"], light["metrics"]["t_score_diversity"]) == ("PASSED", None)


@pytest.mark.parametrize(
    ("path", "value", "issue", "check"),
    [
        (
            "vs_metadata.phase_executed",
            [0, 1, 2, 4],
            "Phases 3 (Low-Typicality Selection), 5 (Originality Verification) not executed",
            "phases",
        ),
        ("vs_metadata.phase_executed", [1, 2, 3, 4, 5], "Phase 0 (Context Collection) not executed", "phases"),
        ("vs_metadata.phase_executed", [0, 1, 2, 4, 5], "Phase 3 (Low-Typicality Selection) not executed", "phases"),
        (
            "vs_metadata.final_selection.t_score",
            0.9,
            "T-scores: the final selection is modal (T-score 0.9 above 0.8)",
            "t_scores",
        ),
        ("vs_metadata.t_scores", [], "No T-scores provided", "t_scores"),
        ("self_critique", {}, "No self-critique provided", "self_critique"),
        (
            "self_critique",
            {"strengths": [1, 2]},
            "Self-critique lacks weaknesses, improvement suggestions, alternatives",
            "self_critique",
        ),
        ("provenance.sources", [], "Provenance lacks sources", "provenance"),
        ("provenance", {}, "Provenance lacks sources, reasoning trace, assumptions", "provenance"),
    ],
)
def test_a_failed_line_says_which_check_and_what_was_missing(path: str, value: Any, issue: str, check: str) -> None:
    """One broken thing is one issue, with the remedy of its check."""
    found = record(line("F", 0, with_value(good_output(), path, value)))
    assert (found["status"], found["issue"], found["remediation"]) == ("FAILED", issue, REMEDIES[check])
    assert found["faults"] == []


@pytest.mark.parametrize(
    ("missing", "issue"),
    [
        ([0], "Phase 0 (Context Collection) not executed"),
        ([5], "Phase 5 (Originality Verification) not executed"),
        ([6], "Phase 6 not executed"),
        ([-1, 4, 6], "Phases -1, 4 (Execution), 6 not executed"),
    ],
)
def test_missing_phases_are_named_as_far_as_they_have_names(missing: list[int], issue: str) -> None:
    """A golden set may ask for phases that the specification does not know."""
    found = phase_finding(PhaseResult(passed=False, missing_phases=missing), VsParams())
    assert (found.check, found.issue) == ("phases", issue)


def test_low_scores_and_a_missing_selection_are_reported_together() -> None:
    """Both reasons why the T-scores fail are in one issue."""
    output = without(good_output(), "vs_metadata.final_selection.t_score")
    output["vs_metadata"]["t_scores"][1]["score"] = 0.7
    found = record(line("F", 0, output))
    assert found["issue"] == (
        "T-scores: no T-score is below 0.6, the final selection has no T-score, which counts as modal"
    )


def test_contract_faults_fail_with_every_path() -> None:
    """A text for a score fails the contract and the validator; the option is counted all the same."""
    output = with_value(without(good_output(), "content.summary"), "vs_metadata.modal_identified", None)
    found = record(line("F", 0, output))
    assert found["status"] == "FAILED"
    assert found["faults"] == [
        "vs_metadata.modal_identified: null where a list is wanted",
        "content.summary: missing",
    ]
    assert found["issue"].startswith("Contract: vs_metadata.modal_identified null where a list is wanted; Contract: ")
    assert found["remediation"] == REMEDIES["contract"]
    assert found["option"] == "a quiet theory"


def test_repeated_keys_in_the_output_are_contract_faults() -> None:
    """The last value counts, as for any decoder, and the output fails with the key's path."""
    data = line("F", 0, good_output()).replace(b'"agent_id":', b'"agent_id": "x", "agent_id":')
    data = data.replace(b'"score": 0.3', b'"score": 0.9, "score": 0.3')
    found = record(data)
    assert found["faults"] == [
        "agent_id: is given more than once",
        "vs_metadata.t_scores[1].score: is given more than once",
    ]
    assert found["status"] == "FAILED"
    assert found["metrics"]["t_score_diversity"] == pytest.approx(0.6)


@pytest.mark.parametrize("option", [None, 5, ["a"], {}])
def test_an_option_that_is_no_text_is_no_option(option: Any) -> None:
    """The output fails its contract, and recommends nothing."""
    found = record(line("F", 0, with_value(good_output(), "vs_metadata.final_selection.option", option)))
    assert (found["status"], found["option"]) == ("FAILED", None)


def test_expectations_are_part_of_the_test() -> None:
    """Each unmet one is an issue; a case's phases take the place of its level's."""
    cases = with_expected(modal_count=(">=", 3), tone=("==", "calm"))
    found = record(line("F", 0, good_output()), cases=cases)
    assert found["issue"] == (
        "modal_count is 1, expected >= 3; tone not found (looked at content.main_output.tone and tone)"
    )
    assert found["remediation"] == REMEDIES["expected"]
    cases = [{**PARAMS["cases"][0], "phases": [0, 7], "t_score_range": [0.5, 1]}]
    found = record(line("F", 0, good_output()), cases=cases)
    assert found["issue"] == "Phase 7 not executed; 1 of 2 T-scores outside 0.5 to 1"
    assert found["metrics"]["vs_phase_score"] == 0.5


@pytest.mark.parametrize(
    ("data", "case", "repeat", "issue"),
    [
        (b"?", None, None, "not JSON: invalid character (byte 0)"),
        (b"[1]", None, None, "the line is a list, not an object with case, repeat and output"),
        (b"{}", None, None, "case: missing where the id of a case is wanted"),
        (b'{"case": 3, "repeat": 0}', None, None, "case: 3 where the id of a case is wanted"),
        (b'{"case": "X", "repeat": 2, "output": {}}', None, 2, "case: 'X' is not in the golden set"),
        (b'{"case": "F", "output": {}}', "F", None, "repeat: missing where a whole number from 0 is wanted"),
        (
            b'{"case": "F", "repeat": true, "output": {}}',
            "F",
            None,
            "repeat: true where a whole number from 0 is wanted",
        ),
        (b'{"case": "F", "repeat": 1.0, "output": {}}', "F", None, "repeat: 1.0 where a whole number from 0 is wanted"),
        (b'{"case": "F", "repeat": -1, "output": {}}', "F", None, "repeat: -1 where a whole number from 0 is wanted"),
        (
            b'{"case": "F", "repeat": "1", "output": {}}',
            "F",
            None,
            "repeat: a string where a whole number from 0 is wanted",
        ),
        (b'{"case": "F", "repeat": 1}', "F", 1, "output: missing where an object is wanted"),
        (b'{"case": "F", "repeat": 1, "output": "Sorry."}', "F", 1, "output: a string where an object is wanted"),
        (b'{"case": "F", "repeat": 1, "error": "timed out"}', "F", 1, "no output: timed out"),
        (b'{"case": "F", "repeat": 1, "repeat": 1, "output": {}}', "F", 1, "repeat: the key is given more than once"),
        (b'{"case": "F", "repeat": 1, "output": {}, "output": {}}', "F", 1, "output: the key is given more than once"),
    ],
)
def test_a_line_without_an_output_is_an_error(data: bytes, case: str | None, repeat: int | None, issue: str) -> None:
    """It has no metrics and no verdict, but as much of its address as can be read, and a reason."""
    found = record(data)
    assert (found["status"], found["metrics"], found["option"]) == ("ERROR", None, None)
    assert (found["case"], found["repeat"], found["issue"]) == (case, repeat, issue)
    assert found["remediation"] == REMEDIES["output"]


def test_lines_of_cases_not_selected_are_skipped() -> None:
    """Whatever else is wrong with them, they are no errors; an unknown case still is one."""
    assert record(line("L", 0, good_output()), level="Full")["status"] == "SKIPPED"
    assert record(b'{"case": "L"}', agent=FULL)["status"] == "SKIPPED"
    assert record(line("F", 0, good_output()), level="Full", agent=FULL)["status"] == "PASSED"
    assert record(line("?", 0, good_output()), level="Full")["status"] == "ERROR"


@given(
    json_values, st.sampled_from(["", "vs_metadata", "vs_metadata.t_scores", "content", "provenance", "self_critique"])
)
def test_any_value_anywhere_ends_as_a_line(value: Any, path: str) -> None:
    """No output, however misshapen, raises; every one is PASSED, FAILED or ERROR."""
    output = with_value(good_output(), path, value) if path else value
    found = record(line("F", 0, output))
    assert found["status"] in ("PASSED", "FAILED", "ERROR")
    assert (found["issue"] is None) == (found["status"] == "PASSED")


@given(st.binary(max_size=200).filter(lambda data: b"\n" not in data and not data.isspace() and data))
def test_any_bytes_end_as_an_error_line(data: bytes) -> None:
    """Bytes that are no recorded output are an ERROR with a reason."""
    assert record(data)["status"] == "ERROR"


def test_huge_and_hostile_outputs_are_quick(tmp_path: Path) -> None:
    """Ten million characters as option, key or wrong value, or as nested brackets: a short line within a second."""
    long = "x" * 10_000_000
    outputs = [
        good_output(long),
        good_output() | {long: 1},
        with_value(good_output(), "agent_id", [long]),
        with_value(good_output(), "vs_metadata.phase_executed", [long]),
    ]
    for output in outputs:
        data = line("F", 0, output)
        began = time.process_time()
        found = evaluator.evaluate(Batch("o", 1, data), make_params()).lines[0]
        assert time.process_time() - began < 1.0
        assert len(found) < 3000
    assert (
        record(b'{"case": "F", "repeat": 0, "output": ' + b"[" * 10_000_000)["issue"] == "nested deeper than 200 levels"
    )


def test_every_check_of_an_output_is_in_its_line() -> None:
    """What the validators returned, in the specification's names, and each expectation, met or not."""
    scores = [{"option": "u", "score": score} for score in (0.9, 0.85)]
    output = with_value(good_output(), "vs_metadata.t_scores", scores)
    output = with_value(output, "vs_metadata.phase_executed", [0, 1, 2, 3, 4, 5, 7, "late"])
    cases = with_expected(modal_count=(">=", 3), has_self_critique=("==", True))
    found = record(line("F", 0, output), cases=cases)["checks"]
    phases = {"missing_phases": [], "extra_phases": [7, "late"], "score": 1.0}
    assert found["phases"] == {"passed": True, "reason": None, **phases}
    t_scores = found["t_scores"]
    assert (t_scores["modal_collapse_detected"], t_scores["has_diversity"], t_scores["passed"]) == (True, False, False)
    assert t_scores["diversity_score"] == 1 - (0.9 - 0.85)
    assert (t_scores["t_score_spread"], t_scores["final_selection_t_score"]) == (0.9 - 0.85, 0.3)
    assert found["self_critique"]["checks"] == dict.fromkeys(
        ("has_strengths", "has_weaknesses", "has_improvements", "has_alternatives"), True
    )
    assert found["provenance"]["checks"] == {"has_sources": True, "has_reasoning": True, "has_assumptions": True}
    met = {each["key"]: each["passed"] for each in found["expected"]}
    assert met == {"modal_count": False, "has_self_critique": True}
    assert found["expected"][0]["unmet"]["issue"] == "modal_count is 1, expected >= 3"
    light = record(line("L", 0, good_output()))["checks"]
    assert set(light) == {"phases", "provenance"}
    assert record(line("F", 0, None))["checks"] is None


@pytest.mark.parametrize(("key", "wanted"), [("agent_id", FULL), ("vs_level", "Full")])
def test_an_output_of_another_agent_or_level_breaks_the_contract(key: str, wanted: str) -> None:
    """What the output says of itself must be what its case says; what is no text at all is one fault, not two."""
    found = record(line("F", 0, with_value(good_output(), key, "another")))
    assert (found["status"], found["faults"]) == ("FAILED", [f"{key}: is not {wanted}, its case's"])
    assert found["issue"] == f"Contract: {key} is not {wanted}, its case's"
    odd = record(line("F", 0, with_value(good_output(), key, 7)))
    assert odd["faults"] == [f"{key}: a number where a string is wanted"]
