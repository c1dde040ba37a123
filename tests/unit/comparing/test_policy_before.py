"""A policy's faults are found before the first call: with file, line and key, and the numbers that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.comparing.conftest import Command

SUITE = """suite: demo
runs:
  - {{evaluator: checks, cases: cases.yaml, target: agent, repeat: 2}}
policy:
  gates:
    - {{metric: {gate}}}
baseline: main
"""
FAULTS = {
    "checks.pas_rate, max_drop: 0.05": ("metric", "there are: by_case, by_check"),
    "chekcs.pass_rate, min: 0.8": ("metric", "chekcs is no single run of this suite; there are: checks"),
    "pass_rate, min: 0.8": ("metric", "such as checks.pass_rate"),
    "checks.pass_rate, max_drop: 5": ("max_drop", "5 points are 0.05"),
    "checks.pass_rate, min: 80": ("min", "80 % are 0.8"),
    "checks.pass_rate, equals: 7": ("equals", "no run could pass; 7 % are 0.07"),
    "checks.pass_rate, min: .9, max: .8": ("", "min is over max, so no run could pass"),
    "checks.pass_rate, max_rise: 0.1": ("max_rise", "use max_drop"),
    "checks.pass_rate, max_dorp: 0.1": ("max_dorp", "known here: equals, max, max_drop"),
    "checks.usage.each.seconds.p95, max: 1": ("metric", "there are: usage.outputs, usage.errors"),
    "checks.usage.seconds.p95, max: -1": ("max", "no time, cost or count is below 0"),
    "checks.usage.seconds.p95, max_drop: 0": ("max_drop", "a change of 0 can never be excluded"),
}


@pytest.mark.parametrize("gate", FAULTS)
def test_a_faulty_demand_costs_no_call(here: Path, command: Command, gate: str) -> None:
    """The targets file is faulty, too: it would be the error if anything were called."""
    Path("cases.yaml").write_text("cases: [{id: a, input: q, checks: [is-json]}]\n")
    Path("targets.yaml").write_text("targets: {agent: {kind: none}}\n")
    Path("suite.yaml").write_text(SUITE.format(gate=gate))
    done = command("run", "suite.yaml", "--targets", "targets.yaml", "--out", "results")
    key, said = FAULTS[gate]
    place = "suite.yaml:6: policy.gates.0" + (f".{key}" if key else "")
    assert done.code == 2
    assert f"{place}: " in done.stderr
    assert said in done.stderr
    assert not Path("results").exists()


def test_a_gate_over_finished_runs_says_where_too(here: Path, command: Command) -> None:
    """By the policy's own file."""
    Path("cases.yaml").write_text("cases: [{id: a, checks: [is-json]}]\n")
    Path("o.jsonl").write_text('{"case": "a", "output": "{}"}\n')
    assert command("checks", "cases.yaml", "--outputs", "o.jsonl", "--inline", "-q", "--out", "run").code == 0
    Path("policy.yaml").write_text(
        "gates:\n  - {metric: checks.pass_rate, min: 0.5}\n  - {metric: checks.no, min: 1}\n"
    )
    done = command("gate", "run", "--policy", "policy.yaml")
    assert done.code == 2
    assert "policy.yaml:3: gates.1.metric: checks.no: the results have no 'no'" in done.stderr


ELSEWHERE = ("command:./evil.sh", "python:os:system", "http://127.0.0.1:9/x", "openai:gpt-4o", "ollama:llama3")


@pytest.mark.parametrize("name", ELSEWHERE)
@pytest.mark.parametrize("key", ["target", "matrix", "judge"])
def test_a_suite_names_no_program_and_no_host(here: Path, command: Command, name: str, key: str) -> None:
    """A pull request can change it: only targets of the user's file are called, whatever the suite says."""
    Path("evil.sh").write_text("#!/bin/sh\ntouch done\n")
    Path("evil.sh").chmod(0o755)
    checks = "{rubric: good}" if key == "judge" else "is-json"
    Path("cases.yaml").write_text(f"cases: [{{id: a, input: q, checks: [{checks}]}}]\n")
    Path("o.jsonl").write_text('{"case": "a", "output": "{}"}\n')
    run = {
        "target": f"target: '{name}'",
        "matrix": f"matrix: {{target: {{one: '{name}', two: safe}}}}",
        "judge": f"outputs: [o.jsonl], judge: '{name}'",
    }[key]
    Path("suite.yaml").write_text(f"runs:\n  - {{evaluator: checks, cases: cases.yaml, {run}}}\n")
    Path("targets.yaml").write_text("targets: {safe: {kind: command, argv: ['true']}}\n")
    for named in ((), ("--targets", "targets.yaml")):
        done = command("run", "suite.yaml", *named, "--out", "results", "--no-progress")
        assert done.code == 2, done
        assert f"suite.yaml:2: runs.0.{'matrix.target.one' if key == 'matrix' else key}: a suite names" in done.stderr
    assert not Path("done").exists()


@pytest.mark.parametrize(
    "keys", ["targets: {x: {kind: command, argv: [sh]}}", "targets: other.yaml", "broker: redis://h"]
)
def test_a_suite_has_no_key_for_targets_or_servers(here: Path, command: Command, keys: str) -> None:
    """Neither inline nor by file, at the top and in a run."""
    Path("cases.yaml").write_text("cases: [{id: a, input: q, checks: [is-json]}]\n")
    for text in (
        f"{keys}\nruns: [{{evaluator: checks, cases: cases.yaml, target: x}}]\n",
        f"runs:\n  - {keys}\n    evaluator: checks\n    cases: cases.yaml\n    target: x\n",
    ):
        Path("suite.yaml").write_text(text)
        done = command("run", "suite.yaml", "--out", "results")
        assert (done.code, "unknown key" in done.stderr) == (2, True), done
