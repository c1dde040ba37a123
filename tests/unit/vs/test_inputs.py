"""From the command's arguments to inputs and params, and folders of JSON files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.contract.params import validate
from evalq.evalcore.errors import ConfigError, UsageError
from evalq.evalcore.evaluators.vs import evaluator
from evalq.evalcore.evaluators.vs.inputs import output_line
from evalq.evalcore.evaluators.vs.params import VsParams
from evalq.evalcore.evaluators.vs.sample import GOLDEN
from evalq.evalcore.evaluators.vs.score import judge_for
from evalq.evalcore.fold import evaluate_files
from tests.unit.vs.helpers import PARAMS, good_output, of_case

NO_CASE = "named: no case of the golden set is 'summary'; call the file ID.json or ID.REPEAT.json"


def asked(*inputs: Any, params: dict[str, Any] | None = None, **options: Any) -> Request:
    """What `request` makes of a command line."""
    return evaluator.command.request(Request([str(path) for path in inputs], params or {}, options))


def test_outputs_and_a_target_at_once_are_refused() -> None:
    """Before anything is called: no prompt is made."""
    assert evaluator.calls is not None
    given = Request([str(GOLDEN)], {}, {"outputs": [GOLDEN.with_name("outputs.jsonl")], "all": True})
    with pytest.raises(UsageError, match="give only one of them"):
        next(iter(evaluator.calls.prompts(given)))


def test_the_golden_set_becomes_params_and_the_outputs_inputs(tmp_path: Path) -> None:
    """The completed request validates, and evaluates to a report."""
    outputs = GOLDEN.with_name("outputs.jsonl")
    made = asked(GOLDEN, outputs=[outputs], all=True)
    assert made.inputs == [str(outputs)]
    params = validate(VsParams, made.params, "params")
    assert len(params.cases) == 30
    assert params.selected() == params.cases
    report = evaluate_files(evaluator, made.inputs, made.params).report
    assert report["records"]["total"] == 90
    assert len(report["results"]["mode_collapse"]) == 30


@pytest.mark.parametrize("name", ["10-statistical-analysis-guide", "10"])
def test_an_agent_is_named_whole_or_by_number(name: str) -> None:
    """Both select its three cases."""
    made = asked(GOLDEN, outputs=["x.jsonl"], agent=name)
    assert made.params["agent"] == "10-statistical-analysis-guide"
    assert [case.id for case in validate(VsParams, made.params, "x").selected()] == ["FULL-10", "FULL-11", "FULL-12"]


def test_a_level_selects_its_cases() -> None:
    """Nine Light cases; the selection may also stand in the params."""
    by_option = asked(GOLDEN, outputs=["x.jsonl"], level="Light")
    by_params = asked(GOLDEN, outputs=["x.jsonl"], params={"level": "Light"})
    assert by_option.params == by_params.params
    assert len(validate(VsParams, by_option.params, "x").selected()) == 9


def test_another_registry_takes_the_place_of_the_bundled_one(tmp_path: Path) -> None:
    """Cases are held against its agents and levels."""
    registry, golden = tmp_path / "agents.yaml", tmp_path / "golden.yaml"
    registry.write_text("agents: {planner: Light}")
    golden.write_text("test_cases: {light_vs_tests: [{id: P, agent: planner, input: x}]}")
    made = asked(golden, outputs=["x.jsonl"], registry=registry)
    assert made.params["agents"] == [{"id": "planner", "level": "Light"}]
    with pytest.raises(ConfigError, match=r"test_cases.full_vs_tests\[0\].agent: '02-theo.*' is not in the registry"):
        asked(GOLDEN, outputs=["x.jsonl"], registry=registry)


def test_params_with_a_golden_set_need_no_other() -> None:
    """The inputs are then recorded outputs, as when a finished run's params are used again."""
    request = Request(["out.jsonl"], dict(PARAMS), {})
    assert evaluator.command.request(request) is request


