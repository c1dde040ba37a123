"""A policy's wrong path is told when the suite is read, and a right one is not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.errors import ConfigError
from evalq.producer.suites.suite_file import load_suite

EXAMPLES = Path("evalcore/evaluators/vs/examples").resolve()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a golden set, outputs and two CSV files."""
    for name in ("golden.yaml", "outputs.jsonl"):
        shutil.copy(EXAMPLES / name, tmp_path)
    (tmp_path / "two.jsonl").write_text('{"case": "FULL-01", "repeat": 0, "output": {}}\n')
    return tmp_path


def _told(folder: Path, run: dict[str, Any], metric: str) -> str:
    suite = {"runs": [run], "policy": {"gates": [{"metric": metric, "min": 0}]}}
    (folder / "suite.yaml").write_text(json.dumps(suite, indent=1))
    try:
        load_suite(folder / "suite.yaml")
    except ConfigError as error:
        return str(error)
    return ""


LIVE = {"evaluator": "vs", "golden": "golden.yaml", "target": "nobody", "repeat": 3}
RECORDED = {"evaluator": "vs", "golden": "golden.yaml", "outputs": ["outputs.jsonl"]}
LOGS = {"evaluator": "cooperation", "inputs": ["a.jsonl", "b.jsonl"]}


@pytest.mark.parametrize("run", [LIVE, RECORDED])
def test_paths_into_a_golden_set_s_results(folder: Path, run: dict[str, Any]) -> None:
    """Live or recorded: what the results have, with what they have at times, and nothing else."""
    for metric in ("vs.pass_rate", "vs.diversity", "vs.test_run.passed", "vs.stopping.saved", "vs.cases.answered"):
        assert _told(folder, run, metric) == ""
    message = _told(folder, run, "vs.test_run.pased")
    assert "policy.gates.0.metric: vs.test_run.pased: the results have no 'pased' there; there are: detailed" in message
    assert "suite.yaml:" in message
    assert "pass_rate" in _told(folder, run, "vs.passrate")


def test_what_calls_take_is_known_of_live_runs_alone(folder: Path) -> None:
    """Time and money stand under usage."""
    for metric in ("vs.usage.cost", "vs.usage.seconds.p95"):
        assert _told(folder, LIVE, metric) == ""
        assert "this run makes none" in _told(folder, RECORDED, metric)
    assert "no 'price' there; there are: attempts, " in _told(folder, LIVE, "vs.usage.price")


def test_results_by_input_are_known_by_the_inputs_names(folder: Path) -> None:
    """Not before there are any; what is missing, starting the run says."""
    metric = "cooperation.logs.a.jsonl"
    assert _told(folder, LOGS, "cooperation.logs.c") == ""
    for name in LOGS["inputs"]:
        (folder / name).write_text("{}\n")
    assert _told(folder, LOGS, metric) == ""
    assert "no 'c' there; there are: a.jsonl, b.jsonl" in _told(folder, LOGS, "cooperation.logs.c")
    assert "no 'rate' there" in _told(folder, LOGS, "cooperation.rate")


def test_all_that_is_wrong_is_reported_at_once(folder: Path) -> None:
    """A line for each gate."""
    gates = [{"metric": "vs.nothing", "min": 0}, {"metric": "vs.pass_rate", "min": 0}, {"metric": "who.x", "min": 0}]
    (folder / "suite.yaml").write_text(json.dumps({"runs": [RECORDED], "policy": {"gates": gates}}, indent=1))
    with pytest.raises(ConfigError) as message:
        load_suite(folder / "suite.yaml")
    assert [line.partition("policy.")[2].partition(":")[0] for line in str(message.value).splitlines()] == [
        "gates.0.metric",
        "gates.2.metric",
    ]


def test_an_evaluator_without_measures_is_not_gated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its runs would be paid for, and then nothing decided."""
    monkeypatch.setattr(type(plugins.get("vs")), "measures", None)
    assert "runs.0.evaluator: runs of vs are not gated: it declares no measures" in _told(folder, RECORDED, "vs.x")


@pytest.mark.parametrize(
    "run",
    [
        {"evaluator": "checks", "cases": "cases.yaml", "outputs": "../secret.jsonl"},
        {"evaluator": "checks", "cases": "cases.yaml", "outputs": "linked.jsonl"},
        {"evaluator": "checks", "cases": "cases.yaml", "outputs": ["../secret.*"]},
        {"evaluator": "checks", "cases": "../secret.yaml", "target": "agent"},
        {"evaluator": "vs", "golden": "../secret.yaml", "outputs": "two.jsonl"},
        {"evaluator": "vs", "golden": "golden.yaml", "outputs": "../secret.jsonl"},
        {"evaluator": "vs", "golden": "../secret.yaml", "matrix": {"target": ["one", "two"]}},
    ],
)
def test_no_file_elsewhere_is_read_before_it_is_refused(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, run: dict[str, Any]
) -> None:
    """A suite may be anybody's, and an error would quote what it read: a key, a case, a line."""
    inner = folder / "inner"
    inner.mkdir()
    for name in ("golden.yaml", "two.jsonl"):
        shutil.move(folder / name, inner)
    (inner / "cases.yaml").write_text("cases: [{id: a, input: q, checks: [{contains: x}]}]")
    (tmp_path / "secret.jsonl").write_text('{"case": "hunter2", "output": "hunter2"}\n')
    (tmp_path / "secret.yaml").write_text("hunter2: [")
    (inner / "linked.jsonl").symlink_to(tmp_path / "secret.jsonl")
    monkeypatch.chdir(inner)
    message = _told(inner, run, f"{run['evaluator']}.pass_rate")
    assert "is in neither the suite's folder nor the current one" in message
    assert "hunter2" not in message


@pytest.mark.parametrize("file", [".git/hooks/x.xml", ".github/x.md", "a/../.git/x.json", ".x.json", "link/x.xml"])
def test_a_suite_writes_nothing_into_hidden_folders(folder: Path, file: str) -> None:
    """Git, editors and build services obey what is there; also by a link, for the gate's files and a run's."""
    (folder / ".git").mkdir()
    (folder / "link").symlink_to(folder / ".git")
    policy = {"policy": {"gates": [{"metric": "vs.pass_rate", "min": 0}]}}
    for suite in ({"runs": [RECORDED], "outputs": [file], **policy}, {"runs": [{**RECORDED, "output": [file]}]}):
        (folder / "suite.yaml").write_text(json.dumps(suite))
        with pytest.raises(ConfigError, match="a suite writes nothing into hidden files and folders"):
            load_suite(folder / "suite.yaml")
    (folder / "suite.yaml").write_text(json.dumps({"runs": [RECORDED], "outputs": ["out/../gate.xml"], **policy}))
    assert load_suite(folder / "suite.yaml").outputs
