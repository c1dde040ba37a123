"""From the command's arguments to inputs and params, and folders of JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalcore.errors import ConfigError, InputError, UsageError
from evalcore.evaluator import Request
from evalcore.evaluators.vs import combine_outputs, evaluator
from evalcore.evaluators.vs.inputs import combine_command, conformed_line
from evalcore.evaluators.vs.params import VsParams
from evalcore.evaluators.vs.sample import GOLDEN
from evalcore.inline import evaluate_files
from evalcore.params import validate
from tests.unit.vs.helpers import PARAMS, good_output


def asked(*inputs: Any, params: dict[str, Any] | None = None, **options: Any) -> Request:
    """What `request` makes of a command line."""
    return evaluator.request(Request([str(path) for path in inputs], params or {}, options))


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
    assert evaluator.request(request) is request


@pytest.mark.parametrize(
    ("inputs", "options", "reason"),
    [
        ([], {"outputs": ["x"]}, "vs takes one golden set, not 0 files"),
        ([GOLDEN, GOLDEN], {"outputs": ["x"]}, "vs takes one golden set, not 2 files"),
        ([GOLDEN], {}, "vs needs recorded outputs: evalq vs GOLDEN --outputs FILE.jsonl"),
        ([GOLDEN], {"outputs": ["x"], "all": True, "level": "Full"}, "--all goes with neither --agent nor --level"),
        ([GOLDEN], {"outputs": ["x"], "agent": "21"}, "there are: 01-research-question-refiner, 02-theo"),
        ([GOLDEN], {"outputs": ["x"], "agent": "02", "level": "Light"}, "holds no case of --agent '02-theoretical"),
    ],
)
def test_what_cannot_be_done_says_why(inputs: list[Path], options: dict[str, Any], reason: str) -> None:
    """Usage errors name the mistake and the way out."""
    with pytest.raises(UsageError, match=reason):
        asked(*inputs, **options)


def test_wrong_params_are_found_before_the_golden_set_is_read() -> None:
    """A threshold that does not exist is named."""
    with pytest.raises(ConfigError, match=r"collapse\.shar: unknown key"):
        asked("missing.yaml", params={"collapse": {"shar": 1}}, outputs=["x"])


def test_a_folder_of_json_files_becomes_lines(tmp_path: Path) -> None:
    """Whole records, bare outputs named by case and repeat, and broken files: one line each, sorted by name."""
    folder = tmp_path / "outputs"
    folder.mkdir()
    output = good_output("첫째")
    (folder / "a.json").write_text(json.dumps({"case": "E", "repeat": 4, "output": output}, indent=2))
    (folder / "F.2.json").write_text(json.dumps(output, indent=2), encoding="utf-8")
    (folder / "F#3.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(output).encode())
    (folder / "L.json").write_text('{"agent_id": 1, "agent_id": 2}')
    (folder / "L.1.json").write_text("{oops")
    (folder / "notes.txt").write_text("not read")
    target = tmp_path / "outputs.jsonl"
    assert combine_outputs(folder, target) == 5
    found = evaluate_files(evaluator, [target], PARAMS)
    assert [(item["id"], item["status"]) for item in found.records()] == [
        ("F#3", "PASSED"),
        ("F#2", "PASSED"),
        ("L#1", "ERROR"),
        ("L#0", "FAILED"),
        ("E#4", "PASSED"),
    ]
    lines = list(found.records())
    assert lines[2]["issue"] == "no output: L.1.json: not JSON: object keys must be strings (byte 1)"
    assert "agent_id: is given more than once" in lines[3]["faults"]


@pytest.mark.parametrize(
    ("name", "case", "repeat"),
    [
        ("FULL-01.json", "FULL-01", 0),
        ("FULL-01.12.json", "FULL-01", 12),
        ("a.b#3.json", "a.b", 3),
        ("1.json", "1", 0),
        ("strange", "strange", 0),
    ],
)
def test_names_of_bare_outputs(name: str, case: str, repeat: int) -> None:
    """The part before the last point or number sign is the case, what follows the repeat."""
    assert json.loads(conformed_line(name, b"[1]")) == {"case": case, "repeat": repeat, "output": [1]}


def test_a_folder_without_json_is_an_error(tmp_path: Path) -> None:
    """It says what is missing, and an unreadable file says why."""
    with pytest.raises(InputError, match=r"the folder holds no file ending in \.json"):
        combine_outputs(tmp_path, tmp_path / "x.jsonl")


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's reason stands beside the path."""
    (tmp_path / "F.json").write_text("{}")

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(InputError, match=r"an output cannot be read[\s\S]*Permission denied"):
        combine_outputs(tmp_path, tmp_path / "x.jsonl")


def test_a_folder_of_json_files_given_as_outputs_names_the_command(tmp_path: Path) -> None:
    """Until combined it cannot be cut; the message is the way."""
    (tmp_path / "F.0.json").write_text("{}")
    with pytest.raises(UsageError, match=f"evalq vs-combine --folder {tmp_path} --to outputs.jsonl"):
        asked(GOLDEN, outputs=[tmp_path])
    (tmp_path / "real.jsonl").write_text("{}")
    assert asked(GOLDEN, outputs=[tmp_path]).inputs == [str(tmp_path)]


def test_the_command_combines(tmp_path: Path) -> None:
    """It says how many outputs are where, and needs both options."""
    (tmp_path / "F.0.json").write_text("{}")
    target = tmp_path / "all.jsonl"
    assert combine_command.call({"folder": str(tmp_path), "to": str(target)}) == f"1 outputs in {target}"
    assert combine_command in evaluator.commands
    with pytest.raises(UsageError, match="vs-combine needs --folder and --to"):
        combine_command.call({"folder": str(tmp_path), "to": None})
