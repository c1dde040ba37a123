"""`evalq run`: a suite file of several evaluations, and the CI workflow that uses it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from evalq.evalcore.contract import plugins
from tests.integration.harness import EVALQ, Fleet, Server, clean_environment, evalq, info, wait_until
from tests.samples import sampled

OWN = plugins.built_in()
WORKFLOW = Path(__file__).parents[2] / "deploy" / "ci" / "vs-evaluation.yml"


def _beside(path: str, folder: Path) -> str:
    """``path``, copied into ``folder`` where it is a file of the package: a suite names nothing elsewhere."""
    return path if Path(path).is_relative_to(folder) else str(shutil.copy(path, folder))


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A folder with evalq.yaml: every evaluator of evalq's own on its sample."""
    runs: list[dict[str, Any]] = []
    for name in OWN:
        evaluator = plugins.get(name)
        folder = tmp_path / name
        folder.mkdir()
        request = sampled(evaluator, folder, 60, 5)
        inputs = [os.path.relpath(_beside(path, folder), tmp_path) for path in request.inputs]
        run = {"evaluator": name, evaluator.command.positional: inputs, "params": request.params}
        for key, value in request.options.items():
            if value:
                run[key] = [os.path.relpath(_beside(item, folder), tmp_path) for item in value]
        runs.append(run)
    (tmp_path / "evalq.yaml").write_text(yaml.safe_dump({"suite": "nightly", "runs": runs}, allow_unicode=True))
    return tmp_path


def test_a_suite_runs_all_of_them(suite: Path) -> None:
    """One command, one run and folder each, all reports as JSON on standard output."""
    done = evalq("run", "evalq.yaml", "--out", "results", "--format", "json", cwd=suite)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["suite"] == "nightly"
    assert [run["evaluator"] for run in result["runs"]] == OWN
    assert all(run["records"]["total"] > 0 for run in result["runs"])
    assert {path.name for path in (suite / "results").iterdir()} == set(plugins.names())
    assert info(suite / "results" / "vs")["suite"] == "nightly"


def test_inline_and_workers_agree(suite: Path) -> None:
    """All of them through workers give the bytes of the inline suite."""
    for folder, how in (("one", ("--inline",)), ("other", ("--workers", "2"))):
        assert evalq("run", "evalq.yaml", "--out", folder, "--format", "none", *how, cwd=suite).returncode == 0
    for name in plugins.names():
        for file in ("report.json", "records.jsonl"):
            assert (suite / "one" / name / file).read_bytes() == (suite / "other" / name / file).read_bytes()


def test_the_worst_run_decides(suite: Path) -> None:
    """A faulty input fails its own run with its place; the others are still run, and the exit code is the worst."""
    broken = next((suite / "planagent").glob("*.csv"))
    broken.write_text("nothing,of,use\n")
    done = evalq("run", "evalq.yaml", "--inline", "--out", "results", "--format", "none", cwd=suite)
    assert done.returncode == 2
    assert "planagent: " in done.stderr
    assert "missing columns" in done.stderr
    assert not (suite / "results" / "planagent").exists()
    assert (suite / "results" / "vs" / "report.json").exists()


