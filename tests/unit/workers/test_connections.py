"""Connections to a real server, whose client is interrupted at a line of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from evalq.workers.address import read_address
from evalq.workers.servers.connections import connect
from evalq.workers.settings import Settings
from tests.integration.harness import Server


def _waits(client: redis.Redis) -> Any:
    return client.blpop(["nobody pushes here"], timeout=1)


def _waits_in_a_transaction(client: Any) -> Any:
    with client.pipeline() as pipe:
        pipe.set("a", "1")
        pipe.execute_command("DEBUG", "SLEEP", "0.3")
        return pipe.execute()


@pytest.mark.parametrize("command", [_waits, _waits_in_a_transaction])
def test_no_answer_of_an_interrupted_command_is_that_of_the_next(
    server: Server, monkeypatch: pytest.MonkeyPatch, command: Callable[[redis.Redis], Any]
) -> None:
    """Ctrl-C between what is sent and its answer, which is under way: the next one has its own."""
    server.client.set("mine", "my answer")
    client = connect(read_address(server.url), Settings(broker=server.url))
    client.ping()  # or the answers to what a new connection says of itself would be the first that are read
    with monkeypatch.context() as patched:
        patched.setattr(redis.connection.Connection, "read_response", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            command(client)
    assert client.get("mine") == b"my answer"


def _interrupt(*_anything: object, **_more: object) -> None:
    raise KeyboardInterrupt
