"""The embedded server: private, and gone with its command."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.harness import info, start_evalq, wait_until


def _processes(mark: str) -> list[str]:
    """Command lines of this machine's processes that hold ``mark``."""
    listed = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if mark in line]


@pytest.mark.parametrize("signal", [9, 15, 2], ids=["SIGKILL", "SIGTERM", "SIGINT"])
def test_nothing_outlives_a_killed_command(data: Path, tmp_path: Path, signal: int) -> None:
    """Server, workers and their temporary folders are gone after the command is, however it ended."""
    scratch = tmp_path / "t"
    scratch.mkdir()
    args = ("planagent", "rows.csv", "--workers", "2", "--chunk-size", "100", "--out", tmp_path / "run")
    command = start_evalq(*args, cwd=data, TMPDIR=str(scratch))
    wait_until(lambda: info(tmp_path / "run").get("progress"), "the run is under way")
    server = wait_until(lambda: [p for p in _processes(str(scratch)) if "unixsocket" in p], "its server is seen")
    assert any("--port 0" in line for line in server), "no TCP port is opened"
    os.kill(command.pid, signal)
    command.communicate()
    wait_until(lambda: not _processes(str(scratch)), "all processes of the command have ended")
    wait_until(lambda: not list(scratch.iterdir()), "its temporary folders are gone")


def test_the_socket_is_the_user_s_alone(data: Path, tmp_path: Path) -> None:
    """Nobody else may connect: the folder and the socket carry no rights for others."""
    scratch = tmp_path / "t"
    scratch.mkdir()
    args = ("planagent", "rows.csv", "--workers", "1", "--out", tmp_path / "run")
    command = start_evalq(*args, cwd=data, TMPDIR=str(scratch))
    socket = wait_until(lambda: list(scratch.glob("*/server.sock")), "the server's socket is there")[0]
    assert socket.parent.stat().st_mode & 0o077 == 0
    wait_until(lambda: socket.stat().st_mode & 0o077 == 0, "the socket is closed to others")
    command.kill()
    command.communicate()
