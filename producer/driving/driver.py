"""The driver: one process owns a run or a sweep in its ledger, moves it on step by step, and leaves it.

What a run and a sweep differ in is in their `Work`: what a piece is, what becomes of its answer, and when all is done.
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
"""How work is taken up in its ledger: to go "on", to "keep" the state that it has there, or "anew" where it is done."""


class Closing(NamedTuple):
    """The state that work is closed with where an error ends its driving, and why."""

    state: RunState
    reason: str


class Work(Protocol[S]):
    """A run or a sweep as its driver sees it; ``S`` is what its ledger tells of it.

    Methods talk to servers, and may be repeated at any point: each has to be idempotent. Where the ledger takes another
    process for the driver, or none, they raise AlreadyRunning and change nothing.
    """

    idle_seconds: float
    """How long to sleep after a step that found nothing to do."""
    unstopped: str
    """What goes on where the server could not be told to stop."""

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
        """How far it is, for whoever watches."""

    @property
    def finished(self) -> bool:
        """Whether nothing is left but to conclude."""

    @property
    def published(self) -> bool:
        """Whether the ledger has all that others need to go on without a driver."""

    def driving(self) -> AbstractContextManager[object]:
        """The block in which it is driven to its end."""

    # Ownership
    def open(self, how: Acquire) -> Mapping[str, Json]:
        """Become its driver in the ledger; returns what the folder notes. Raises AlreadyRunning."""

    def restore(self) -> None:
        """Tell the ledger all that the folder has."""

    def overtaken(self) -> bool:
        """Whether the ledger knows that a later driver than this one had it."""

    # One step after another
    def step(self) -> bool:
        """Publish pieces, and take answers in: into the folder first, then they leave the ledger. False for neither."""

    def poll(self) -> S | None:
        """What the ledger tells of it now; None where it knows nothing."""

    def lost(self, status: S) -> bool:
        """Whether the ledger has forgotten what it was told, or came back with an older state."""

    def attend(self, status: S) -> None:
        """Do what that asks for. Raises what has ended it elsewhere."""

    def conclude(self) -> bool:
        """Close it in the ledger, once it is finished; False where the ledger has lost it, or some of it."""

    # Leaving it
    def publish(self) -> bool:
        """A step towards `published`; False where the ledger has lost it since it was told the last of it."""

    def detach(self) -> None:
        """Give the ledger what others need to finish it."""

    def closing(self, error: BaseException) -> Closing | None:
        """How it is closed where ``error`` ends the driving; None where others may go on with it."""

    def closed(self, error: BaseException) -> None:
        """See to what was under way when it was closed for ``error``."""


class Driver(Generic[S]):
    """Drives ``work``, over servers that ``retry`` waits for.

    ``server`` are the options that name the server to other commands.
    """

    def __init__(self, work: Work[S], retry: ServerRetry, server: str = "") -> None:
        self.work = work
        self._retry = retry
        self._server = server

    def drive(self, watch: Watcher) -> None:
        """Drive until all is finished and concluded. ``watch`` is shown the progress after each poll of the ledger.

        Raises AlreadyRunning while another process drives it, BrokerUnreachable when the server stays away for
        ``patience_seconds``, and what the work's own steps raise.
        """
        work, polled = self.work, 0.0  # so the first poll follows the first step
        with work.driving():
            self._retry(self.acquire)
            while not work.finished:
                if not self._as_driver(work.step):
                    time.sleep(work.idle_seconds)
                # Also while every step finds work: only a poll sees lost messages, and that somebody paused or
                # cancelled it.
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
        """Publish all that others need to go on alone."""
        self._retry(self.acquire)
        while not self.work.published:
            if not self._retry(self.work.publish):
                self._retry(self.acquire)

    def detach(self) -> None:
        """Leave it to the fleet, with what finishing it needs."""
        self._retry(self._detach)

    def release(self) -> bool:
        """Let go of it: whoever drives it next need not wait. What another drives by now stays as it is."""
        self.work.ledger.release(self.work.run)
        return True

    @contextlib.contextmanager
    def leaving(self, reporter: Reporter) -> Iterator[None]:
        """A block in which it is driven: where that raises, it is closed if nobody is to go on, and let go."""
        try:
            yield
        except BaseException as error:
            # Once: where the server is away, the next driver waits until this one has been silent for long enough.
            if not self._retry.once(partial(self._let_go, error)) and self.work.closing(error):
                reporter.warn(f"the server does not answer, so {self.work.unstopped}")
            raise

    def _as_driver(self, step: Callable[[], bool]) -> bool:
        return self._retry(lambda: self._owned(step))

    def _owned(self, step: Callable[[], bool]) -> bool:
        """Take a step as the driver; a ledger that knows of none, or of an earlier one, is told first who drives."""
        try:
            return step()
        except AlreadyRunning:
            if self.work.overtaken():
                raise
            self.acquire("keep")
            # Once only: a step that is refused again right after that is refused for somebody else's sake.
            return step()

    def _poll(self) -> bool:
        status = self.work.poll()
        # Before the state is believed: an older server may tell of a pause that is over.
        if status is None or self.work.lost(status):
            return self.acquire("keep")
        self.work.attend(status)
        return True

    def _conclude(self) -> bool:
        while not self.work.conclude():
            self.acquire("keep")
        return True

    def _detach(self) -> bool:
        # First what a report needs, then nobody drives: whoever finds it without a driver finds both.
        self.work.detach()
        return self.release()

    def _let_go(self, error: BaseException) -> None:
        with contextlib.suppress(AlreadyRunning):  # what another drives since is left as it is
            try:
                if closing := self.work.closing(error):
                    # Closed before it is let go: others go on with what is merely without a driver.
                    self.work.ledger.close(self.work.run, *closing)
                    self.work.closed(error)
            finally:
                self.release()


def refuse_halted(run: str, state: str, reason: str) -> None:
    """Raise Paused or Cancelled where that was done elsewhere."""
    if state == "paused":
        raise Paused(f"run {run} was paused")
    if state == "cancelled":
        raise Cancelled(f"run {run} was cancelled {reason}".rstrip())
