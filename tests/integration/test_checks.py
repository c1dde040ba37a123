"""Checks of a live agent: chats arrive as messages, cases stop when decided, and a replay gives the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agents.server import completion, running_agent
from tests.integration.harness import evalq, info, new_interpreters
from tests.integration.midway import keep_pace

AGENT = """
import time
from pathlib import Path

LOG, made = Path(__file__).with_name("live") / "calls.jsonl", 0

def recorded():
    return LOG.read_bytes().count(b'{"call":') if LOG.exists() else 0

def answer(asked):
    global made
    made += 1
    while made - recorded() > 4:  # whoever decides that it is enough has seen all others
        time.sleep(0.005)
    if "messages" in asked:
        return f"a chat of {len(asked['messages'])}"
    return "no" if asked["case"] == "broken" else "yes"
"""
CASES = """
defaults: {thresholds: {pass-rate: 0.5}}
cases:
  - {id: plain, input: Say yes., checks: [{equals: "yes"}, {max-latency: 60}]}
  - {id: chat, input: [{role: system, content: x}, {role: user, content: y}], checks: [{contains: chat of 2}]}
  - {id: broken, input: Say yes., checks: [{equals: "yes"}]}
  - {id: open, input: Say yes., checks: [{equals: "yes"}], thresholds: {pass-rate: 0.999}}
"""


def test_a_live_agent_is_checked_and_replayed(tmp_path: Path) -> None:
    """Decided cases are not called to the end, an undecided one is; the recorded outputs give the report again."""
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "cases.yaml").write_text(CASES)
    toy = {"kind": "python", "function": "agent:answer", "output": "text"}
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"toy": {**toy, "max_concurrency": 1}}}))
    options = ("--repeat", "60", "--stop", "when-decided", "--targets", "targets.yaml", "--format", "none")
    done = evalq("checks", "cases.yaml", "--target", "toy", *options, "--out", "live", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "live" / "report.json").read_text())
    cases = {entry["case"]: entry for entry in report["results"]["by_case"]}
    verdicts = {name: entry["thresholds"][0]["verdict"] for name, entry in cases.items()}
    assert verdicts == {"plain": "holds", "chat": "holds", "broken": "fails", "open": "inconclusive"}
    made = {name: sum(entry["outputs"].values()) for name, entry in cases.items()}
    assert made["open"] == 60
    assert max(made["plain"], made["chat"], made["broken"]) < 60
    assert report["results"]["stopping"]["decided"] == 3
    again = evalq(
        *("checks", "cases.yaml", "--outputs", "live/outputs.jsonl", "--inline", "--format", "none", "--out", "replay"),
        cwd=tmp_path,
    )
    assert again.returncode == 0, again.stderr
    for name in ("report.json", "records.jsonl"):
        assert (tmp_path / "live" / name).read_bytes() == (tmp_path / "replay" / name).read_bytes()


def test_answers_of_unknown_cost_spend_the_budget_too(tmp_path: Path) -> None:
    """Two of three cases report no tokens: their answers count at the mean of the others, and the user is warned."""
    silent = {key: value for key, value in completion("yes").items() if key != "usage"}
    asks: list[dict[str, Any]] = [{"do": "raw", "body": silent}] * 2
    asks.append({"do": "say", "content": "yes"})
    with running_agent() as (agent, url):
        cases = [{"id": f"c{n}", "input": json.dumps({**ask, "n": n}), "expected": "yes"} for n, ask in enumerate(asks)]
        (tmp_path / "cases.yaml").write_text(json.dumps({"cases": cases}))
        price = {"prompt_per_million": 1000, "completion_per_million": 3000}
        chat = {"kind": "openai", "base_url": url, "model": "m", "output": "text", "price": price}
        (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"chat": chat}}))
        options = ("--repeat", "50", "--max-cost", "1.2", "--targets", "targets.yaml", "--format", "none")
        done = evalq("checks", "cases.yaml", "--target", "chat", *options, "--out", "live", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert sum(agent.calls.values()) == 30  # of .04 each, though ten of them alone said so
    assert "warning: 'chat' reports no tokens for some answers" in done.stderr
    assert "the budget is spent: 30 of 150 calls" in done.stderr
    assert info(tmp_path / "live")["calls"]["cost"] == pytest.approx(1.2)


def test_workers_know_the_checks_that_their_settings_name(tmp_path: Path) -> None:
    """In the processes that call and in those that evaluate, of a live sweep; without the setting the name is none."""
    (tmp_path / "shop_checks.py").write_text("def shout(answer, value):\n    return answer.text.isupper()\n")
    (tmp_path / "agent.py").write_text("def answer(asked):\n    return 'YES' if asked['repeat'] else 'yes'\n")
    (tmp_path / "cases.yaml").write_text("cases: [{id: a, input: Say yes., checks: [{shout: true}]}]")
    toy = {"kind": "python", "function": "agent:answer", "output": "text"}
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"toy": toy}}))
    command = (
        "checks",
        "cases.yaml",
        "--target",
        "toy",
        "--targets",
        "targets.yaml",
        "--repeat",
        "4",
        "--workers",
        "1",
    )
    named = {"EVALQ_CHECKS": "shout=shop_checks:shout", "PYTHONPATH": str(tmp_path)}
    with new_interpreters():
        done = evalq(*command, "--format", "none", "--out", "live", cwd=tmp_path, **named)  # type: ignore[arg-type]  # no key is `seconds`
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "live" / "records.jsonl").read_text().splitlines()]
    assert sorted((line["repeat"], line["passed"]) for line in lines) == [(0, False), (1, True), (2, True), (3, True)]
    done = evalq(*command, "--out", "none", cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no check 'shout'" in done.stderr


def test_an_agent_is_asked_no_more_about_decided_cases(tmp_path: Path) -> None:
    """The agent's own count: a case that always passes, and one that never does, are paid for until that is certain."""
    with running_agent() as (agent, url):
        keep_pace(agent, tmp_path / "live")
        agent.answer = lambda prompt: "yes" if agent.calls[prompt] % 10 >= 3 or "clear" in prompt else "no"
        cases = [{"id": name, "input": f"Is {name} so?", "expected": "yes"} for name in ("clear", "close")]
        cases.append({"id": "wrong", "input": "Is wrong so?", "expected": "no such answer"})
        defaults = {"thresholds": {"pass-rate": 0.7}}
        (tmp_path / "cases.yaml").write_text(json.dumps({"defaults": defaults, "cases": cases}))
        chat = {"kind": "openai", "base_url": url, "model": "m", "output": "text", "max_concurrency": 2}
        (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"chat": chat}}))
        options = ("--repeat", "60", "--stop", "when-decided", "--targets", "targets.yaml", "--format", "none")
        done = evalq("checks", "cases.yaml", "--target", "chat", *options, "--out", "live", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        calls = {case["id"]: agent.calls[case["input"]] for case in cases}
    report = json.loads((tmp_path / "live" / "report.json").read_text())
    found = {entry["case"]: entry for entry in report["results"]["by_case"]}
    verdicts = {name: entry["thresholds"][0]["verdict"] for name, entry in found.items()}
    assert verdicts == {"clear": "holds", "close": "inconclusive", "wrong": "fails"}
    assert calls == {name: sum(entry["outputs"].values()) for name, entry in found.items()}
    assert calls["close"] == 60
    assert calls["wrong"] < calls["clear"] < 60
