"""Collapse of a live agent's free text: cases end when it is decided, a replay gives the same bytes, a gate blocks."""

from __future__ import annotations

import json
from pathlib import Path

from tests.agents.server import running_agent
from tests.integration.harness import evalq

CASES = """
defaults: {checks: [{min-length: 1}], diversity: text}
cases:
  - {id: greeting, input: Say hello., tags: [short]}
  - {id: name, input: Think of a name., tags: [short]}
"""
POLICY = "gates: [{metric: checks.pass_rate, min: 0.5}]\ncollapse: none\n"
_NAMES = ("Ada", "Ben", "Cem", "Dora", "Eve", "Finn")


def test_a_live_agent_collapses_and_a_gate_sees_it(tmp_path: Path) -> None:
    """Over HTTP: what is one greeting in several spellings ends early, and so do names that differ."""
    asked: dict[str, int] = {}

    def answer(prompt: str) -> str:
        number = asked[prompt] = asked.get(prompt, -1) + 1
        return ("Hello!", "hello", "**Hello**.")[number % 3] if "hello" in prompt else _NAMES[number % 6]

    with running_agent() as (agent, url):
        agent.answer = answer
        target = {"kind": "openai", "base_url": url, "model": "m", "output": "text", "requests_per_minute": 6000}
        (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"chat": {**target, "max_concurrency": 2}}}))
        (tmp_path / "cases.yaml").write_text(CASES)
        (tmp_path / "policy.yaml").write_text(POLICY)
        sweep = ("--target", "chat", "--targets", "targets.yaml", "--repeat", "100", "--stop", "when-decided")
        done = evalq("checks", "cases.yaml", *sweep, "--format", "markdown", "--out", "live", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Collapse nowhere: fails (greeting)" in done.stdout
    report = json.loads((tmp_path / "live" / "report.json").read_text())
    entries = {entry["case"]: entry for entry in report["results"]["diversity"]["by_case"]}
    assert {name: entry["verdict"] for name, entry in entries.items()} == {"greeting": "collapsed", "name": "diverse"}
    assert report["results"]["stopping"]["decided"] == 2
    assert sum(asked.values()) < 150
    replay = ("--outputs", "live/outputs.jsonl", "--inline", "--format", "none", "--out", "replay")
    assert evalq("checks", "cases.yaml", *replay, cwd=tmp_path).returncode == 0
    for name in ("report.json", "records.jsonl"):
        assert (tmp_path / "live" / name).read_bytes() == (tmp_path / "replay" / name).read_bytes()
    gated = evalq("gate", "live", "--policy", "policy.yaml", cwd=tmp_path)
    assert gated.returncode != 0
    assert "no collapsed case" in gated.stdout
    assert "greeting" in gated.stdout
