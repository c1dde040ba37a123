"""A suite with a policy: it ends as its gate decides, and never with a GO that nobody computed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.comparing.conftest import BAD, GOOD, Command, Ended

DROP = {"metric": "verification.pass_rate", "max_drop": 0.05}


def transcripts(path: Path, passes: Sequence[bool]) -> str:
    lines = [json.dumps({"id": f"t{n}", "actual_output": GOOD if ok else BAD}) for n, ok in enumerate(passes)]
    path.write_text("\n".join(lines) + "\n")
    return path.name


def suite(here: Path, runs: list[dict[str, Any]], **keys: Any) -> None:
    (here / "evalq.yaml").write_text(yaml.safe_dump({"runs": runs, **keys}))


@pytest.fixture
def run(command: Command) -> Command:
    """Runs the suite in this process."""
    return lambda *args: command("run", "evalq.yaml", "--inline", "-q", "--format", "json", *args)


def decided(done: Ended) -> str:
    return str(json.loads(done.stdout)["decision"]["decided"])


@pytest.fixture
def approved(here: Path, run: Command, command: Command) -> Path:
    """A folder with a baseline "main" of eighty transcripts that comply."""
    transcripts(here / "t.jsonl", [True] * 80)
    suite(here, [{"evaluator": "verification", "inputs": ["t.jsonl"]}])
    assert run("--out", "base").code == 0
    done = command("baseline", "set", "main", "base/verification")
    assert done.code == 0, done.stderr
    return here


@pytest.mark.parametrize(
    ("passes", "code", "word"),
    [([True] * 80, 0, "GO"), ([False] * 20 + [True] * 60, 1, "NO-GO"), ([False] * 3 + [True] * 77, 4, "INCONCLUSIVE")],
)
def test_the_command_ends_as_the_gate_decides(
    approved: Path, run: Command, passes: list[bool], code: int, word: str
) -> None:
    """GO 0, NO-GO 1, INCONCLUSIVE 4; the decision stands in the JSON beside the reports."""
    transcripts(approved / "t.jsonl", passes)
    suite(
        approved,
        [{"evaluator": "verification", "inputs": ["t.jsonl"]}],
        policy={"gates": [DROP], "deterministic": True},
        baseline="main",
    )
    done = run()
    assert (done.code, decided(done)) == (code, word), done.stderr
    allowed = run("--allow-inconclusive")
    assert allowed.code == (0 if word == "INCONCLUSIVE" else code)


def test_a_policy_in_a_file_of_its_own_counts_from_the_suite(approved: Path, run: Command) -> None:
    """A path in a suite is seen from the suite's folder."""
    (approved / "ci").mkdir()
    (approved / "ci" / "gate.yaml").write_text(yaml.safe_dump({"gates": [DROP], "deterministic": True}))
    suite(approved, [{"evaluator": "verification", "inputs": ["t.jsonl"]}], policy="ci/gate.yaml")
    assert run("--baseline", "main").code == 0


@pytest.mark.parametrize("out", ["", "out", "my out"])
def test_the_first_run_of_all_is_inconclusive_and_says_how_to_approve_it(
    here: Path, run: Command, command: Command, out: str
) -> None:
    """Nothing is approved yet: no GO, no error before the runs, and the command that approves them, whatever --out."""
    transcripts(here / "t.jsonl", [True] * 80)
    suite(
        here,
        [{"evaluator": "verification", "inputs": ["t.jsonl"]}],
        policy={"gates": [DROP], "deterministic": True},
        baseline="main",
    )
    more = ["--out", out] if out else []
    done = run(*more)
    assert (done.code, decided(done)) == (4, "INCONCLUSIVE")
    said = json.loads(done.stdout)["decision"]["checks"][0]["reason"].partition("evalq ")[2]
    assert said.startswith("baseline set main " + (shlex.quote(f"{out}/verification") if out else "verification-"))
    approved = command(*shlex.split(said))
    assert approved.code == 0, approved.stderr


