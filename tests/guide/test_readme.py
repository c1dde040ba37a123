"""The README's promises, followed to the letter."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import msgspec

import evalq
from evalq.evalcore.evaluators.planagent.sample import write_rows
from tests.integration.harness import evalq as command

TOP = Path(__file__).parents[2]
BLOCKS = dict(
    zip(
        ("session", "evaluator"),
        re.findall(r"```python\n(.*?)```", (TOP / "README.md").read_text(), re.DOTALL),
        strict=True,
    )
)


def _rows(folder: Path) -> Path:
    path = folder / "results.csv"
    with path.open("w", encoding="utf-8", newline="") as out:
        write_rows(out, 200, seed=3)
    return path


def test_the_python_session_runs_as_it_stands(tmp_path: Path, monkeypatch: Any) -> None:
    """The lines of "From Python" give an intent between 0 and 5, a row for each record, and metrics."""
    _rows(tmp_path)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(BLOCKS["session"], names)  # noqa: S102 - the README's own lines are the test
    assert 0 <= names["run"].report["results"]["set"]["intent"] <= 5
    assert len(names["rows"]) == 200
    assert "evalq_planagent_intent" in set(names["quality"]["metric"])


class Total(evalq.State):
    """The README's Total: a count and a sum."""

    count: int = 0
    sum: int = 0

    def merge(self, later: Total) -> None:
        """Both add up."""
        self.count += later.count
        self.sum += later.sum


def test_ten_lines_make_an_evaluator(tmp_path: Path) -> None:
    """The README's evaluator, as it stands there, keeps the whole contract."""
    names: dict[str, Any] = {"Total": Total}
    exec(textwrap.dedent(BLOCKS["evaluator"]), names)  # noqa: S102 - as above
    evaluator = names["Lengths"]()
    path = tmp_path / "answers.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode({"answer": "x" * n}) + b"\n" for n in range(40)))
    evalq.check_evaluator(evaluator, [path])
    sizes = [len(line) for line in path.read_bytes().splitlines()]
    assert evalq.evaluate(evaluator, path).report["results"] == {"mean": sum(sizes) / len(sizes)}


def test_the_laptop_job_is_one_command(tmp_path: Path) -> None:
    """`evalq planagent results/plan_agent_*.csv` without a server gives the files that the README names."""
    (tmp_path / "results").mkdir()
    _rows(tmp_path).rename(tmp_path / "results" / "plan_agent_1.csv")
    done = command("planagent", "results/plan_agent_*.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "evalq-runs").iterdir()
    named = re.findall(r"`([a-z]+\.(?:json|yaml|md|html|jsonl))`", (TOP / "README.md").read_text())
    assert {path.name for path in folder.iterdir()} <= set(named)


_AGENTS = """\
import re


def answer(call):
    return "It comes on Monday."


def judge(call):
    assert "Says when the parcel comes." in call["prompt"]
    marker = re.findall(r'"marker": "([0-9a-f]{16})"', call["prompt"])[-1]
    return {"marker": marker, "pass": "Monday" in call["prompt"]}
"""


def test_any_agent_is_held_to_the_cases_as_they_stand(tmp_path: Path) -> None:
    """The README's cases.yaml, asked of an agent and a judge of one's own."""
    (cases,) = re.findall(r"```yaml\n(cases:.*?)```", (TOP / "README.md").read_text(), re.DOTALL)
    (tmp_path / "cases.yaml").write_text(cases)
    (tmp_path / "agents.py").write_text(_AGENTS)
    local = {"kind": "python", "function": "agents:answer", "output": "text"}
    targets = {"local": local, "grader": {"kind": "python", "function": "agents:judge"}}
    (tmp_path / "targets.yaml").write_bytes(msgspec.json.encode({"targets": targets}))
    asked = ("--target", "local", "--judge", "grader", "--repeat", "4", "--targets", "targets.yaml", "--format", "json")
    done = command("checks", "cases.yaml", *asked, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    results = msgspec.json.decode(done.stdout)["results"]
    (grader,) = results["judges"]
    assert (results["outputs"]["passed"], grader["judge"], grader["votes"]["read"]) == (4, "grader", 12)
