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


# As a service words it: the page is where its customers raise the limit.
_PACED = {
    "message": "Rate limit reached for model m: Limit 3, Used 3. Please try again in 20s. Need more? Visit "
    "https://console.example/settings/billing",
    "type": "tokens",
    "code": "rate_limit_exceeded",
}


def test_a_link_to_a_bill_spends_no_account(service: tuple[Agent, str], tmp_path: Path) -> None:
    """A rate limit is waited for; a spent account would end the whole sweep."""
    (result,) = _ask(tmp_path, service[1], {"do": "raw", "status": 429, "body": json.dumps({"error": _PACED})})
    assert isinstance(result, Failure)
    assert result.kind == "rate_limit"
    assert result.reason.startswith("HTTP 429: asked too often: Rate limit reached")


@pytest.mark.parametrize("before", [178, 184, 191])
def test_no_part_of_a_key_is_told_where_a_wait_is_asked_for(
    service: tuple[Agent, str], tmp_path: Path, before: int
) -> None:
    """The message is cut within the key, and the wait stands behind neither."""
    key, headers = "sk-never-to-be-seen", {"retry-after": "7"}
    order = {"do": "raw", "status": 500, "body": before * "y" + " " + key, "headers": headers}
    (result,) = _ask(tmp_path, service[1], order, key=key)
    assert isinstance(result, Failure)
    assert result.reason.startswith("HTTP 500: the server failed (Retry-After: 7 s): yyy")
    assert key[:6] not in result.reason + result.text
