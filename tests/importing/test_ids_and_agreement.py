"""Imported ids do not depend on the place of a case, and an import says how far its checks agree with the source."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalq.producer.cli import main
from evalq.producer.importing import sources
from evalq.producer.importing.imported import ImportRequest
from tests.importing.record import HERE

_CONTAINS = {"type": "contains", "value": "x"}
_GRADER = {"type": "string_check", "name": "m", "input": "{{sample.output_text}}", "operation": "eq", "reference": "x"}


def _promptfoo(folder: Path, questions: list[str]) -> Path:
    tests = [{"vars": {"q": each}, "assert": [_CONTAINS]} for each in questions]
    return _json(folder, "c.json", {"prompts": ["{{q}}", "Please: {{q}}"], "tests": tests})


def _variables(folder: Path, questions: list[str]) -> Path:
    tests = [{"description": "asks", "vars": {"q": questions}, "assert": [_CONTAINS]}]
    return _json(folder, "c.json", {"prompts": ["{{q}}"], "tests": tests})


def _results(folder: Path, questions: list[str]) -> Path:
    rows = [
        {"testIdx": index, "prompt": {"raw": each}, "testCase": {"assert": [_CONTAINS]}, "response": {"output": each}}
        for index, each in enumerate(questions)
    ]
    return _json(folder, "r.json", {"results": {"results": rows}})


def _inspect(folder: Path, questions: list[str]) -> Path:
    samples = [
        {"id": number, "epoch": 1, "input": each, "target": "x", "output": {"completion": each}}
        for number, each in enumerate(questions, start=1)
    ]
    return _json(folder, "log.json", {"eval": {"task": "t", "scorers": [{"name": "includes"}]}, "samples": samples})


def _lm_eval(folder: Path, questions: list[str]) -> Path:
    lines = [
        json.dumps({"doc_id": number, "target": "x", "arguments": [[each, {}]], "resps": [[each]], "filter": "none"})
        for number, each in enumerate(questions)
    ]
    (folder / "samples_t_2026-01-01T00-00-00.1.jsonl").write_text("\n".join(lines))
    task = {"output_type": "generate_until", "metric_list": [{"metric": "exact_match"}]}
    return _json(folder, "results_2026-01-01T00-00-00.1.json", {"configs": {"t": task}})


def _deepeval(folder: Path, questions: list[str]) -> Path:
    tools = [{"name": "search"}]
    return _json(folder, "goldens.json", [{"input": each, "expected_tools": tools} for each in questions])


def _test_run(folder: Path, questions: list[str]) -> Path:
    # DeepEval numbers what has no name.
    tools = [{"name": "search"}]
    cases = [
        {"name": f"test_case_{index}", "input": each, "expectedTools": tools} for index, each in enumerate(questions)
    ]
    return _json(folder, "run.json", {"testCases": cases})


def _openai(folder: Path, questions: list[str]) -> Path:
    items = [
        {"datasource_item_id": number, "datasource_item": {"q": each}, "sample": {"output_text": each}}
        for number, each in enumerate(questions)
    ]
    return _json(folder, "eval.json", {"testing_criteria": [_GRADER], "output_items": items})


def _json(folder: Path, name: str, data: Any) -> Path:
    (folder / name).write_text(json.dumps(data))
    return folder / name


@pytest.mark.parametrize(
    ("source", "write"),
    [
        ("promptfoo", _promptfoo),
        ("promptfoo", _variables),
        ("promptfoo", _results),
        ("inspect", _inspect),
        ("lm-eval", _lm_eval),
        ("deepeval", _deepeval),
        ("deepeval", _test_run),
        ("openai-evals", _openai),
    ],
)
def test_a_case_that_comes_in_before_all_others_changes_no_id(
    source: str, write: Callable[[Path, list[str]], Path], tmp_path: Path
) -> None:
    """One, two, in another order: the same question with the same checks has the same id; equal ones a number."""

    def ids(questions: list[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for case in sources.read(source, write(tmp_path, questions), ImportRequest()).cases:
            found.setdefault(json.dumps(case["input"]), []).append(case["id"])
        return {question: sorted(made) for question, made in found.items()}

    before, after = ids(["x1", "x2", "x2"]), ids(["new", "x1", "x2", "x2"])
    assert {question: after[question] for question in before} == before
    assert ids(["x2", "x1", "x2"]) == before
    listed = [each for case in after.values() for each in case]
    assert len(set(listed)) == len(listed)


def _agreement(folder: Path, source: str, file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["import", source, str(file), "-d", str(folder / "evals"), "--force"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("agreement: ")]
    return line


@pytest.mark.parametrize(
    ("source", "file", "said"),
    [
        ("inspect", "inspect-capitals.json", "20 of 20 records"),
        ("inspect", "inspect-epochs.eval", "20 of 20 records"),
        ("lm-eval", "lm-eval/results_2026-11-23T17-20-26.155147.json", "26 of 26 records; 13 more have no verdict"),
        ("deepeval", "deepeval/test-run.json", "8 of 8 records"),
        ("promptfoo", "promptfoo-forms.json", "48 of 48 records; 16 more have no verdict"),
    ],
)
def test_one_line_says_on_how_many_records_the_checks_agree(
    source: str, file: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of recordings that the tools made themselves."""
    assert said in _agreement(tmp_path, source, HERE / file, capsys)


def _turned(folder: Path, source: str) -> Path:
    """A recording in which the tool's verdict on its first record is the other one."""
    if source == "inspect":
        data = json.loads((HERE / "inspect-capitals.json").read_text())
        score = data["samples"][0]["scores"]["includes"]
        score["value"] = "I" if score["value"] == "C" else "C"
    elif source == "deepeval":
        data = json.loads((HERE / "deepeval" / "test-run.json").read_text())
        metric = data["testRunData"]["testCases"][0]["metricsData"][0]
        metric["success"] = not metric["success"]
    else:
        data = json.loads((HERE / "promptfoo-forms.json").read_text())
        part = data["results"]["results"][0]["gradingResult"]["componentResults"][0]
        part["pass"] = not part["pass"]
    return _json(folder, "turned.json", data)


@pytest.mark.parametrize(
    ("source", "said"), [("inspect", "19 of 20"), ("deepeval", "7 of 8"), ("promptfoo", "47 of 48")]
)
def test_a_verdict_that_is_another_one_is_counted_and_named(
    source: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its case, repeat and check."""
    line = _agreement(tmp_path, source, _turned(tmp_path, source), capsys)
    assert f"on {said} records" in line
    assert "they differ at " in line
    assert "repeat 0: " in line


def test_where_the_source_has_no_verdict_agreement_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is no agreement."""
    line = _agreement(tmp_path, "promptfoo", _results(tmp_path, ["x"]), capsys)
    assert line == "agreement: not known, the source has no verdict on a check of the 1 recorded outputs"
