"""What HTTP makes of a call: each by itself, the right kind of failure, and no secret in any form of writing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalq.workers.targets import Answer, Call, Caller, Failure, load_targets
from tests.agents.server import Agent, running_agent


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[Agent, str]]:
    """A server that obeys."""
    with running_agent() as started:
        yield started


def _ask(folder: Path, url: str, *orders: dict[str, Any], key: str = "", **more: Any) -> list[Answer | Failure]:
    """Results of orders, one after the other."""
    entry = {"kind": "openai", "base_url": url, "model": "m", "output": "text", **more}
    if key:
        entry["api_key_env"] = "KEY"
    (folder / "targets.yaml").write_text(json.dumps({"targets": {"t": entry}}))
    named = load_targets(folder / "targets.yaml")["t"]

    async def all_of() -> list[Answer | Failure]:
        async with Caller(named, {"KEY": key}) as caller:
            return [await caller.call(Call(json.dumps(order))) for order in orders]

    return asyncio.run(all_of())


def test_no_call_takes_a_cookie_to_the_next(service: tuple[Agent, str], tmp_path: Path) -> None:
    """Answers of one conversation would count as drawn apart; a cookie of the file's own headers is sent with each."""
    agent, url = service
    order = {"do": "raw", "body": "{}", "headers": {"set-cookie": "session=1; Path=/"}}
    for given, sent in (({}, None), ({"Cookie": "mine=2"}, "mine=2")):
        _ask(tmp_path, url, order, order, headers=given)
        assert [request["headers"].get("cookie") for request in agent.requests[-2:]] == [sent, sent]
