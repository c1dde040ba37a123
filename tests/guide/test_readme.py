"""README and the first page behind it, followed to the letter."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest

import evalq
from evalq.evalcore.evaluators.planagent.sample import write_rows
from evalq.producer.cli import main
from tests.integration.harness import evalq as command

TOP = Path(__file__).parents[2]
README = TOP / "README.md"
FIRST_RUN = TOP / "docs" / "first-run.md"
PYTHON = TOP / "docs" / "reference" / "python.md"


def _blocks(page: Path, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


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
    (session,) = _blocks(FIRST_RUN, "python")
    exec(session, names)  # noqa: S102 - the page's own lines are the test
    assert 0 <= names["run"].report["results"]["set"]["intent"] <= 5
    assert len(names["rows"]) == 200
    assert "evalq_planagent_intent" in set(names["quality"]["metric"])


class Total(evalq.State):
    """The Total of the page's evaluator: a count and a sum."""

    count: int = 0
    sum: int = 0

    def merge(self, later: Total) -> None:
        """Both add up."""
        self.count += later.count
        self.sum += later.sum


def test_ten_lines_make_an_evaluator(tmp_path: Path) -> None:
    """The smallest evaluator of the page on Python, as it stands there, keeps the whole contract."""
    names: dict[str, Any] = {"Total": Total}
    exec(textwrap.dedent(_blocks(PYTHON, "python")[-1]), names)  # noqa: S102 - as above
    evaluator = names["Lengths"]()
    path = tmp_path / "answers.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode({"answer": "x" * n}) + b"\n" for n in range(40)))
    evalq.check_evaluator(evaluator, [path])
    sizes = [len(line) for line in path.read_bytes().splitlines()]
    assert evalq.evaluate(evaluator, path).report["results"] == {"mean": sum(sizes) / len(sizes)}


def test_the_laptop_job_is_one_command(tmp_path: Path) -> None:
    """`evalq planagent results/plan_agent_*.csv` without a server gives the files that the page names."""
    (tmp_path / "results").mkdir()
    _rows(tmp_path).rename(tmp_path / "results" / "plan_agent_1.csv")
    done = command("planagent", "results/plan_agent_*.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "evalq-runs").iterdir()
    named = re.findall(r"`([a-z]+\.(?:json|yaml|md|html|jsonl))`", FIRST_RUN.read_text())
    assert {path.name for path in folder.iterdir()} <= set(named)


_PROMPTED = """\
from pathlib import Path


def answer(call):
    prompt = Path("prompt.md").read_text()
    number = int(call["case"].removeprefix("q"))
    knows = number != 20 if "date" in prompt else (number + call["repeat"]) % 4
    return "On Monday, by card." if knows else "Please wait."
"""


def _run(block: str, *, edit: tuple[str, str] = ("", "")) -> list[int]:
    """The exit codes of a block's commands; its comment that says to change a file does so."""
    codes = []
    for line in block.splitlines():
        if line == f"# change {edit[0]}":
            Path(edit[0]).write_text(edit[1])
        elif line.startswith("evalq "):
            codes.append(main(shlex.split(line, comments=True)[1:]) or 0)
    return codes


@pytest.mark.parametrize(("prompt", "verdict", "code"), [("Be short.", "worse", 1), ("Name the date.", "the same", 0)])
def test_the_page_leads_to_a_verdict_and_a_gate(
    prompt: str, verdict: str, code: int, tmp_path: Path, monkeypatch: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """README's questions, twenty of them, and its commands as they stand: the worse prompt is worse, and NO-GO."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVALQ_BROKER", raising=False)
    (questions,), (policy,), (printed,) = (_blocks(README, kind) for kind in ("csv", "yaml", "text"))
    head, *rows = questions.splitlines()
    Path("questions.csv").write_text("\n".join([head, *rows * 10]) + "\n")
    agent = {"kind": "python", "function": "agents:answer"}
    Path("targets.yaml").write_bytes(msgspec.json.encode({"targets": {"agent": agent}}))
    Path("agents.py").write_text(_PROMPTED)
    Path("prompt.md").write_text("Name the date, please.")
    Path("policy.yaml").write_text(policy)
    start, compare, gate, _ = _blocks(README, "sh")
    assert _run(start) == [0]
    assert "kept targets.yaml" in capfd.readouterr().out
    assert _run(compare, edit=("prompt.md", prompt)) == [0, 0, 0]
    shown = capfd.readouterr().out.replace("\\_", "_")  # a terminal shows no escapes
    assert (printed in shown) == (verdict == "worse")
    assert f"## pass_rate: {verdict}" in shown
    assert _run(gate) == [0, code]


def test_the_first_page_is_short() -> None:
    """At most 500 words, code and links included; twenty cases, `compare` and a verdict come before the first link."""
    text = README.read_text(encoding="utf-8")
    assert len(text.split()) <= 500
    first_screen = text.partition("](")[0]
    assert first_screen.index("twenty") < first_screen.index("evalq compare") < first_screen.index("evalq gate")


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
    """The page's cases.yaml, asked of an agent and a judge of one's own."""
    (cases,) = [block for block in _blocks(FIRST_RUN, "yaml") if block.startswith("cases:")]
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
