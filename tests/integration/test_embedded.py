"""The embedded server: private, and gone with its command."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalq.producer.folder.files import JOURNAL
from tests.integration.harness import (
    HAZARDS,
    evalq,
    info,
    new_interpreters,
    remove,
    short_folder,
    start_evalq,
    wait_until,
)
from tests.integration.midway import hold


@pytest.fixture(autouse=True)
def _as_users_start_it() -> Iterator[None]:
    with new_interpreters():
        yield


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder for temporary files, with a path short enough for sockets."""
    folder = short_folder()
    yield folder
    remove(folder)


def _processes(mark: str) -> list[str]:
    """Command lines of processes that were given ``mark``, or work in a folder of that name."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if mark in line or mark in str((process / "cwd").readlink()):
                found.append(line)
    return found


@pytest.mark.parametrize("signal", [9, 15, 2], ids=["SIGKILL", "SIGTERM", "SIGINT"])
def test_nothing_outlives_a_killed_command(tmp_path: Path, scratch: Path, signal: int) -> None:
    """Server, workers and their temporary folders are gone after the command is, however it ended."""
    args = (*hold(tmp_path).command, "--workers", "2", "--out", "run")
    command = start_evalq(*args, cwd=tmp_path, TMPDIR=str(scratch), PYTHONPATH=HAZARDS)
    wait_until(lambda: info(tmp_path / "run").get("progress"), "the run is under way")
    started = _processes(str(scratch))
    assert any("--port 0 --unixsocket" in line for line in started), "a server without a TCP port"
    assert any("evalq.producer.cli worker" in line for line in started)
    os.kill(command.pid, signal)
    command.communicate()
    wait_until(lambda: not _processes(str(scratch)), "all processes of the command have ended")
    wait_until(lambda: not list(scratch.iterdir()), "its temporary folders are gone")


@pytest.mark.parametrize("signal", [9, 15, 2], ids=["SIGKILL", "SIGTERM", "SIGINT"])
def test_nothing_outlives_a_killed_command_that_computes_by_itself(tmp_path: Path, signal: int) -> None:
    """Its forked processes are gone, and no lock of theirs is left: what is in its journal is resumed at once."""
    held = hold(tmp_path, held=1)
    command = start_evalq(*held.command, "--out", tmp_path / "run", cwd=tmp_path, PYTHONPATH=HAZARDS)
    journal = tmp_path / "run" / JOURNAL
    wait_until(lambda: journal.exists() and journal.stat().st_size, "the run is under way")
    assert len(_processes(str(tmp_path / "run"))) > 1
    os.kill(command.pid, signal)
    command.communicate()
    wait_until(lambda: not _processes(str(tmp_path / "run")), "all processes of the command have ended")
    held.let_go()
    done = evalq("resume", tmp_path / "run", "--format", "none", cwd=tmp_path, PYTHONPATH=HAZARDS)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    with (tmp_path / "in.jsonl").open("rb") as records:
        assert report["inputs"][0]["sha256"] == hashlib.file_digest(records, "sha256").hexdigest()


def test_the_socket_is_the_user_s_alone(tmp_path: Path, scratch: Path) -> None:
    """Nobody else may connect: the folder and the socket carry no rights for others."""
    args = (*hold(tmp_path).command, "--workers", "1", "--out", "run")
    command = start_evalq(*args, cwd=tmp_path, TMPDIR=str(scratch), PYTHONPATH=HAZARDS)
    socket = wait_until(lambda: list(scratch.glob("*/server.sock")), "the server's socket is there")[0]
    assert socket.parent.stat().st_mode & 0o077 == 0
    wait_until(lambda: socket.stat().st_mode & 0o077 == 0, "the socket is closed to others")
    command.kill()
    command.communicate()


def test_arguments_of_queues_are_said_to_have_no_effect(tmp_path: Path) -> None:
    """Without a broker nothing has them; with one that has none, nothing is begun."""
    args = (*hold(tmp_path, free=2, held=0).command, "--workers", "1")
    odd = {"EVALQ_QUEUE_ARGUMENTS": "x-queue-type=quorum", "PYTHONPATH": HAZARDS}
    done = evalq(*args, "--out", "run", cwd=tmp_path, **odd)  # type: ignore[arg-type]  # no key is `seconds`
    assert (done.returncode, "queue_arguments has no effect" in done.stderr) == (0, True), done.stderr
    for command in (("worker",), (*args, "--out", "other")):
        refused = evalq(*command, "--broker", "redis://127.0.0.1:1", cwd=tmp_path, **odd)  # type: ignore[arg-type]  # options of one kind
        assert (refused.returncode, "queue_arguments: only RabbitMQ" in refused.stderr) == (2, True), refused.stderr
    assert not (tmp_path / "other").exists()
