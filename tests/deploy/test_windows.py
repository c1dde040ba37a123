"""What needs no fleet works without what Windows lacks; what needs one says so. The rest is for a real Windows."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from evalq.evalcore.files import lock_file, unlock_file
from tests.agents.server import running_agent

CASES = """
cases:
  - {id: greet, input: hi, checks: [{contains: hello}]}
  - {id: part, input: bye, checks: [{contains: bye}]}
"""
OUTPUTS = [{"case": "greet", "output": "hello hi"}, {"case": "part", "output": "so long"}]
PROMPTFOO = "prompts: [hi]\nproviders: [openai:gpt-4o]\ntests: [{assert: [{type: contains, value: a}]}]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Cases, recorded outputs, an agent, and a configuration of another tool."""
    (tmp_path / "cases.yaml").write_text(CASES)
    (tmp_path / "outputs.jsonl").write_text("".join(json.dumps(each) + "\n" for each in OUTPUTS))
    (tmp_path / "agent.py").write_text('def answer(call):\n    return "hello " + call["prompt"]\n')
    (tmp_path / "policy.yaml").write_text("gates: [{metric: checks.pass_rate, max_drop: 0.1}]\n")
    (tmp_path / "promptfooconfig.yaml").write_text(PROMPTFOO)
    return tmp_path


def _run(folder: Path, *commands: str) -> list[tuple[int, str]]:
    """(exit code, what it printed) of each command, one after the other in one process."""
    words = json.dumps([command.split() for command in commands])
    done = subprocess.run(
        [sys.executable, "-m", "tests.deploy.as_on_windows", words],
        cwd=folder,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    parts = done.stdout.split("\n= ")
    ended = [(int(after.splitlines()[0]), before) for before, after in pairwise(parts)]
    assert len(ended) == len(commands), done.stdout
    assert "an error in evalq" not in done.stdout, done.stdout
    return ended


WORKS = (
    "checks cases.yaml --outputs outputs.jsonl --inline --out base",
    "checks cases.yaml --outputs outputs.jsonl --out cand",
    "compare base cand",
    "baseline set main base",
    "gate cand --policy policy.yaml --baseline main",
    "report base -o rows.csv -o report.html",
    "list",
    "import promptfoo promptfooconfig.yaml",
    "status base",
    "doctor",
)


def test_what_needs_no_fleet_works(folder: Path) -> None:
    """Evaluate, call a small sweep, compare, gate, report, list, import; without --inline, too."""
    with running_agent() as (agent, address):
        agent.answer = lambda prompt: f"hello {prompt}"
        (folder / "targets.yaml").write_text(f"targets: {{agent: {{kind: openai, base_url: '{address}', model: m}}}}")
        ended = _run(folder, *WORKS, "checks cases.yaml --target agent --targets targets.yaml --out sweep")
        assert len(agent.requests) == 2
    codes = [code for code, _ in ended]
    assert codes == [0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0], "".join(printed for _, printed in ended)
    assert "this system runs no workers and no server" in ended[9][1]
    assert "2 of 2 outputs passed" in ended[10][1]
    assert (folder / "base" / "report.json").read_bytes() == (folder / "cand" / "report.json").read_bytes()
    assert not (folder / "base" / "run.lock").exists()


def test_what_needs_one_says_where_it_runs(folder: Path) -> None:
    """A worker, the demo, workers of a command's own, and targets that are programs."""
    ended = _run(
        folder,
        "worker --broker redis://127.0.0.1:9",
        "demo",
        "checks cases.yaml --outputs outputs.jsonl --workers 2",
        "checks cases.yaml --target python:agent:answer",
        "checks cases.yaml --target command:cat",
    )
    for code, printed in ended:
        assert (code, "need Linux or macOS: " in printed) == (2, True), printed
    assert not (folder / "evalq-demo").exists()


def test_a_lock_is_held_by_one_until_it_is_released(tmp_path: Path) -> None:
    """By this system's own means; the run above uses the other ones."""
    with (tmp_path / "lock").open("wb") as one, (tmp_path / "lock").open("wb") as other:
        lock_file(one)
        with pytest.raises(BlockingIOError):
            lock_file(other)
        with pytest.raises(BlockingIOError):
            lock_file(other, shared=True)
        unlock_file(one)
        lock_file(one, shared=True)
        lock_file(other, shared=True)
        with pytest.raises(BlockingIOError):
            lock_file(one)
