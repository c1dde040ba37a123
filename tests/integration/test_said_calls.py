"""What is known of tool calls: a model with tools that makes none made none; an agent may not say which it made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.providers import Says, completion
from tests.agents.server import Agent, running_agent
from tests.integration.harness import evalq
from tests.integration.test_tools import CHECKS, DEFINITION, case, lines

AGENT = """
from evalq import Answer

def said(call):
    # A list of text keeps the whole conversation: so do many frameworks.
    messages = list(call.get("messages") or [{"role": "user", "content": call["prompt"]}])
    asked = sum(message["role"] == "user" for message in messages)
    made = {"id": f"k{asked}", "name": "look", "arguments": {"at": asked}}
    new = [
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": made["id"], "content": "seen"},
        {"role": "assistant", "content": f"answer {asked}"},
    ]
    return Answer(messages=[*messages, *new], turns=7)

def silent(call):
    return "answer"
"""


@pytest.fixture
def service() -> Iterator[tuple[Agent, str]]:
    with running_agent() as (agent, url):
        agent.reply = lambda path, data: completion(Says(text="It is sunny."))
        yield agent, url


def rates(folder: Path) -> dict[str, tuple[int, int]]:
    """{check: (passed, errors)}."""
    report = json.loads((folder / "run/report.json").read_bytes())
    counts = {each["check"]: each["outputs"] for each in report["results"]["by_check"]}
    return {name: (each["passed"], each["errors"]) for name, each in counts.items()}


@pytest.mark.parametrize(
    "more",
    [
        {"tools": {"definitions": [DEFINITION], "answered_by": "canned"}},
        {"tools": {"definitions": [DEFINITION]}},
        {"options": {"tools": [{"type": "function", "function": DEFINITION}]}},
    ],
    ids=["canned", "stop", "options"],
)
def test_a_model_that_calls_none_of_its_tools_has_called_none(
    service: tuple[Agent, str], tmp_path: Path, more: dict[str, Any]
) -> None:
    """An answer without a verdict would leave the rate at that of the answers that did."""
    _, url = service
    entry = {"kind": "openai", "base_url": url, "model": "m", **more}
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"chat": entry}}))
    checks: list[dict[str, Any]] = [
        {"calls-tool": "weather"},
        {"forbidden-tools": ["weather"]},
        {"max-tool-calls": 1},
        {"recovers": True},
    ]
    (tmp_path / "cases.json").write_text(json.dumps({"cases": [case("a", "Oslo", *checks)]}))
    ended = evalq(*CHECKS, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert lines(tmp_path)["a"]["tool_calls"] == []
    wanted = {"calls-tool": (0, 0), "forbidden-tools": (1, 0), "max-tool-calls": (1, 0), "recovers": (1, 0)}
    assert rates(tmp_path) == wanted


@pytest.mark.parametrize("tool", [{"type": "web_search"}, {"type": "function", "name": "f"}])
def test_of_tools_that_run_at_the_provider_nothing_is_said(
    service: tuple[Agent, str], tmp_path: Path, tool: dict[str, Any]
) -> None:
    _, url = service
    entry = {"kind": "openai", "base_url": url, "model": "m", "options": {"tools": [tool]}}
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"chat": entry}}))
    (tmp_path / "cases.json").write_text(json.dumps({"cases": [case("a", "Oslo", {"contains": "sunny"})]}))
    assert evalq(*CHECKS, cwd=tmp_path).returncode == 0
    assert ("tool_calls" in lines(tmp_path)["a"]) == (tool["type"] == "function")


def test_a_call_beyond_the_bound_has_failed(service: tuple[Agent, str], tmp_path: Path) -> None:
    """An agent that goes round in circles fails what looks at results; it is not left out of the rate."""
    agent, url = service
    agent.reply = lambda path, data: completion(Says(text="Let me see.", calls=(("weather", {"city": "Oslo"}),)))
    tools = {"definitions": [DEFINITION], "answered_by": "canned", "max_turns": 2}
    entry = {"kind": "openai", "base_url": url, "model": "m", "tools": tools}
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"chat": entry}}))
    checks: list[dict[str, Any]] = [{"tool-result": "weather"}, {"recovers": True}]
    cases = [case("a", "Oslo", *checks, tool_results={"weather": "snow"})]
    (tmp_path / "cases.json").write_text(json.dumps({"cases": cases}))
    assert evalq(*CHECKS, cwd=tmp_path).returncode == 0
    first, second = lines(tmp_path)["a"]["tool_calls"]
    assert first["result"] == "snow"
    assert second["error"].startswith("not answered: ")
    assert rates(tmp_path) == {"tool-result": (0, 0), "recovers": (0, 0)}


def asked(folder: Path, function: str, *checks: dict[str, Any]) -> dict[str, Any]:
    """The line of an answer of three turns."""
    (folder / "agent.py").write_text(AGENT)
    entry = {"kind": "python", "function": f"agent:{function}"}
    (folder / "targets.yaml").write_text(json.dumps({"targets": {"chat": entry}}))
    cases = [case("a", "Oslo", *checks, turns=["And then?", "And then?"])]
    (folder / "cases.json").write_text(json.dumps({"cases": cases}))
    ended = evalq(*CHECKS, cwd=folder)
    assert ended.returncode in (0, 5), ended.stderr
    line: dict[str, Any] = lines(folder)["a"]
    return line


def test_an_agent_that_says_no_calls_may_have_made_any(tmp_path: Path) -> None:
    """Over several turns as in one: no check of tool calls has a verdict, and none passes."""
    line = asked(tmp_path, "silent", {"forbidden-tools": ["delete"]}, {"max-tool-calls": 0}, {"contains": "answer"})
    assert line["turns"] == 3
    assert "tool_calls" not in line
    assert rates(tmp_path) == {"forbidden-tools": (0, 1), "max-tool-calls": (0, 1), "contains": (1, 0)}


def test_calls_that_an_agent_gives_again_count_once(tmp_path: Path) -> None:
    """It gives the whole conversation each time; its own turns count, too."""
    line = asked(tmp_path, "said", {"no-repeat": True}, {"max-tool-calls": 3}, {"max-turns": 20})
    assert [call["arguments"]["at"] for call in line["tool_calls"]] == [1, 2, 3]
    assert line["turns"] == 21
    assert rates(tmp_path) == {"no-repeat": (1, 0), "max-tool-calls": (1, 0), "max-turns": (0, 0)}
