"""The command that follows a log, in this process: how it waits, and how it ends on request."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from evalq.evalcore.model.life import may_follow
from evalq.producer.cli import main
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.follow.run import FollowPass, FollowRun
from evalq.producer.lifecycle.follow import _Stop
from tests.unit.follow.stage import LOG, Stage

FOLLOW = ["cooperation", "--follow", LOG, "--run-dir", "run", "--format", "none"]


@pytest.fixture(autouse=True)
def log(tmp_path: Path) -> Iterator[None]:
    """A log of one event, in the current folder."""
    with Stage(tmp_path).entered() as stage:
        stage.append(b'{"turn": 1, "agent": "a"}\n')
        yield


def test_a_folder_that_is_moved_away_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of it is damaged; in its place again the same command goes on."""

    def moved(self: FollowRun) -> FollowPass:
        Path("run").rename("elsewhere")
        return run_pass(self)

    run_pass = FollowRun.run_pass
    with monkeypatch.context() as patch:
        patch.setattr(FollowRun, "run_pass", moved)
        assert main([*FOLLOW, "--passes", "1"]) == 3
    assert "evalq: run: the run folder was moved or removed while" in capsys.readouterr().err
    Path("elsewhere").rename("run")
    assert main([*FOLLOW, "--passes", "1"]) == 0


def test_a_log_in_a_folder_that_is_no_text_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Where the follower is could not be kept; nothing is left that could be gone on with."""
    folder = Path(os.fsdecode(b"logs\xff"))
    folder.mkdir()
    Path(LOG).rename(folder / LOG)
    Path(LOG).symlink_to(folder / LOG)
    assert main([*FOLLOW, "--passes", "1"]) == 2
    assert "udcff/events.jsonl': its path is not text in UTF-8: rename it" in capsys.readouterr().err
    assert not Path("run").exists()


def test_what_a_killed_follower_left_can_be_cancelled_and_removed(capsys: pytest.CaptureFixture[str]) -> None:
    """Its folder says that it follows. A cancelled one is not gone on with, and it is said how to begin anew."""
    assert main([*FOLLOW, "--passes", "1"]) == 0
    RunFolder(Path("run")).note(state="following")
    assert main(["cancel", "run"]) == 0
    for again in ([*FOLLOW, "--passes", "1"], ["resume", "run"]):
        capsys.readouterr()
        assert main(again) != 0
        assert "evalq prune run" in capsys.readouterr().err
    assert main(["prune", "run"]) == 0
    assert main([*FOLLOW, "--passes", "1"]) == 0


@pytest.mark.parametrize("there", [True, False], ids=["of a log", "of a log that is not there yet"])
def test_a_follower_that_is_cancelled_says_so(
    there: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends by a signal, as by a service manager's, and does not say that the same command goes on with it.

    Its folder stays: the other command would say that this run ended on faulty input.
    """
    if not there:
        Path(LOG).unlink()
    run_pass = FollowRun.run_pass
    with ExitStack() as stack, monkeypatch.context() as patch:

        def ended(self: FollowRun) -> FollowPass:
            stack.enter_context(self.folder.cancelling())
            signal.raise_signal(signal.SIGTERM)
            return run_pass(self)

        patch.setattr(FollowRun, "run_pass", ended)
        assert main(FOLLOW) == 3
    assert "was cancelled by evalq cancel" in capsys.readouterr().err
    assert may_follow("cancelled", RunFolder(Path("run")).info().state)


def test_any_number_of_seconds_is_waited_for() -> None:
    """Also a month, which is more than the system waits for at once; until a signal, that may have come before."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests are in the background
    try:
        with (stop := _Stop()).listening():
            signal.raise_signal(signal.SIGINT)
            stop.wait(30 * 86_400)
        assert stop.signal == signal.SIGINT
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """As in the background of a script, and under nohup."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with (stop := _Stop()).listening():
            signal.raise_signal(signal.SIGINT)
        assert not stop()
    finally:
        signal.signal(signal.SIGINT, before)
