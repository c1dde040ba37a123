"""evalq doctor at servers on which runs would fail."""

from __future__ import annotations

from pathlib import Path

from tests.integration.harness import evalq, running_server, wait_until


def test_a_server_whose_commands_are_renamed_is_found(tmp_path: Path) -> None:
    """By name, as hardened configurations do: a run would end there, or wait for a worker that takes nothing."""
    renamed = ("--rename-command", "EVALSHA", "x", "--rename-command", "BRPOP", "y")
    with running_server(tmp_path, None, *renamed) as server:
        done = evalq("doctor", "--broker", server.url, cwd=tmp_path)
    assert done.returncode == 3
    assert "the server does not know BRPOP, EVALSHA, which runs need" in done.stdout


def test_a_replica_is_found(tmp_path: Path) -> None:
    """It answers whatever is asked, and a run there would wait in vain for it to be promoted."""
    (tmp_path / "copy").mkdir()
    with running_server(tmp_path) as primary, running_server(tmp_path / "copy") as replica:
        replica.client.replicaof("127.0.0.1", primary.port)
        wait_until(lambda: replica.client.info("replication")["master_link_status"] == "up", "it is a replica")
        done = evalq("doctor", "--broker", replica.url, cwd=tmp_path)
    assert done.returncode == 3
    assert "is a read-only replica (READONLY): evalq needs its primary" in done.stdout
