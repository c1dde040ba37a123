"""Collapse of a live agent's free text: cases end when it is decided, a replay gives the same bytes, a gate blocks."""

from __future__ import annotations

import json
from pathlib import Path

from tests.agents.server import marker_in, running_agent
from tests.integration.harness import evalq
from tests.integration.midway import keep_pace

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
        keep_pace(agent, tmp_path / "live")
        target = {"kind": "openai", "base_url": url, "model": "m", "output": "text"}
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


EMBEDDED = """
defaults: {checks: [{min-length: 1}, {rubric: It is polite., judge: grader, weight: 0}]}
cases:
  - {id: same, input: Say it.}
  - {id: other, input: Say anything.}
  - {id: plain, input: Say it again., diversity: text}
"""
_SAYINGS = ("listen to the silent", "the silent, to listen!", "Silent listen to the", "to the silent listen")


def test_an_embedder_is_asked_once_for_each_text_and_replayed(tmp_path: Path) -> None:
    """Beside a judge, in the second stage: recorded, joined to the outputs, the same bytes from what was recorded."""
    asked: dict[str, int] = {}

    def answer(prompt: str) -> str:
        if "You judge an answer" in prompt:
            return json.dumps({"marker": marker_in(prompt), "reason": "fine", "pass": True})
        number = asked[prompt] = asked.get(prompt, -1) + 1
        return _SAYINGS[number % 4] if "Say it" in prompt else chr(97 + number % 5) * 9

    with running_agent() as (agent, url):
        agent.answer = answer
        chat = {"kind": "openai", "base_url": url, "model": "m", "output": "text"}
        grader = {**chat, "model": "j", "output": "json"}
        vectors = {"kind": "embeddings", "base_url": url, "model": "e", "price": {"prompt_per_million": 1}}
        targets = {"targets": {"chat": chat, "grader": grader, "vectors": vectors}}
        (tmp_path / "targets.yaml").write_text(json.dumps(targets))
        (tmp_path / "cases.yaml").write_text(EMBEDDED)
        sweep = ("checks", "cases.yaml", "--target", "chat", "--targets", "targets.yaml", "--repeat", "20", "--format",
                 "none")  # fmt: skip
        lacking = evalq(*sweep, "--diversity", "embedding", cwd=tmp_path)
        assert lacking.returncode == 2
        assert "--embedder NAME" in lacking.stderr
        early = evalq(
            *sweep, "--embedder", "vectors", "--diversity", "embedding", "--stop", "when-decided", cwd=tmp_path
        )
        assert "but only after all calls" in early.stderr
        assert not agent.requests
        done = evalq(*sweep, "--diversity", "embedding", "--embedder", "vectors", "--out", "live", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        sent = [request["body"]["input"] for request in agent.requests if request["path"].endswith("/embeddings")]
        assert len(sent) == len(set(sent)) == 4 + 5
        recorded = ("checks", "cases.yaml", "--outputs", "live/outputs.jsonl", "--embedder", "vectors", "--targets",
                    "targets.yaml", "--diversity", "embedding", "--format", "none", "--out", "later")  # fmt: skip
        assert evalq(*recorded, cwd=tmp_path).returncode == 0
    found = json.loads((tmp_path / "live" / "report.json").read_text())["results"]["diversity"]
    entries = {entry["case"]: entry for entry in found["by_case"]}
    assert entries["same"]["distinct"] == {"text": 4, "kinds": 1}
    assert (entries["same"]["verdict"], entries["other"]["verdict"]) == ("collapsed", "diverse")
    assert entries["plain"]["distinct"] == {"text": 4, "kinds": 4}
    assert [each["answers"] for each in entries["same"]["embedders"]] == [20]
    later = json.loads((tmp_path / "later" / "report.json").read_text())["results"]["diversity"]
    assert later["by_case"] == found["by_case"]
    replay = ("--outputs", "live/judged.jsonl", "--diversity", "embedding", "--inline", "--format", "none")
    assert evalq("checks", "cases.yaml", *replay, "--out", "replay", cwd=tmp_path).returncode == 0
    for name in ("report.json", "records.jsonl"):
        assert (tmp_path / "live" / name).read_bytes() == (tmp_path / "replay" / name).read_bytes()
