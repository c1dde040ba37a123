"""A server that refuses in the middle of a command is named: a CI job may use several."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.harness import HAZARDS, Server, evalq


@pytest.mark.parametrize("command", ["pause", "cancel"])
def test_a_server_that_refuses_a_step_is_named(server: Server, tmp_path: Path, command: str) -> None:
    """With its URL, what is wrong there, and exit 3."""
    (tmp_path / "in.jsonl").write_bytes(b'{"id": "r", "value": 1}\n')
    broker = ("--broker", server.url)
    begun = evalq("hazards", "in.jsonl", *broker, "--detach", "--out", "run", cwd=tmp_path, PYTHONPATH=HAZARDS)
    assert begun.returncode == 0, begun.stderr
    server.client.config_set("maxmemory", "1")
    try:
        done = evalq(command, "run", *broker, cwd=tmp_path, PYTHONPATH=HAZARDS)
    finally:
        server.client.config_set("maxmemory", "0")
    assert done.returncode == 3
    assert f"the server at {server.url} is full (OOM)" in done.stderr