def test_runs_of_one_evaluator_are_distinguished_by_their_names(approved: Path, run: Command, command: Command) -> None:
    """A policy names each; a baseline keeps both."""
    transcripts(approved / "new.jsonl", [False] * 40 + [True] * 40)
    runs = [
        {"evaluator": "verification", "inputs": ["t.jsonl"], "name": "old-agent"},
        {"evaluator": "verification", "inputs": ["new.jsonl"], "name": "new-agent"},
    ]
    rate = "pass_rate"
    gates = [{"metric": f"old-agent.{rate}", "min": 0.9}, {"metric": f"new-agent.{rate}", "min": 0.9}]
    suite(approved, runs, policy={"gates": gates, "deterministic": True})
    done = run("--out", "two")
    checks = json.loads(done.stdout)["decision"]["checks"]
    assert [check["decided"] for check in checks] == ["GO", "NO-GO"]
    two = ["two/old-agent", "two/new-agent"]
    assert command("baseline", "set", "pair", *two).code == 0
    gates = [{"metric": f"{name}.{rate}", "max_drop": 0.05} for name in ("old-agent", "new-agent")]
    suite(approved, runs, policy={"gates": gates, "deterministic": True}, baseline="pair")
    done = run()
    assert (done.code, decided(done)) == (0, "GO")  # each beside its own: neither changed


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"policy": {"gates": [{"metric": "vs.pass_rate", "min": 0.5}]}}, "evalq.yaml:3: policy.gates.0.metric: vs is"),
        ({"policy": {"gates": [{"metric": "verification.pass_rate"}]}}, "policy.gates.0: one of min"),
        (
            {"policy": {"gates": [{"metric": "verification.passed.most", "min": 1}]}},
            "evalq.yaml:3: policy.gates.0.metric: verification.passed.most: the results have no 'most' there",
        ),
        (
            {"policy": {"gates": [{"metric": "verification.passrate", "min": 1}]}},
            "no 'passrate' there; there are: bands, components, failed, mean_score, pass_rate, passed, unsubstantiated",
        ),
        (
            {"policy": {"gates": [{"metric": "verification.usage.cost", "max": 1}]}},
            "usage is the time, cost and tokens of live calls",
        ),
        (
            {"policy": {"gates": [{"metric": "verification.mean_score", "per_case": {"min_passes": 1, "of": 2}}]}},
            "policy.gates.0.per_case: verification.mean_score: single cases pass or fail by pass_rate",
        ),
        (
            {"policy": {"gates": [DROP], "colapse": "none"}},
            "policy.colapse: unknown key (known here: as_recorded, collapse",
        ),
        (
            {"policy": {"gates": [{"metric": "verification.pass_rate", "max": 80}]}},
            "policy.gates.0.max: verification.pass_rate: max 80 is off the scale from 0 to 1",
        ),
        ({"policy": "gone.yaml"}, "gone.yaml: cannot be read"),
        ({"policy": {"gates": [DROP]}}, "is measured against a baseline, and none is named"),
        ({"baseline": "main"}, "baseline: goes with policy only"),
        ({"outputs": ["junit.xml"]}, "outputs: goes with policy only"),
    ],
)
def test_what_could_not_be_decided_is_said_before_anything_runs(
    here: Path, run: Command, keys: dict[str, Any], said: str
) -> None:
    """With the file, the line and the key; nothing is evaluated."""
    transcripts(here / "t.jsonl", [True])
    suite(here, [{"evaluator": "verification", "inputs": ["t.jsonl"]}], **keys)
    done = run("--out", "out")
    assert done.code == 2
    assert not (here / "out").exists()
    assert said in done.stderr, done.stderr


def test_a_suite_with_a_failed_run_is_not_decided(approved: Path, run: Command) -> None:
    """The exit code is the failed run's, and there is no decision that a reader could take for one."""
    suite(
        approved,
        [{"evaluator": "verification", "inputs": ["t.jsonl"]}, {"evaluator": "planagent", "inputs": ["gone.csv"]}],
        policy={"gates": [DROP], "deterministic": True},
        baseline="main",
    )
    done = run()
    assert done.code == 2
    assert "decision" not in json.loads(done.stdout)


def test_a_suite_that_is_left_to_the_fleet_cannot_be_decided(approved: Path, command: Command) -> None:
    """Exit 0 of --detach would read as a GO."""
    suite(
        approved,
        [{"evaluator": "verification", "inputs": ["t.jsonl"]}],
        policy={"gates": [DROP], "deterministic": True},
        baseline="main",
    )
    done = command("run", "evalq.yaml", "--detach", "--broker", "redis://127.0.0.1:1/0")
    assert done.code == 2
    assert "waits for its runs" in done.stderr


def test_a_decision_can_be_left_to_later(approved: Path, run: Command, command: Command) -> None:
    """--no-gate evaluates, writes no decision and ends with 0, whatever the gate says then."""
    transcripts(approved / "t.jsonl", [False] * 20 + [True] * 60)
    runs = [{"evaluator": "verification", "inputs": ["t.jsonl"]}]
    suite(approved, runs, policy={"gates": [DROP], "deterministic": True}, baseline="main", outputs=["gate.json"])
    done = run("--no-gate", "--out", "later")
    assert done.code == 0, done.stderr
    assert "decision" not in json.loads(done.stdout)
    assert not (approved / "gate.json").exists()
    (approved / "policy.yaml").write_text(yaml.safe_dump({"gates": [DROP], "deterministic": True}))
    assert command("gate", "later/verification", "--policy", "policy.yaml", "--baseline", "main").code == 1


