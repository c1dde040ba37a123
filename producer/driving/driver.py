"""The driver: one process owns a run or a sweep in its ledger, moves it on step by step, and leaves it.

Runs and sweeps differ only in their `Work`. It defines a piece, what happens to its answer, and when all is done.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

from evalq.evalcore.errors import AlreadyRunning, Cancelled, Paused
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.life import RunState
from evalq.producer.driving.retries import ServerRetry
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.monitor.progress import Reporter, ShownProgress, Watcher
from evalq.workers.ledger.scripts import Scripts

S = TypeVar("S")

Acquire = Literal["on", "keep", "anew"]
"""How a driver takes up work in its ledger: go "on", "keep" the ledger's state, or start finished work "anew"."""


class Closing(NamedTuple):
    """The state that a driver closes work with when an error ends its driving, and the reason."""

    state: RunState
    reason: str


class Work(Protocol[S]):
    """A run or a sweep as its driver sees it; ``S`` is the status that its ledger reports.

    Methods talk to servers. The driver may repeat them at any point, so each must be idempotent. If the ledger names
    another driver, or none, they raise AlreadyRunning and change nothing.
    """

    idle_seconds: float
    """How long to sleep after a step that found nothing to do."""
    not_stopped: str
    """The end of a warning: what may continue if evalq could not tell the server to stop."""

    @property
    def run(self) -> str:
        """Its id."""

    @property
    def folder(self) -> RunFolder:
        """Where its answers are kept."""

    @property
    def ledger(self) -> Scripts:
        """The steps of its driver."""

    @property
    def progress(self) -> ShownProgress:
        """Its progress, for display."""

    @property
    def finished(self) -> bool:
        """Whether only `conclude` is left to do."""

    @property
    def published(self) -> bool:
        """Whether the ledger has everything that others need to continue without a driver."""

    def driving(self) -> AbstractContextManager[object]:
        """The block in which the driver drives it to its end."""

    # Ownership
    def open(self, how: Acquire) -> Mapping[str, Json]:
        """Become its driver in the ledger; return the facts to note in the folder. Raises AlreadyRunning."""

    def restore(self) -> None:
        """Tell the ledger all that the folder has."""

    def overtaken(self) -> bool:
        """Whether the ledger knows a later driver than this one."""

    # One step after another
    def step(self) -> bool:
        """Publish pieces and take answers in; return False if there was nothing to do.

        Write each answer into the folder first; only then remove it from the ledger.
        """

    def poll(self) -> S | None:
        """Read its status from the ledger; None if the ledger knows nothing of it."""

    def lost(self, status: S) -> bool:
        """Whether the ledger lost something that the driver wrote, or came back with an older state."""

    def attend(self, status: S) -> None:
        """React to ``status``. If something else ended the work, raise the error that says so."""

    def conclude(self) -> bool:
        """Close the finished work in the ledger; False if the ledger has lost it, or some of it."""

    # Leaving it
    def publish(self) -> bool:
        """Take a step towards `published`; False if the ledger has lost the work since the driver last wrote it."""

    def detach(self) -> None:
        """Give the ledger everything that others need to finish the work."""

    def closing(self, error: BaseException) -> Closing | None:
        """The state to close the work with when ``error`` ends the driving; None if others may continue it."""

    def closed(self, error: BaseException) -> None:
        """Handle the pieces that were under way when ``error`` closed the work."""


class Driver(Generic[S]):
    """Drives ``work``; ``retry`` waits for its servers.

    ``server`` holds the options that name the server to other commands.
    """

    def __init__(self, work: Work[S], retry: ServerRetry, server: str = "") -> None:
        self.work = work
        self._retry = retry
        self._server = server

    def drive(self, watch: Watcher) -> None:
        """Drive until the work is finished and concluded; show ``watch`` the progress after each poll of the ledger.

        Raises AlreadyRunning while another process drives the work. Raises BrokerUnreachable if the server stays away
        for ``patience_seconds``. Also raises the errors of the work's own steps.
        """
        work, polled = self.work, 0.0  # so the first poll follows the first step
        with work.driving():
            self._retry(self.acquire)
            while not work.finished:
                if not self._as_driver(work.step):
                    time.sleep(work.idle_seconds)
                # Poll even while every step finds work: only a poll sees lost messages, a pause or a cancellation.
                if time.monotonic() - polled >= work.ledger.settings.poll_seconds:
                    self._as_driver(self._poll)
                    watch(work.progress)
                    polled = time.monotonic()
            self._as_driver(self._conclude)

    def acquire(self, how: Acquire = "on") -> bool:
        """Become the driver in the ledger, and tell it all that the folder has. Raises AlreadyRunning."""
        facts = self.work.open(how)
        self.work.folder.note(server=self._server or None, **facts)
        self.work.restore()
        return True

    def launch(self) -> None:
        """Publish everything that others need to continue without a driver."""
        self._retry(self.acquire)
        while not self.work.published:
            if not self._retry(self.work.publish):
                self._retry(self.acquire)

    def detach(self) -> None:
        """Leave the work to the fleet, with everything that it needs to finish it."""
        self._retry(self._detach)

    def release(self) -> bool:
        """Give the work up, so that the next driver need not wait; change nothing if another process drives it."""
        self.work.ledger.release(self.work.run)
        return True

    @contextlib.contextmanager
    def leaving(self, reporter: Reporter) -> Iterator[None]:
        """A block in which it is driven. An error gives the work up, and closes it first if nobody may continue it."""
        try:
            yield
        except BaseException as error:
            # Try once. If the server does not answer, the next driver waits until this one has been silent for long
            # enough.
            if not self._retry.once(partial(self._let_go, error)) and self.work.closing(error):
                reporter.warn(f"the server does not answer, so {self.work.not_stopped}")
            raise

    def _as_driver(self, step: Callable[[], bool]) -> bool:
        return self._retry(lambda: self._owned(step))

    def _owned(self, step: Callable[[], bool]) -> bool:
        """Take a step as the driver. If the ledger knows no driver, or an earlier one, register this driver first."""
        try:
            return step()
        except AlreadyRunning:
            if self.work.overtaken():
                raise
            self.acquire("keep")
            # Repeat once only: if the ledger refuses the step again, another process is the reason.
            return step()

    def _poll(self) -> bool:
        status = self.work.poll()
        # Check for losses before `attend` believes the state: an older server may tell of a pause that is over.
        if status is None or self.work.lost(status):
            return self.acquire("keep")
        self.work.attend(status)
        return True

    def _conclude(self) -> bool:
        while not self.work.conclude():
            self.acquire("keep")
        return True

    def _detach(self) -> bool:
        # Write what a report needs before the driver leaves: a process that finds no driver then finds the rest, too.
        self.work.detach()
        return self.release()

    def _let_go(self, error: BaseException) -> None:
        with contextlib.suppress(AlreadyRunning):  # another process may drive it by now: then change nothing
            try:
                if closing := self.work.closing(error):
                    # Close it before giving it up: other processes continue work that only lacks a driver.
                    self.work.ledger.close(self.work.run, *closing)
                    self.work.closed(error)
            finally:
                self.release()


def refuse_halted(run: str, state: str, reason: str) -> None:
    """Raise Paused or Cancelled if another process paused or cancelled the run."""
    if state == "paused":
        raise Paused(f"run {run} was paused")
    if state == "cancelled":
        raise Cancelled(f"run {run} was cancelled {reason}".rstrip())
