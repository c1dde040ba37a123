"""The last line of a command: what to do next, with the names of the runs that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from evalq.producer.cli import main

CASES = "cases:\n" + "".join(f"- {{id: c{n}, input: Say yes {n}, checks: [{{contains: 'yes'}}]}}\n" for n in range(12))
POLICY = "gates: [{metric: checks.pass_rate, max_drop: 0.05}]\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with cases, a policy and recorded outputs: good ones, and ones that all failed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cases.yaml").write_text(CASES)
    (tmp_path / "policy.yaml").write_text(POLICY)
    for name, answer in (("good", {"output": "yes"}), ("again", {"output": "yes!"}), ("lost", {"error": "boom"})):
        lines = [json.dumps({"case": f"c{n}", "repeat": 0, **answer}) for n in range(12)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def evaluated(name: str) -> None:
    words = ["--outputs", f"{name}.jsonl", "--inline", "--out", f"evalq-runs/{name}", "--format", "none"]
    assert main(["checks", "cases.yaml", *words]) in (0, 3, 5)


def following(capsys: pytest.CaptureFixture[str]) -> str:
    """The last line of the last command."""
    return capsys.readouterr().err.splitlines()[-1]


def test_the_older_run_is_the_base(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the same cases, whichever run of other ones lies between; the first run has nothing before it."""
    evaluated("good")
    assert following(capsys).endswith("compare with a later run: evalq compare evalq-runs/good RUN")
    (here / "other.yaml").write_text(CASES.replace("id: c", "id: other"))
    (here / "other.jsonl").write_text((here / "good.jsonl").read_text().replace(': "c', ': "other'))
    assert main(["checks", "other.yaml", "--outputs", "other.jsonl", "--inline", "--format", "none"]) == 0
    assert "evalq-runs/good" not in following(capsys)
    evaluated("again")
    assert following(capsys).endswith("compare with the run before: evalq compare evalq-runs/good evalq-runs/again")


def test_a_run_without_a_verdict_is_mended_first(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On either side of a gate: more repeats would tell nothing of it, nor would a comparison."""
    evaluated("good")
    evaluated("lost")
    gate = ["gate", "--policy", "policy.yaml", "--baseline"]
    assert main([*gate, "evalq-runs/good", "evalq-runs/lost"]) in (1, 3, 4, 5)
    line = following(capsys)
    assert line.startswith("next: nothing in evalq-runs/lost has a verdict: see why (evalq view evalq-runs/lost), mend")
    assert "evaluate it again" in line
    assert main([*gate, "evalq-runs/lost", "evalq-runs/good"]) in (1, 3, 4, 5)
    assert re.search(
        r"next: evalq-runs/lost has no answer to these cases: gate against a run that has", following(capsys)
    )
