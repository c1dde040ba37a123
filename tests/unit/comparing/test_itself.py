"""A run that is held to itself, or to a copy of itself, is refused: whatever it answered, nothing has changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import evalq
from evalq.evalcore.errors import UsageError
from evalq.evalcore.evaluators.vs.sample import GOLDEN, sample_cases, write_outputs
from tests.unit.comparing.conftest import Command, Made

POLICY = {"gates": [{"metric": "verification.pass_rate", "max_drop": 0.1}], "deterministic": True}
ROWS = [(f"t{n}", True) for n in range(80)]


@pytest.fixture
def policy(here: Path) -> str:
    (here / "policy.yaml").write_text(json.dumps(POLICY))
    return "policy.yaml"


def test_a_run_is_no_baseline_of_itself(made: Made, policy: str, command: Command) -> None:
    """By its folder, a copy of that, its cases, its id and the name under which it was approved."""
    folder = made("base", ROWS)
    shutil.copytree(folder, "copy")
    assert command("baseline", "set", "main", "base").code == 0
    for base in ("main", "base", "copy", "base/cases.json", "./evalq-baselines/main/verification.json"):
        for cand in ("base", "copy"):
            done = command("gate", cand, "--policy", policy, "--baseline", base)
            assert done.code == 2, (cand, base, done)
            assert "is both the candidate and the baseline" in done.stderr
    assert not Path("evalq-baselines/.looks").exists(), "nothing was looked at"
    again = made("again", ROWS)
    assert command("gate", str(again), "--policy", policy, "--baseline", "main").code == 0


def test_a_policy_of_bounds_needs_no_other_run(made: Made, here: Path, command: Command) -> None:
    """Without a baseline there is nothing that could be the same."""
    (here / "bounds.yaml").write_text(json.dumps({"gates": [{"metric": "verification.pass_rate", "min": 0.5}]}))
    made("base", ROWS)
    assert command("gate", "base", "--policy", "bounds.yaml").code == 0


def test_python_refuses_it_as_the_commands_do(made: Made, here: Path) -> None:
    """Of a folder, and of a run that only this process has."""
    folder = made("base", ROWS)
    unwritten = evalq.evaluate("verification", "in.jsonl")
    for run in (folder, unwritten):
        with pytest.raises(UsageError, match="a run compared with itself cannot show a change"):
            evalq.gate(run, POLICY, baseline=run)
    # Evaluated anew it is called by its report, as what found the same is.
    assert evalq.gate(evalq.evaluate("verification", "in.jsonl"), POLICY, baseline=unwritten).decided == "GO"


def test_recorded_outputs_that_are_equal_are_said_as_recorded(here: Path, command: Command) -> None:
    """A file of results stands for any run that found the same: held to what was recorded that is no error."""
    with Path("outputs.jsonl").open("wb") as stream:
        write_outputs(stream, sample_cases(), repeats=1, seed=1)
    Path("golden.yaml").write_text(GOLDEN.read_text())
    done = command("vs", "golden.yaml", "--outputs", "outputs.jsonl", "--inline", "-q", "--format", "json")
    Path("results.json").write_text(done.stdout)
    assert command("baseline", "set", "main", "results.json").code == 0
    done = command("check-regressions", "results.json")
    assert (done.code, "equal files" in done.stdout) == (0, True), done
    done = command("check-regressions", "results.json", "--statistical")
    assert done.code == 2
