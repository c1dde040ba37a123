"""The loop that drives runs and sweeps: what it does with a step that was refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from evalq.evalcore.errors import AlreadyRunning
from evalq.evalcore.model.canonical import Json
from evalq.producer.driving.driver import Acquire, Closing, Driver
from evalq.producer.driving.retries import ServerRetry
from evalq.producer.monitor.progress import ShownProgress
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.settings import Settings
from tests.folders import begun
from tests.unit.producer.quiet import QUIET


class Scripted:
    """Work of three steps, which ``refuse`` may refuse; ``told`` is what it was asked, in order."""

    idle_seconds = 0.0
    not_stopped = "it goes on"
    run = "run"
    published = True

    def __init__(self, folder: Path, refuse: Callable[[list[str]], bool] = lambda _: False) -> None:
        # A poll is always due.
        settings = Settings(broker="unix:///nowhere").model_copy(update={"poll_seconds": 0.0})
        self.folder = begun(folder / "run")
        self.ledger = RunLedger(redis.Redis(), settings, "this")
        self._refuse = refuse
        self.told: list[str] = []
        self.done = 0

    @property
    def progress(self) -> ShownProgress:
        """Of three steps."""
        return ShownProgress(self.done, self.done, 3)

    @property
    def finished(self) -> bool:
        """After three."""
        return self.done == 3

    def driving(self) -> contextlib.AbstractContextManager[None]:
        """Nothing else happens around it."""
        return contextlib.nullcontext()

    def open(self, how: Acquire) -> dict[str, Json]:
        """At the beginning, and where a step was refused."""
        self._asked(f"open {how}")
        return {"driver": "this"}

    def restore(self) -> None:
        """Nothing is there."""

    def overtaken(self) -> bool:
        """By nobody that is known."""
        return False

    def step(self) -> bool:
        """One of three."""
        self._asked("step")
        self.done += 1
        return True

    def poll(self) -> int | None:
        """After each step."""
        self._asked("poll")
        return self.done

    def lost(self, status: int) -> bool:
        """Nothing is."""
        return False

    def attend(self, status: int) -> None:
        """Nothing is to be done."""

    def conclude(self) -> bool:
        """At the end."""
        return self._asked("conclude")

    def publish(self) -> bool:
        """All is."""
        return True

    def detach(self) -> None:
        """It is not left to others."""

    def closing(self, error: BaseException) -> Closing | None:
        """It stays as it is."""
        return None

    def closed(self, error: BaseException) -> None:
        """It never is."""

    def _asked(self, what: str) -> bool:
        self.told.append(what)
        if self._refuse(self.told):
            raise AlreadyRunning("run", "another")
        return True


def _driven(work: Scripted) -> list[int]:
    seen: list[int] = []
    Driver(work, ServerRetry(work.ledger.settings)).drive(lambda progress: seen.append(progress.records))
    return seen


def test_the_loop_polls_after_each_step_and_concludes_once(tmp_path: Path) -> None:
    """With every poll's progress shown to whoever watches."""
    work = Scripted(tmp_path)
    assert _driven(work) == [1, 2, 3]
    assert work.told == ["open on", *["step", "poll"] * 3, "conclude"]
    assert work.folder.facts()["driver"] == "this"


@pytest.mark.parametrize("what", ["step", "poll", "conclude"])
def test_a_step_that_was_refused_once_is_taken_again(what: str, tmp_path: Path) -> None:
    """The ledger had forgotten the driver; the end of a run is reported as well as its middle."""
    work = Scripted(tmp_path, lambda told: told[-1] == what and told.count(what) == 1)
    assert _driven(work) == [1, 2, 3]
    at = work.told.index(what)
    assert work.told[at : at + 3] == [what, "open keep", what]
    assert work.told[-1] == "conclude"


@pytest.mark.parametrize("what", ["step", "poll", "conclude"])
def test_a_step_that_is_refused_for_good_ends_the_driving(what: str, tmp_path: Path) -> None:
    """Somebody else drives: this one learns that, and stops."""
    work = Scripted(tmp_path, lambda told: told[-1] == what)
    with pytest.raises(AlreadyRunning, match="another"):
        _driven(work)
    assert work.told.count(what) == 2


def test_who_is_known_to_be_overtaken_does_not_take_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger knows a later driver: what was refused stays refused."""
    work = Scripted(tmp_path, lambda told: told[-1] == "step")
    monkeypatch.setattr(work, "overtaken", lambda: True)
    with pytest.raises(AlreadyRunning, match="another"):
        _driven(work)
    assert work.told == ["open on", "step"]


def test_what_the_ledger_lost_is_reported_again_before_its_state_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older server may tell of a pause that is over."""
    work, attended = Scripted(tmp_path), list[int]()
    monkeypatch.setattr(work, "lost", lambda status: status == 1)
    monkeypatch.setattr(work, "attend", attended.append)
    _driven(work)
    assert work.told[:4] == ["open on", "step", "poll", "open keep"]
    assert attended == [2, 3]


def test_who_may_not_begin_is_informed_at_once(tmp_path: Path) -> None:
    """Where another process drives, nothing is taken again."""
    work = Scripted(tmp_path, lambda told: told[-1] == "open on")
    with pytest.raises(AlreadyRunning):
        _driven(work)
    assert work.told == ["open on"]


class Ended(Exception):
    """Ends the driving of scripted work for all."""


@pytest.mark.parametrize("taken_over", [False, True])
def test_work_that_nobody_is_to_go_on_with_is_closed_before_it_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken_over: bool
) -> None:
    """Others go on with what is merely without a driver. What another drives by now is left as it is."""
    work = Scripted(tmp_path)
    retry = ServerRetry(work.ledger.settings)

    def close(run: str, state: str, reason: str) -> str:
        work.told.append(f"close {state} {reason}")
        if taken_over:
            raise AlreadyRunning("run", "another")
        return state

    def taken(step: Callable[[], object]) -> bool:
        step()
        return True

    monkeypatch.setattr(retry, "once", taken)
    monkeypatch.setattr(
        work, "closing", lambda error: Closing("paused", "by hand") if isinstance(error, Ended) else None
    )
    monkeypatch.setattr(work, "closed", lambda error: work.told.append("closed"))
    monkeypatch.setattr(work.ledger, "close", close)
    monkeypatch.setattr(work.ledger, "release", lambda run: work.told.append("release"))
    with pytest.raises(Ended), Driver(work, retry).leaving(QUIET):
        raise Ended
    assert work.told == ["close paused by hand", *([] if taken_over else ["closed"]), "release"]
    work.told.clear()
    with pytest.raises(ValueError, match="another"), Driver(work, retry).leaving(QUIET):
        raise ValueError("another error")
    assert work.told == ["release"]


def test_a_server_that_does_not_answer_cannot_stop_the_work_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command ends all the same."""
    work = Scripted(tmp_path)
    monkeypatch.setattr(work, "closing", lambda error: Closing("paused", ""))
    said: list[str] = []
    monkeypatch.setattr(QUIET, "warn", said.append)
    with pytest.raises(Ended), Driver(work, ServerRetry(work.ledger.settings)).leaving(QUIET):
        raise Ended
    assert said == ["the server does not answer, so it goes on"]
