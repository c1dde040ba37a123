"""A model that its provider replaces under one name: the report, compare, the gate and the history say so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.server import Agent, running_agent
from tests.integration.harness import evalq

OLD, NEW = ({"model": "chat-2026", "system_fingerprint": name} for name in ("fp_old", "fp_new"))
CHECKS = ("checks", "cases.json", "--target", "chat", "--targets", "targets.yaml", "--quiet")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Agent]:
    """A server, cases that always pass, and the target ``chat``."""
    with running_agent() as (agent, url):
        agent.answer = lambda prompt: f"You asked: {prompt}"
        cases = [{"id": f"c{n}", "input": f"question {n}", "checks": [{"contains": "question"}]} for n in range(6)]
        (tmp_path / "cases.json").write_text(json.dumps({"cases": cases}))
        entry = {"kind": "openai", "base_url": url, "model": "chat"}
        (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"chat": entry}}))
        yield agent


def test_a_replaced_model_is_named_with_both_fingerprints(service: Agent, tmp_path: Path) -> None:
    for name, served in (("a", OLD), ("b", OLD), ("c", NEW), ("d", NEW)):
        service.served = served
        assert evalq(*CHECKS, "--out", f"evalq-runs/{name}", cwd=tmp_path).returncode == 0
    info = json.loads((tmp_path / "evalq-runs/c/run.json").read_bytes())
    assert info["calls"]["served"] == {"chat-2026 (fp_new)": 6}
    line = json.loads((tmp_path / "evalq-runs/c/outputs.jsonl").read_text().splitlines()[0])
    assert line["attempts"][0]["served"] == {"model": "chat-2026", "fingerprint": "fp_new"}
    assert "Served by" in (page := (tmp_path / "evalq-runs/c/report.html").read_text())
    assert "chat-2026 (fp_new)" in page

    sentence = "Another model was served: chat-2026 (fp_new) now, chat-2026 (fp_old) before."
    compared = evalq("compare", "evalq-runs/b", "evalq-runs/c", cwd=tmp_path).stdout
    assert sentence in compared.replace("\\", "")
    assert compared.index("Another model") < compared.index("the same") if "the same" in compared else True
    assert "Another model" not in evalq("compare", "evalq-runs/a", "evalq-runs/b", cwd=tmp_path).stdout

    (tmp_path / "policy.yaml").write_text("gates: [{metric: checks.pass_rate, max_drop: 0.5}]\n")
    gated = evalq("gate", "evalq-runs/c", "--baseline", "evalq-runs/b", "--policy", "policy.yaml", cwd=tmp_path)
    assert sentence in gated.stdout.replace("\\", ""), gated.stdout + gated.stderr

    (change,) = [line for line in evalq("history", cwd=tmp_path).stdout.splitlines() if "another model" in line]
    run = info["run"]
    assert change.strip() == f"Since run {run}: a{sentence[1:]}"
    # A change of long ago explains a drift of today: it is named however few runs are shown.
    assert change in evalq("history", "--runs", "1", cwd=tmp_path).stdout.splitlines()
    (suite,) = json.loads(evalq("history", "--runs", "0", "--json", cwd=tmp_path).stdout)
    assert (suite["runs"], suite["replaced"]) == ([], [{"run": run, "sentence": sentence}])


def test_nothing_is_said_where_no_model_is_named(service: Agent, tmp_path: Path) -> None:
    """Of two runs one names none: that is no replacement."""
    for name, served in (("a", {}), ("b", OLD)):
        service.served = served
        assert evalq(*CHECKS, "--out", f"evalq-runs/{name}", cwd=tmp_path).returncode == 0
    assert "served" not in json.loads((tmp_path / "evalq-runs/a/run.json").read_bytes())["calls"]
    assert "Another model" not in evalq("compare", "evalq-runs/a", "evalq-runs/b", cwd=tmp_path).stdout
    assert "another model" not in evalq("history", cwd=tmp_path).stdout
