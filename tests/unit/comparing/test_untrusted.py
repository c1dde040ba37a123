"""A baseline's file may come with a pull request: it is read as one, or refused with its place."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.comparing.conftest import Command, Made

POLICY = "{gates: [{metric: verification.pass_rate, max_drop: 0.1}], deterministic: true}"
GATE = ("--policy", "policy.yaml", "--baseline", "main", "--json")
Damage = Callable[[dict[str, Any]], object]


def _column(**lists: list[float]) -> Damage:
    return lambda run: run["cases"]["columns"]["pass_rate"].update(lists)


def _scores(each: float) -> Damage:
    return lambda run: run["cases"]["columns"]["mean_score"].update(total=[each] * 80, squares=[each * each] * 80)


@pytest.fixture
def approved(made: Made, here: Path, command: Command) -> Path:
    """The file of the baseline "main"; a run "worse" and a policy are beside it."""
    made("worse", [(f"t{n}", n >= 30) for n in range(80)])
    (here / "policy.yaml").write_text(POLICY)
    assert command("baseline", "set", "main", str(made("base", [(f"t{n}", True) for n in range(80)]))).code == 0
    return Path("evalq-baselines/main/verification.json")


DAMAGES: list[tuple[Damage, str]] = [
    (_column(count=[1]), "columns.pass_rate: not a number for each case"),
    (_column(count=[-1] * 80), "columns.pass_rate: no answers add up to these numbers"),
    (_column(total=[-1000.0] * 80), "columns.pass_rate: no answers add up to these numbers"),
    (_column(total=[1e308] * 80), "columns.pass_rate: no answers add up to these numbers"),
    (_scores(7.0), "columns.mean_score: no answers add up to these numbers"),
    (_scores(1.001), "columns.mean_score: no answers add up to these numbers"),
    (_scores(-0.5), "columns.mean_score: no answers add up to these numbers"),
    (lambda run: run["cases"]["columns"].pop("pass_rate"), "columns.pass_rate: not a number for each case"),
    (lambda run: run["cases"].update(missing=[]), "cases.missing: not a count for each case"),
    (lambda run: run["cases"].update(labels=[{}]), "cases.labels: not one for each case"),
    (lambda run: run["cases"].update(labels=[{"x": 10**12}] * 80), "cases.labels: no answers add up to these numbers"),
    (lambda run: run["cases"].update(ids=["t0"] * 80), "cases.ids: a case is there twice"),
    (lambda run: run["cases"].update(measures=[]), "cases.measures: there are none"),
    (lambda run: run["cases"]["measures"][0].update(high=0.0), "columns.pass_rate: its scale has no width"),
    (lambda run: run.update(evaluator="../../x"), "evaluator: '../../x' is no name for one"),
]


@pytest.mark.parametrize(("damage", "said"), DAMAGES)
def test_what_cannot_be_a_run_is_refused_with_its_place(
    damage: Damage, said: str, approved: Path, command: Command
) -> None:
    """By an error that names file and key: no decision, and no traceback."""
    run = json.loads(approved.read_bytes())
    damage(run)
    approved.write_text(json.dumps(run))
    done = command("gate", "worse", *GATE)
    assert (done.code, done.stdout) == (3, "")
    assert f"evalq: {approved} does not hold a run's cases: " in done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_baseline_of_fewer_measures_is_compared_by_those_it_has(approved: Path, command: Command) -> None:
    """As one by an older evaluator is: what it lacks is inconclusive."""
    run = json.loads(approved.read_bytes())
    run["cases"]["measures"] = [each for each in run["cases"]["measures"] if each["name"] != "pass_rate"]
    del run["cases"]["columns"]["pass_rate"]
    approved.write_text(json.dumps(run))
    done = command("gate", "worse", *GATE)
    assert (done.code, json.loads(done.stdout)["decided"]) == (4, "INCONCLUSIVE"), done.stderr


@pytest.mark.parametrize("name", ["../../../escaped", "a/b", "x\0y", "\x1b[31m", "n" * 300])
def test_a_run_s_name_is_no_path(name: str, approved: Path, here: Path, command: Command) -> None:
    """Nothing is written for it."""
    (here / "given.json").write_text(json.dumps({**json.loads(approved.read_bytes()), "name": name}))
    before = sorted(here.parent.rglob("*"))
    done = command("baseline", "set", "other", "given.json")
    assert (done.code, "name: " in done.stderr) == (3, True), done.stderr
    assert sorted(here.parent.rglob("*")) == before


@pytest.mark.parametrize("what", ["pipe", "device"])
def test_a_baseline_is_a_plain_file(what: str, approved: Path, command: Command) -> None:
    """A gate neither waits for a pipe nor reads a device to its end."""
    approved.unlink()
    if what == "pipe":
        os.mkfifo(approved)
    else:
        approved.symlink_to("/dev/zero")
    done = command("gate", "worse", *GATE)
    assert (done.code, "not a plain file" in done.stderr) == (3, True), done.stderr


def test_no_file_stands_in_for_what_was_approved(approved: Path, here: Path, command: Command) -> None:
    """One that is called as the baseline; by a path it is meant, and is no approved one."""
    assert command("gate", "worse", *GATE).code == 1
    cases = json.loads((here / "worse" / "cases.json").read_bytes())
    (here / "main").write_text(json.dumps({**cases, "run": "another"}))
    done = command("gate", "worse", *GATE)
    assert (done.code, json.loads(done.stdout)["look"]["number"]) == (1, 1), done.stderr
    done = command("gate", "worse", *GATE, "--baseline", "./main")
    assert (done.code, json.loads(done.stdout)["look"]) == (0, None), done.stderr


@pytest.mark.parametrize("count", ['{"count": -1}', '{"count": 0, "candidates": {"x": {"looks": {"y": [0, 0]}}}}'])
def test_a_count_that_nobody_counted_is_damaged(count: str, approved: Path, here: Path, command: Command) -> None:
    """No look has a number below one."""
    assert command("gate", "worse", *GATE).code == 1
    (path,) = (here / "evalq-baselines" / ".looks").glob("*.json")
    path.write_text(count)
    done = command("gate", "worse", *GATE)
    assert (done.code, "is damaged" in done.stderr) == (3, True), done.stderr


def test_a_policy_asks_for_what_can_be_counted(approved: Path, here: Path, command: Command) -> None:
    """A share that no float holds is refused where it stands."""
    share = f"{{min_passes: 1, of: {'9' * 400}}}"
    (here / "policy.yaml").write_text(f"gates: [{{metric: verification.pass_rate, per_case: {share}}}]")
    done = command("gate", "worse", *GATE)
    assert (done.code, "gates.0.per_case.of" in done.stderr) == (2, True), done.stderr