def test_a_failed_run_is_in_the_json_and_names_stay(suite: Path) -> None:
    """Every run has an entry, a report or what went wrong; a named run's folder and entry have its name."""
    planned = yaml.safe_load((suite / "evalq.yaml").read_text())
    planned["runs"][OWN.index("vs")]["name"] = "golden.daily"
    (suite / "evalq.yaml").write_text(yaml.safe_dump(planned, allow_unicode=True))
    next((suite / "planagent").glob("*.csv")).write_text("nothing,of,use\n")
    done = evalq("run", "evalq.yaml", "--inline", "--out", "results", "--format", "json", cwd=suite)
    assert done.returncode == 2
    runs = json.loads(done.stdout)["runs"]
    assert [run["evaluator"] for run in runs] == OWN
    failed = runs[OWN.index("planagent")]
    assert (failed["exit_code"], "missing columns" in failed["error"]) == (2, True)
    assert [run.get("name") for run in runs] == ["golden.daily" if name == "vs" else None for name in OWN]
    assert (suite / "results" / "golden.daily" / "report.json").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("runs: []\n", "runs"),
        ("runs: [{evaluator: nobody}]\n", "nobody"),
        ("runs: [{evaluator: planagent, input: [x.csv]}]\n", "runs.0.input: unknown key"),
        ("runs: [{evaluator: planagent, inputs: [x.csv], params: {rules: {sped: 1}}}]\n", "rules.sped"),
        (
            "runs: [{evaluator: planagent, inputs: [x.csv], lang: fr}]\n",
            "evalq.yaml:1: runs.0.lang: Input should be 'ko'",
        ),
        ("runs: [{evaluator: planagent, inputs: [x.csv], limit: many}]\n", "runs.0.limit"),
        ("runs: [{evaluator: planagent, inputs: [x.csv], name: a/b}]\n", "runs.0.name: letters"),
        (
            "runs: [{evaluator: planagent, inputs: [], name: a}, {evaluator: planagent, inputs: [], name: a}]\n",
            "runs.1.name",
        ),
        (
            "runs:\n- evaluator: planagent\n  inputs: [x.csv]\n  limit: 0\n",
            "yaml:4: runs.0.limit: Input",
        ),
        (
            "runs:\n- evaluator: planagent\n  inputs: x.csv\n  cache: c\n",
            "yaml:4: runs.0.cache: goes with judge",
        ),
        ("runz: []\n", "runz: unknown key"),
        ("runs: [\n", "evalq.yaml:"),
    ],
)
def test_a_wrong_suite_names_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    """Nothing is run, the exit code is 2, and the message has the file and the key path."""
    (tmp_path / "evalq.yaml").write_text(text)
    done = evalq("run", "evalq.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "evalq.yaml" in done.stderr or "nobody" in done.stderr
    assert said in done.stderr
    assert not (tmp_path / "evalq-runs").exists()


def test_enqueue_now_and_come_back(server: Server, fleet: Fleet, suite: Path) -> None:
    """--detach --once KEY prints the run ids and leaves; each run can be watched, and the same command joins them."""
    args = ("run", "evalq.yaml", "--broker", server.url, "--once", "sha1", "--out", "results")
    done = evalq(*args, "--detach", cwd=suite)
    assert done.returncode == 0, done.stderr
    runs = done.stdout.split()
    assert len(runs) == len(plugins.names())
    fleet.add(1, "--root", str(suite))
    keys = [f"evalq:run:{{{run}}}" for run in runs]

    def complete() -> bool:
        return all(server.client.hlen(f"{key}:digests") == server.client.llen(f"{key}:chunks") for key in keys)

    wait_until(complete, "the workers did it all")
    for run in runs:
        folder = next(path for path in (suite / "results").iterdir() if info(path)["run"] == run)
        done = evalq("watch", folder, "--broker", server.url, "--format", "json", cwd=suite)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["records"]["total"] > 0
    done = evalq(*args, "--format", "json", cwd=suite)
    assert [run["evaluator"] for run in json.loads(done.stdout)["runs"]] == sorted(plugins.names())
    assert len(list((suite / "results").iterdir())) == len(plugins.names())


def test_the_workflow_s_own_command_works(suite: Path) -> None:
    """The command of the example workflow, word for word, in a shell, gives results.json and the folder it uploads."""
    workflow = yaml.safe_load(WORKFLOW.read_text())
    steps = workflow["jobs"]["evaluate"]["steps"]
    command = next(step["run"] for step in steps if step.get("name") == "Run the evaluation")
    shim = suite / "bin" / "evalq"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {" ".join(EVALQ)} "$@"\n')
    shim.chmod(0o755)
    environment = clean_environment(GITHUB_SHA="0a1b2c")
    environment["PATH"] = f"{shim.parent}:{environment['PATH']}"
    subprocess.run(["sh", "-ec", command], cwd=suite, env=environment, check=True, capture_output=True)
    assert len(json.loads((suite / "results.json").read_text())["runs"]) == len(plugins.names())
    assert (suite / "results" / "vs" / "report.json").exists()
