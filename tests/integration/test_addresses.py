"""Ledger and queue are one place, however a server's URL is written; what is no URL of a server is refused by all."""

from __future__ import annotations

import shlex
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.integration.conftest import Calm
from tests.integration.harness import evalq, running_fleet, running_server, same_answer
from tests.portions import some

WORD = "p@ss://w%rd?/#[]"


@pytest.mark.parametrize(
    "form",
    some(
        [
            "unix:///{socket}?db=3",
            "unix://me:{word}@/{socket}?db=3",
            "redis://me:{word}@localhost:{port}?db=3",
            "valkey://me:{word}@127.0.0.1:{port}/3/",
        ],
        of=2,
    ),
)
def test_a_run_over_a_database_of_its_own(tmp_path: Path, data: Path, calm: Calm, form: str) -> None:
    """Producer and worker meet there, with every key; nothing lies in another database, and the password nowhere."""
    socket = tmp_path / "s.sock"
    with running_server(tmp_path, None, "--unixsocket", str(socket)) as server:
        server.client.acl_setuser(
            "me", enabled=True, passwords=[f"+{WORD}"], keys=["*"], channels=["*"], categories=["+@all"]
        )
        url = form.format(socket=quote(str(socket).lstrip("/")), word=quote(WORD, safe=""), port=server.port)
        with running_fleet(url, data) as fleet:
            worker = fleet.add(1)
            done = evalq(
                "planagent", "small.csv", "--broker", url, "--out", tmp_path / "run", "--format", "none", cwd=data
            )
            assert done.returncode == 0, done.stderr
            seen = evalq("doctor", "--broker", url, cwd=data)
        same_answer(calm("small.csv"), tmp_path / "run")
        assert worker.poll() is not None
        assert list(server.client.info("keyspace")) == ["db3"]
        said = done.stderr + done.stdout + seen.stdout + seen.stderr
        said += "".join(path.read_text(errors="replace") for path in (tmp_path / "run").rglob("*.json*"))
        assert WORD not in said
        assert quote(WORD, safe="") not in said


COMMANDS = (
    "worker",
    "exporter",
    "doctor",
    "list",
    "status x",
    "cancel x",
    "prune",
    "planagent few.csv",
    "planagent few.csv --detach",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_what_no_library_is_asked_is_refused(tmp_path: Path, data: Path, command: str) -> None:
    """By every command, before it reaches the server, which is there: exit 2, the setting, and what to leave out."""
    with running_server(tmp_path) as server:
        for variable in ("EVALQ_BROKER", "EVALQ_LEDGER"):
            urls = {"EVALQ_BROKER": server.url, variable: f"{server.url}?socket_timeout=5"}
            done = evalq(
                *shlex.split(command),
                cwd=data,
                EVALQ_BROKER=urls["EVALQ_BROKER"],
                EVALQ_LEDGER=urls.get("EVALQ_LEDGER", ""),
            )
            assert done.returncode == 2, done.stderr
            assert f"{variable[6:].lower()}: redis://***: not the URL of a server" in done.stderr
            assert "'socket_timeout'" in done.stderr
        assert server.client.dbsize() == 0
