"""A budget of cost, with conversations of any length: alone and over a ledger, spent to the call, and gone on with."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.agents.providers import Says, completion
from tests.agents.server import running_agent
from tests.integration.harness import evalq
from tests.integration.test_tools import CHECKS, case, lines, write

COST = 20.0
"""Of each call of the model."""


def model(path: str, data: Any) -> dict[str, Any]:
    """Calls a tool as often as the case's input says, and then answers."""
    asked = int(data["messages"][0]["content"].rstrip("?").rsplit(" ", 1)[-1])
    done = sum(message["role"] == "tool" for message in data["messages"])
    if done < asked:
        return completion(Says(text=None, calls=(("weather", {"city": str(done)}),)))
    return completion(Says(text="I know"))


@pytest.mark.parametrize("fleet", [(), ("--workers", "1")], ids=["alone", "fleet"])
def test_conversations_spend_no_call_more_than_the_budget(tmp_path: Path, fleet: tuple[str, ...]) -> None:
    """They are of one to twelve calls, and many go on at once; with a larger budget all end."""
    lengths = [1, *random.Random(5).choices(range(12), k=29)]
    cases = [
        case(f"c{n}", str(length), {"contains": "I know"}, tool_results={"weather": "x"})
        for n, length in enumerate(lengths)
    ]
    total = sum(length + 1 for length in lengths)
    with running_agent() as (agent, url):
        agent.reply = model
        write(tmp_path, url, "canned", cases, max_turns=20)
        most = total // 2
        ended = evalq(*CHECKS, *fleet, "--max-cost", str(most * COST), cwd=tmp_path)
        calls = json.loads((tmp_path / "run/run.json").read_bytes())["calls"]
        assert calls["ended"] == "spent", ended.stderr
        assert abs(len(agent.requests) - most) <= 1
        assert (calls["attempts"], calls["cost"]) == (len(agent.requests), len(agent.requests) * COST)
        more = ("resume", "run", "--targets", "targets.yaml", "--max-cost", str(2 * total * COST), "--quiet")
        ended = evalq(*more, *fleet, cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
        assert len(lines(tmp_path)) == len(cases)
        # A server of the command's own ends with it, and what it had of conversations.
        assert len(agent.requests) == total or (fleet and len(agent.requests) <= total + most)


@pytest.mark.parametrize("fleet", [(), ("--workers", "1")], ids=["alone", "fleet"])
def test_a_budget_for_less_than_one_conversation_is_kept(tmp_path: Path, fleet: tuple[str, ...]) -> None:
    """The first conversation is begun, and stays as it is."""
    cases = [case(f"c{n}", "9", {"contains": "I know"}, tool_results={"weather": "x"}) for n in range(3)]
    with running_agent() as (agent, url):
        agent.reply = model
        write(tmp_path, url, "canned", cases, max_turns=20)
        evalq(*CHECKS, *fleet, "--max-cost", str(4 * COST), cwd=tmp_path)
        assert json.loads((tmp_path / "run/run.json").read_bytes())["calls"]["ended"] == "spent"
        assert len(agent.requests) == 4
