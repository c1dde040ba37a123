"""Datasets and a test run that DeepEval wrote, from goldens that are made here (record.py, deepeval)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalq.evalcore.errors import ConfigError
from evalq.producer.importing import sources
from evalq.producer.importing.imported import ImportRequest
from tests.importing.judged import judged
from tests.importing.record import HERE

FOLDER = HERE / "deepeval"


def test_exact_matches_of_a_test_run_are_the_verdicts_of_the_checks(tmp_path: Path) -> None:
    """White space around both aside."""
    _, judgements = judged("deepeval", FOLDER / "test-run.json", tmp_path)
    cases = json.loads((FOLDER / "test-run.json").read_text())["testRunData"]["testCases"]
    said = {case["name"]: case["metricsData"][0]["success"] for case in cases}
    ours = {each.plan.case.id: each.checks[0].passed for each in judgements if each.plan is not None}
    assert ours == said
    assert set(said.values()) == {True, False}


def test_goldens_are_the_same_cases_in_every_form(tmp_path: Path) -> None:
    """JSON, lines of JSON and CSV; expected tools are checks, expected answers wait for --check."""
    asked = ImportRequest(checks=("contains",))
    forms = [sources.read("deepeval", FOLDER / f"goldens.{form}", asked) for form in ("json", "jsonl", "csv")]
    assert forms[0].cases == forms[1].cases == forms[2].cases
    assert forms[0].outputs == forms[1].outputs == forms[2].outputs
    assert forms[0].cases[0]["checks"] == [{"tool-calls": ["search"]}]
    assert forms[0].cases[1]["checks"] == ["contains"]
    _, judgements = judged("deepeval", FOLDER / "goldens.json", tmp_path, asked)
    assert [each.status for each in judgements] == ["passed", "passed"]


def test_what_has_no_counterpart_is_listed() -> None:
    """Metrics by models and patterns that the file does not give, contexts, and cases without a check."""
    notes = {note.what: note for note in sources.read("deepeval", FOLDER / "test-run.json", ImportRequest()).notes}
    assert "does not say" in notes["Pattern Match"].why
    notes = {note.what: note for note in sources.read("deepeval", FOLDER / "goldens.json", ImportRequest()).notes}
    assert notes["retrieval_context"].kind == "none"
    assert "--check equals" in notes["a case"].why


@pytest.mark.parametrize("content", ["{}", "3", "{"])
def test_a_file_of_something_else_is_an_error(content: str, tmp_path: Path) -> None:
    """And names the file."""
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(ConfigError, match=r"run\.json"):
        sources.read("deepeval", tmp_path / "run.json", ImportRequest())


def test_one_number_past_all_bounds_is_left_out_alone(tmp_path: Path) -> None:
    """What Python writes as Infinity or NaN costs that number, not the import."""
    case = '{"input": "a", "actual_output": "b", "expected_output": "b", "tokenCost": 0.5, "inputTokenCount": %s}'
    path = tmp_path / "goldens.json"
    path.write_text(f"[{', '.join(case % odd for odd in ('Infinity', 'NaN', '1e300', '-1', '7'))}]")
    found = sources.read("deepeval", path, ImportRequest(checks=("equals",)))
    assert [line.get("prompt_tokens") for line in found.outputs["outputs"]] == [None, None, None, None, 7]
    assert {line["cost"] for line in found.outputs["outputs"]} == {0.5}
    assert [note.what for note in found.notes] == ["input_token_count"] * 4
