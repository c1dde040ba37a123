"""A command's own processes: gone with it, started again when they end before it, given up when that does not help."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.errors import ConfigError, WorkersLost
from evalq.producer.local import processes as module
from evalq.producer.local.processes import Children
from tests.integration.harness import wait_until
from tests.processes import runs

PAUSES = (0.01, 0.02, 0.03)


def _pid(file: Path) -> int:
    """The number that a process wrote of itself; waits for it."""
    return int(wait_until(lambda: file.exists() and file.read_text().strip(), "the process runs"))


@contextlib.contextmanager
def _running(children: Children, script: str, tmp_path: Path) -> Iterator[Path]:
    """A shell that runs ``script``; yields the file into which it writes its number."""
    number, folder = tmp_path / "pid", tmp_path / "own"
    command = ["/bin/sh", "-c", f"echo $$ > {number}.new; mv {number}.new {number}; {script}"]
    with children.running("the helper", command, folder):
        yield number


def test_one_that_is_killed_is_reported_and_started_again(tmp_path: Path) -> None:
    """SIGKILL in the middle: another takes its place, and what it started goes with it."""
    said: list[str] = []
    with _running(Children(said.append, PAUSES), "sleep 600 & wait", tmp_path) as number:
        first = _pid(number)
        number.unlink()
        os.kill(first, signal.SIGKILL)
        second = _pid(number)
        assert runs(second)
    assert said == ["the helper ended (SIGKILL); it is started again (1 of 3)"]
    assert not runs(first)
    wait_until(lambda: not runs(second), "it is gone with the block")
    assert not (tmp_path / "own").exists()


@pytest.mark.parametrize("strike", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
@pytest.mark.parametrize("half", [0, 1], ids=["guard", "its reader"])
def test_it_ends_with_the_block_whatever_became_of_its_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, half: int, strike: signal.Signals
) -> None:
    """Nobody waits for a guard that does nothing any more, and neither the process nor its folder stays."""
    monkeypatch.setattr(module, "_GUARD_SECONDS", 0.1)
    with _running(Children(lambda _: None, (600.0,)), "sleep 600 & wait", tmp_path) as number:
        own = _pid(number)
        guard = int(Path(f"/proc/{own}/stat").read_text().rpartition(")")[2].split()[1])
        reader = next(pid for pid in _children(guard) if pid != own)
        os.kill((guard, reader)[half], strike)
    wait_until(lambda: not any(map(runs, (own, guard, reader))), "all of it is gone with the block")
    assert not (tmp_path / "own").exists()


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_one_that_ends_again_and_again_is_given_up_with_its_last_words(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Three times more, then an error with exit code 3 that says how often, how and why."""
    children = Children(lambda _: None, PAUSES)
    with _running(children, "echo cannot import celery >&2; exit 7", tmp_path):
        error = wait_until(lambda: _checked(children), "it is given up")
    assert isinstance(error, WorkersLost)
    assert str(error) == "the helper ended 4 times, the last time with exit code 7: cannot import celery"
    assert capfd.readouterr().err.count("cannot import celery") == 4


def test_one_that_is_configured_wrongly_is_not_started_again(tmp_path: Path) -> None:
    """Exit code 2 would come again."""
    said: list[str] = []
    children = Children(said.append, PAUSES)
    with _running(children, "echo no evaluator x >&2; exit 2", tmp_path):
        error = wait_until(lambda: _checked(children), "it is given up")
    assert isinstance(error, ConfigError)
    assert "cannot start: no evaluator x" in str(error)
    assert not said


def test_one_that_cannot_be_started_again_is_given_up(tmp_path: Path) -> None:
    """The system has no room for its folder any more: an error that says so, and nobody waits for a process that never
    comes."""
    said: list[str] = []
    children, above = Children(said.append, PAUSES), tmp_path / "above"
    above.mkdir()
    with children.running("the helper", ["/bin/sh", "-c", f"rm -rf {above}; exit 7"], above / "own"):
        error = wait_until(lambda: _checked(children), "it is given up")
    assert isinstance(error, WorkersLost)
    refused = "the helper cannot be started again: No such file or directory"
    assert str(error) == refused
    assert said == [
        "the helper ended (exit code 7); it is started again (1 of 3)",
        f"{refused}; it is tried again (2 of 3)",
        f"{refused}; it is tried again (3 of 3)",
    ]


def test_one_that_cannot_be_started_for_a_while_is_started_later(tmp_path: Path) -> None:
    """What the system lacks at one try it may have at the next."""
    above, ran = tmp_path / "above", tmp_path / "ran"
    above.mkdir()

    def warn(text: str) -> None:
        if "cannot be started again" in text:
            above.mkdir()

    children = Children(warn, PAUSES)
    script = f"test -e {ran} && exec sleep 600; touch {ran}; rm -rf {above}; exit 7"
    with children.running("the helper", ["/bin/sh", "-c", script], above / "own") as keeper:
        wait_until(lambda: keeper.deaths == 1 and (above / "own").exists(), "it runs again")
        assert _checked(children) is None


def _checked(children: Children) -> Exception | None:
    try:
        children.check()
    except (WorkersLost, ConfigError) as error:
        return error
    return None


@pytest.mark.parametrize("allowed", [0, 1], ids=["listener", "keeper"])
def test_one_for_which_there_is_no_thread_is_refused_as_where_there_is_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    """A container's limit counts threads as well; what was started by then is gone, and its folder."""
    begun: list[subprocess.Popen[bytes]] = []
    popen, start, threads = subprocess.Popen, threading.Thread.start, iter(range(9))

    def noted(*args: Any, **how: Any) -> subprocess.Popen[bytes]:
        begun.append(popen(*args, **how))
        return begun[-1]

    def limited(thread: threading.Thread) -> None:
        if next(threads) == allowed:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(subprocess, "Popen", noted)
    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(OSError, match="temporarily unavailable"), _running(Children(), "sleep 600", tmp_path):
        pass
    assert [guard.returncode is not None for guard in begun] == [True]
    assert not (tmp_path / "own").exists()
