"""The loop that drives runs and sweeps: what it does with a step that was refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from evalq.evalcore.errors import AlreadyRunning
from evalq.producer.driving.loop import drive
from evalq.producer.driving.retries import ServerRetry
from evalq.producer.monitor.progress import RunStatus
from evalq.workers.settings import Settings


class Scripted:
    """A driver of three steps, which ``refuse`` may refuse; ``told`` is what it was asked, in order."""

    idle_seconds = 0.0

    def __init__(self, refuse: Callable[[list[str]], bool] = lambda _: False) -> None:
        self._refuse = refuse
        self.told: list[str] = []
        self.done = 0

    @property
    def standing(self) -> RunStatus:
        """Of three steps."""
        return RunStatus(self.done, self.done, 3)

    @property
    def finished(self) -> bool:
        """After three."""
        return self.done == 3

    def establish(self) -> bool:
        """At the beginning."""
        return self._asked("establish")

    def establish_again(self, driven: AlreadyRunning) -> bool:
        """Where a step was refused."""
        self.told.append(f"again after {driven.by}")
        return True

    def step(self) -> bool:
        """One of three."""
        self._asked("step")
        self.done += 1
        return True

    def look(self) -> bool:
        """After each step."""
        return self._asked("look")

    def conclude(self) -> bool:
        """At the end."""
        return self._asked("conclude")

    def _asked(self, what: str) -> bool:
        self.told.append(what)
        if self._refuse(self.told):
            raise AlreadyRunning("run", "another")
        return True


def _driven(driver: Scripted) -> list[int]:
    seen: list[int] = []
    drive(driver, ServerRetry(Settings(broker="unix:///nowhere")), 0.0, lambda standing: seen.append(standing.records))
    return seen


def test_the_loop_looks_after_each_step_and_concludes_once() -> None:
    """With every look told to whoever watches."""
    driver = Scripted()
    assert _driven(driver) == [1, 2, 3]
    assert driver.told == ["establish", *["step", "look"] * 3, "conclude"]


@pytest.mark.parametrize("what", ["step", "look", "conclude"])
def test_a_step_that_was_refused_once_is_taken_again(what: str) -> None:
    """The ledger had forgotten the driver; the end of a run is told as well as its middle."""
    driver = Scripted(lambda told: told[-1] == what and told.count(what) == 1)
    assert _driven(driver) == [1, 2, 3]
    at = driver.told.index(what)
    assert driver.told[at : at + 3] == [what, "again after another", what]
    assert driver.told[-1] == "conclude"


@pytest.mark.parametrize("what", ["step", "look", "conclude"])
def test_a_step_that_is_refused_for_good_ends_the_driving(what: str) -> None:
    """Somebody else drives: this one is told so, and stops."""
    driver = Scripted(lambda told: told[-1] == what)
    with pytest.raises(AlreadyRunning, match="another"):
        _driven(driver)
    assert driver.told.count(what) == 2


def test_who_may_not_begin_is_told_at_once() -> None:
    """Where another process drives, nothing is established again."""
    driver = Scripted(lambda told: told[-1] == "establish")
    with pytest.raises(AlreadyRunning):
        _driven(driver)
    assert driver.told == ["establish"]