@pytest.mark.parametrize(
    ("inputs", "options", "reason"),
    [
        ([], {"outputs": ["x"]}, "vs takes one golden set, not 0 files"),
        ([GOLDEN, GOLDEN], {"outputs": ["x"]}, "vs takes one golden set, not 2 files"),
        ([GOLDEN], {}, "vs needs recorded outputs or a target: evalq vs GOLDEN --outputs FILE.jsonl\\|FOLDER"),
        ([GOLDEN], {"outputs": ["x"], "all": True, "level": "Full"}, "--all cannot be used with --agent or --level"),
        ([GOLDEN], {"outputs": ["x"], "agent": "21"}, "there are: 01-research-question-refiner, 02-theo"),
        ([GOLDEN], {"outputs": ["x"], "agent": "02", "level": "Light"}, "has no case of --agent '02-theoretical"),
    ],
)
def test_what_cannot_be_done_says_why(inputs: list[Path], options: dict[str, Any], reason: str) -> None:
    """Usage errors name the mistake and the way out."""
    with pytest.raises(UsageError, match=reason):
        asked(*inputs, **options)


def test_one_file_of_outputs_is_not_named_twice(tmp_path: Path) -> None:
    """Six equal options of it would be twelve, and a case collapsed of which nobody can tell; under any name."""
    outputs, link = tmp_path / "outputs.jsonl", tmp_path / "link.jsonl"
    outputs.write_bytes(GOLDEN.with_name("outputs.jsonl").read_bytes())
    link.symlink_to(outputs)
    for again in (outputs, link):
        with pytest.raises(UsageError, match="same file twice"):
            asked(GOLDEN, outputs=[outputs, again])


def test_wrong_params_are_found_before_the_golden_set_is_read() -> None:
    """A threshold that does not exist is named."""
    with pytest.raises(ConfigError, match=r"collapse\.shar: unknown key"):
        asked("missing.yaml", params={"collapse": {"shar": 1}}, outputs=["x"])


