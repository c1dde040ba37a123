"""The loop in which one process drives a run or a sweep to its end, each step of it taken as the driver."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from evalq.evalcore.errors import AlreadyRunning
from evalq.producer.driving.retries import ServerRetry
from evalq.producer.monitor.progress import RunStatus, Watcher

__all__ = ["Driver", "drive"]


class Driver(Protocol):
    """What `drive` asks of the driver of a run or of a sweep.

    All but the properties talk to servers, and may be repeated at any point: each has to be idempotent. Where the
    ledger takes another process for the driver, or none, they raise AlreadyRunning and change nothing.
    """

    idle_seconds: float
    """How long to sleep after a step that found nothing to do."""

    @property
    def standing(self) -> RunStatus:
        """How far it is, for whoever watches."""

    @property
    def finished(self) -> bool:
        """Whether nothing is left but to conclude."""

    def establish(self) -> bool:
        """Become the driver: write all that the folder has into the ledger. Raises AlreadyRunning while another one
        drives.
        """

    def establish_again(self, driven: AlreadyRunning) -> bool:
        """The same where a step was refused, by a server that has forgotten this driver or came back with an earlier
        one. Raises ``driven``, or another AlreadyRunning, where somebody else drives it since.
        """

    def step(self) -> bool:
        """Move it on; False when there was nothing to do."""

    def look(self) -> bool:
        """See how it stands in the ledger, and do what that asks for."""

    def conclude(self) -> bool:
        """Close it in the ledger, once it is finished."""


def drive(driver: Driver, patiently: ServerRetry, poll_seconds: float, watch: Watcher) -> None:
    """Drive until it is finished and concluded, with a look every ``poll_seconds``, after which ``watch`` is told.

    A lost server is waited for by ``patiently``; what cannot be waited for is raised, as the driver's steps raise it.
    """

    def as_driver(step: Callable[[], bool]) -> bool:
        return patiently(lambda: _taken(driver, step))

    # So the first look follows the first step.
    looked = 0.0
    patiently(driver.establish)
    while not driver.finished:
        if not as_driver(driver.step):
            time.sleep(driver.idle_seconds)
        # Also while every step finds work: only a look sees lost messages, and that somebody paused or cancelled it.
        if time.monotonic() - looked >= poll_seconds:
            as_driver(driver.look)
            watch(driver.standing)
            looked = time.monotonic()
    as_driver(driver.conclude)


def _taken(driver: Driver, step: Callable[[], bool]) -> bool:
    """Take a step as the driver; a ledger that knows of none, or of an earlier one, is told first who drives."""
    try:
        return step()
    except AlreadyRunning as driven:
        # Once only: a step that is refused again right after that is refused for somebody else's sake.
        driver.establish_again(driven)
        return step()
