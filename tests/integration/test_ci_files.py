"""What deploy/ci gives to forges: valid by their schemas, and its own steps, word for word, end as the gate decides."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from evalq.evalcore.evaluators.vs.sample import GOLDEN, sample_cases, write_outputs
from tests.deploy.programs import program, run
from tests.integration.harness import EVALQ, clean_environment
from tests.unit.comparing.conftest import BAD, GOOD

CI = Path(__file__).parents[2] / "deploy" / "ci"


def suite(folder: Path, passes: int) -> None:
    """Forty transcripts, so many of which comply, and a policy about them."""
    lines = [json.dumps({"id": f"t{n}", "actual_output": GOOD if n < passes else BAD}) for n in range(40)]
    (folder / "t.jsonl").write_text("\n".join(lines) + "\n")
    runs = [{"evaluator": "verification", "inputs": ["t.jsonl"]}]
    policy = {"gates": [{"metric": "verification.pass_rate", "min": 0.7}]}
    (folder / "evalq.yaml").write_text(yaml.safe_dump({"runs": runs, "policy": policy}))


def shell(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """As a runner's shell would, with evalq installed."""
    shim = folder / "bin" / "evalq"
    if not shim.exists():
        shim.parent.mkdir()
        shim.write_text(f'#!/bin/sh\nexec {" ".join(EVALQ)} "$@"\n')
        shim.chmod(0o755)
    variables = clean_environment(**environment)
    variables["PATH"] = f"{shim.parent}:{variables['PATH']}"
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("schema", "file"), [("github-actions", "gate/action.yml"), ("gitlab-ci", "gitlab/evalq.yml")])
def test_what_forges_read_is_valid(schema: str, file: str, tmp_path: Path) -> None:
    """By the forge's own schema, which refuses what is not."""
    check = [program("check-jsonschema"), "--builtin-schema", f"vendor.{schema}"]
    done = run(*check, CI / file)
    assert done.returncode == 0, done.stdout + done.stderr
    document = yaml.safe_load((CI / file).read_text())
    (tmp_path / "odd.yml").write_text(yaml.safe_dump({**document, "runs": 3, "job": {"script": {"a": 1}}}))
    assert run(*check, tmp_path / "odd.yml").returncode == 1


def test_the_scripts_have_no_findings() -> None:
    """The wrapper's, and those of the action's steps."""
    steps = yaml.safe_load((CI / "gate" / "action.yml").read_text())["runs"]["steps"]
    assert run(program("shellcheck"), CI / "run_vs_tests.sh").returncode == 0
    for step in steps:
        done = subprocess.run(
            [program("shellcheck"), "-s", "bash", "-"], input=step["run"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("passes", "code"), [(40, 0), (10, 1), (29, 4)])
def test_the_action_ends_as_the_gate_decides(tmp_path: Path, passes: int, code: int) -> None:
    """Its own step, with the defaults of its inputs: the summary and annotations are shown whatever was decided."""
    suite(tmp_path, passes)
    action = yaml.safe_load((CI / "gate" / "action.yml").read_text())
    (step,) = action["runs"]["steps"]
    given = {"SUITE": "suite", "RESULTS": "results"}
    given |= {f"EVALQ_{name.replace('-', '_').upper()}": name for name in ("baseline", "broker", "allow-inconclusive")}
    assert step["env"] == {name: f"${{{{ inputs.{key} }}}}" for name, key in given.items()}
    environment = {name: action["inputs"][key]["default"] for name, key in given.items()}
    done = shell(step["run"], tmp_path, GITHUB_SHA="0a1b", GITHUB_STEP_SUMMARY=str(tmp_path / "step.md"), **environment)
    assert done.returncode == code, done
    decided = {0: "GO", 1: "NO-GO", 4: "INCONCLUSIVE"}[code]
    assert (tmp_path / "step.md").read_text().startswith(f"# {decided}")
    assert done.stdout.partition(" ")[0] == {0: "", 1: "::error", 4: "::warning"}[code], done.stdout
    assert json.loads((tmp_path / "evalq-results" / "gate.json").read_text())["decided"] == decided


def test_the_action_shows_nothing_of_an_earlier_attempt(tmp_path: Path) -> None:
    """Where the suite file is wrong and nothing is written, what lies there of another commit is not shown as if."""
    suite(tmp_path, 40)
    with (tmp_path / "evalq.yaml").open("a") as stream:
        stream.write("polcy: {}\n")
    (tmp_path / "evalq-results").mkdir()
    (tmp_path / "evalq-results" / "summary.md").write_text("# GO\n")
    (tmp_path / "evalq-results" / "annotations.txt").write_text("")
    (step,) = yaml.safe_load((CI / "gate" / "action.yml").read_text())["runs"]["steps"]
    given = {"SUITE": "evalq.yaml", "RESULTS": "evalq-results", "GITHUB_STEP_SUMMARY": str(tmp_path / "step.md")}
    done = shell(step["run"], tmp_path, GITHUB_SHA="0a1b", **given)
    assert done.returncode == 2, done
    assert not (tmp_path / "step.md").exists()


def test_the_gitlab_job_writes_the_report_that_it_names(tmp_path: Path) -> None:
    """And its exit code for "cannot tell" is the one that it lets pass."""
    suite(tmp_path, 29)
    job = yaml.safe_load((CI / "gitlab" / "evalq.yml").read_text())[".evalq-gate"]
    done = shell("\n".join(job["script"]), tmp_path, CI_COMMIT_SHA="0a1b", **job["variables"])
    assert [done.returncode] == job["allow_failure"]["exit_codes"], done
    assert (tmp_path / job["artifacts"]["reports"]["junit"]).is_file()


@pytest.mark.parametrize(("words", "cases"), [(["--all"], 30), (["--level", "Full"], 15), (["--agent", "03"], 3)])
def test_the_agents_tests_run_by_their_script(tmp_path: Path, words: list[str], cases: int) -> None:
    """The forms of the specification, with JSON on standard output and nothing else."""
    with (tmp_path / "outputs.jsonl").open("wb") as stream:
        write_outputs(stream, sample_cases(), repeats=1, seed=1)
    (tmp_path / "golden.yaml").write_text(GOLDEN.read_text())
    done = shell(f'"{CI}/run_vs_tests.sh" {" ".join(words)} --format json --inline > results.json', tmp_path)
    assert done.returncode == 0, done
    assert json.loads((tmp_path / "results.json").read_text())["test_run"]["total_tests"] == cases
