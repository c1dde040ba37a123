"""evalq doctor at servers on which runs would fail."""

from __future__ import annotations

from pathlib import Path

from tests.integration.harness import evalq, running_server


def test_a_server_whose_commands_are_renamed_is_found(tmp_path: Path) -> None:
    """By name, as hardened configurations do: a run would end there, or wait for a worker that takes nothing."""
    renamed = ("--rename-command", "EVALSHA", "x", "--rename-command", "BRPOP", "y")
    with running_server(tmp_path, None, *renamed) as server:
        done = evalq("doctor", "--broker", server.url, cwd=tmp_path)
    assert done.returncode == 3
    assert "the server does not know BRPOP, EVALSHA, which runs need" in done.stdout