def test_a_variable_for_gates_is_no_matter_of_a_suite_without_one(
    approved: Path, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EVALQ_BASELINE is set for a whole job; as an option it would have been meant for this very suite."""
    suite(approved, [{"evaluator": "verification", "inputs": ["t.jsonl"]}])
    monkeypatch.setenv("EVALQ_BASELINE", "main")
    assert run().code == 0
    refused = run("--baseline", "main")
    assert refused.code == 2
    assert "a suite that has a policy" in refused.stderr
    suite(
        approved,
        [{"evaluator": "verification", "inputs": ["t.jsonl"]}],
        policy={"gates": [DROP], "deterministic": True},
    )
    assert decided(run()) == "GO", "where there is a policy it names its baseline"


def test_paths_that_come_with_the_data_are_left_to_the_runs(here: Path, run: Command) -> None:
    """Labels make results of their own, and an evaluator that is yet to be asked of money says what that costs."""
    transcripts(here / "t.jsonl", [True] * 3)
    for metric in ("verification.labels.total", "verification.mean_score", "verification.bands.excellent"):
        suite(
            here,
            [{"evaluator": "verification", "inputs": ["t.jsonl"]}],
            policy={"gates": [{"metric": metric, "min": 0}]},
        )
        assert "key" not in run().stderr


@pytest.mark.parametrize(("more", "code"), [((), 4), (("--allow-inconclusive",), 0)])
def test_the_line_of_a_decision_has_the_code_that_the_command_ends_with(
    here: Path, command: Command, more: Sequence[str], code: int
) -> None:
    """It said 4 where what is open may pass, and the command ended with 0."""
    (here / "few.jsonl").write_text(json.dumps({"id": "t", "actual_output": GOOD}) + "\n")
    gates = [{"metric": "verification.pass_rate", "min": 0.9}]
    runs = [{"evaluator": "verification", "inputs": ["few.jsonl"]}]
    (here / "few.yaml").write_text(json.dumps({"runs": runs, "policy": {"gates": gates}}))
    done = command("run", "few.yaml", "--inline", "--json", *more)
    (decision,) = [line for line in map(json.loads, done.stdout.splitlines()) if line.get("event") == "decision"]
    assert (done.code, decision["decided"], decision["exit_code"]) == (code, "INCONCLUSIVE", code)


@pytest.mark.parametrize("where", ["suite", "run"])
@pytest.mark.parametrize("name", ["t.json", "folder/more.json", "link.json", "policy.json", "evalq.json"])
def test_a_suite_writes_over_nothing_that_it_reads(here: Path, command: Command, where: str, name: str) -> None:
    """Neither its runs' inputs, of a folder or by a link, nor its policy or itself, by whichever of its outputs."""
    (here / "folder").mkdir()
    rows = transcripts(here / "t.json", [True] * 5)
    transcripts(here / "folder" / "more.json", [True] * 5)
    (here / "link.json").symlink_to(here / rows)
    runs: list[dict[str, Any]] = [
        {"evaluator": "verification", "inputs": ["t.json"], "name": "one"},
        {"evaluator": "verification", "inputs": ["folder"], "name": "two"},
    ]
    keys: dict[str, Any] = {"policy": "policy.json"}
    if where == "suite":
        keys["outputs"] = [name]
    else:
        runs[0]["output"] = [name]
    policy = {"gates": [{"metric": "one.pass_rate", "min": 0.1}]}
    (here / "policy.json").write_text(json.dumps(policy))
    (here / "evalq.json").write_text(json.dumps({"runs": runs, **keys}))
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    done = command("run", "evalq.json", "--inline", "-q", "--out", "out")
    assert (done.code, "the command reads this file: name another" in done.stderr) == (2, True), done
    assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["evalq-baselines/main/verification.json", "evalq-baselines/new.json", "door/x.json"])
def test_a_suite_does_not_write_what_was_approved(approved: Path, run: Command, name: str) -> None:
    """Nor by a link: a pull request would approve itself."""
    (approved / "door").symlink_to(approved / "evalq-baselines")
    before = {path: path.read_bytes() for path in (approved / "evalq-baselines").rglob("*") if path.is_file()}
    runs = [{"evaluator": "verification", "inputs": ["t.jsonl"]}]
    suite(approved, runs, policy={"gates": [DROP], "deterministic": True}, baseline="main", outputs=[name])
    done = run()
    assert (done.code, "approved runs are kept in evalq-baselines" in done.stderr) == (2, True), done
    after = {path: path.read_bytes() for path in (approved / "evalq-baselines").rglob("*") if path.is_file()}
    assert after == before


@pytest.mark.parametrize("name", ["a b", "$(touch x)", "x; rm y"])
def test_what_is_to_be_typed_is_quoted(here: Path, run: Command, name: str) -> None:
    """Whatever a baseline is called: it may be anybody's word, and is copied into a shell."""
    transcripts(here / "t.jsonl", [True] * 5)
    suite(here, [{"evaluator": "verification", "inputs": ["t.jsonl"]}], policy={"gates": [DROP]}, baseline=name)
    done = run()
    reason = json.loads(done.stdout)["decision"]["checks"][0]["reason"]
    assert shlex.split(reason.partition("evalq baseline set ")[2])[0] == name