def write_folder(folder: Path) -> Path:
    """Whole records, bare outputs named by case and repeat, broken files, and some that are no outputs."""
    folder.mkdir(parents=True)
    output = good_output("첫째")
    (folder / "a.json").write_text(json.dumps({"case": "E", "repeat": 4, "output": of_case("E", output)}, indent=2))
    (folder / "F.2.json").write_text(json.dumps(output, indent=2), encoding="utf-8")
    (folder / "F#3.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(output).encode())
    (folder / "F.4.json.gz").write_bytes(gzip.compress(json.dumps(output, indent=1).encode()))
    (folder / "L.json").write_text('{"agent_id": 1,\n "agent_id": 2}')
    (folder / "L.1.json").write_text("{\noops")
    (folder / "L.2.json").write_bytes(b"")
    (folder / "summary.json").write_text("[1, 2]")
    (folder / "notes.txt").write_text("not read")
    return folder


def test_a_folder_of_json_files_is_one_input(tmp_path: Path) -> None:
    """One record a file, in the order of their names, each called by its file; a broken one is never lost."""
    found = evaluate_files(evaluator, [write_folder(tmp_path / "outputs")], PARAMS)
    assert [(item["record"], item["id"], item["status"]) for item in found.records()] == [
        ("outputs/F#3.json", "F#3", "PASSED"),
        ("outputs/F.2.json", "F#2", "PASSED"),
        ("outputs/F.4.json", "F#4", "PASSED"),
        ("outputs/L.1.json", "L#1", "ERROR"),
        ("outputs/L.2.json", "L#2", "ERROR"),
        ("outputs/L.json", "L#0", "FAILED"),
        ("outputs/a.json", "E#4", "PASSED"),
        ("outputs/summary.json", None, "ERROR"),
    ]
    assert "agent_id: is given more than once" in list(found.records())[5]["faults"]
    assert found.report["faults"] == [
        {
            "where": "outputs/L.1.json",
            "reason": "no output: not JSON: object keys must be strings (byte 2)",
        },
        {"where": "outputs/L.2.json", "reason": "no output: not JSON: Input data was truncated"},
        {"where": "outputs/summary.json", "reason": NO_CASE},
    ]
    assert [entry["name"] for entry in found.report["inputs"]] == ["outputs"]
    assert found.report["records"]["total"] == 8


@pytest.mark.parametrize("size", [1, 3])
def test_a_folder_gives_the_same_bytes_anywhere_and_cut_anyhow(tmp_path: Path, size: int) -> None:
    """Neither the path to the folder nor the chunks its files fall into can be seen in report or records."""
    here, there = (write_folder(tmp_path / name / "outputs") for name in ("here", "there"))
    assert evaluate_files(evaluator, [here], PARAMS) == evaluate_files(evaluator, [there], PARAMS, chunk_size=size)


def test_a_repeat_that_comes_twice_in_a_folder_is_left_out_by_its_file(tmp_path: Path) -> None:
    """All files of a folder are one input, so its first output counts and the other is named."""
    for name in ("F.0.json", "F.json"):
        (tmp_path / name).write_text(json.dumps(good_output()))
    found = evaluate_files(evaluator, [tmp_path], PARAMS)
    assert [fault["where"] for fault in found.report["faults"]] == [f"{tmp_path.name}/F.json"]
    assert found.report["records"]["scored"] == 1


@pytest.mark.parametrize(
    ("name", "case", "repeat"),
    [
        ("v1.json", "v1", 0),
        ("v1.12.json", "v1", 12),
        ("v1#3.json", "v1", 3),
        ("v1.5.json", "v1.5", 0),
        ("v1.5.7.json", "v1.5", 7),
        ("v1#5.json", "v1", 5),
    ],
)
def test_a_name_is_that_of_its_case_first(name: str, case: str, repeat: int) -> None:
    """What else ends in a number is a repeat of the case before it; a file that is no JSON is of its case, too."""
    cases = [{**PARAMS["cases"][0], "id": each} for each in ("v1", "v1.5")]
    judge = judge_for(validate(VsParams, {**PARAMS, "cases": cases}, "params"))
    for content in (b"{}", b"no JSON"):
        test = judge.test(output_line(name, content))
        assert test.plan is not None
        assert (test.plan.case.id, test.repeat) == (case, repeat)


def test_a_name_that_no_case_has_is_reported() -> None:
    """With all that it could have meant."""
    test = judge_for(validate(VsParams, PARAMS, "params")).test(output_line("zz.5.json", b"{}"))
    assert (test.status, test.plan) == ("ERROR", None)
    assert "named: no case of the golden set is 'zz.5' nor 'zz'" in test.findings[0].issue


def test_recorded_outputs_and_a_target_are_one_too_many(tmp_path: Path) -> None:
    """What is recorded is evaluated, and nobody is asked."""
    assert evaluator.calls is not None
    with pytest.raises(UsageError, match="evalq evaluates --outputs, or calls a --target: give only one of them"):
        list(evaluator.calls.prompts(Request([str(GOLDEN)], {}, {"outputs": (str(tmp_path / "o.jsonl"),)})))


def test_the_answers_are_all_that_their_evaluation_needs(tmp_path: Path) -> None:
    """Whatever they say, they are the only input and nothing is written: workers may do it where nobody attends."""
    outputs, folder = tmp_path / "answers.jsonl", tmp_path / "folder"
    outputs.write_bytes(b'{"case":"FULL-01","error":"broken"}\n')
    folder.mkdir()
    calls = evaluator.calls
    assert calls is not None
    assert calls.answers_suffice
    made = evaluator.command.request(calls.answered(Request([str(GOLDEN)], {}, {}), outputs, folder))
    assert made.inputs == [str(outputs)]
    assert list(folder.iterdir()) == []
