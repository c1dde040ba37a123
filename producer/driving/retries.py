"""Waiting for servers: a message appears within seconds, and the wait ends within ``patience_seconds``.

Steps run in the caller's thread, which may block in a system call, so a second thread reports. It also probes the
server when a step takes long, since a stopped server neither answers nor refuses.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import redis

from evalq.evalcore.errors import BrokerUnreachable, EvalqError, ServerRefused
from evalq.producer.monitor.progress import AGAIN_SECONDS, StatusSink
from evalq.workers.servers.connections import connect, probe
from evalq.workers.servers.errors import SERVER_ERRORS, explained
from evalq.workers.settings import Settings

T = TypeVar("T")

TELL_SECONDS = 2.0
"""Shorter waits are not reported."""
PROBE_SECONDS = 2.0
_PAUSES = (0.1, 2.0)
"""The first and the longest pause before a step is tried again, each twice the one before."""
_POLL_SECONDS = 0.25


class ServerRetry:
    """Takes steps on servers, and retries them. Steps may be repeated at any point, so each must be idempotent.

    ``check`` is called before every step, and raises errors that waiting cannot cure.
    """

    def __init__(
        self, settings: Settings, sink: StatusSink | None = None, check: Callable[[], None] | None = None
    ) -> None:
        self._settings = settings
        self._sink = sink
        self._check = check or (lambda: None)
        self._server = f"the server at {settings.ledger_address}"
        self._lock = threading.Lock()
        self._step_began: float | None = None
        self._since: float | None = None
        self._reason = ""
        self._reported_at: float | None = None
        self._partial = False
        self.waits = 0
        """The number of retries: during one, no other process can be heard of either."""

    def __call__(self, step: Callable[[], T]) -> T:
        """Take a step and return its result; while the server is away, wait and retry.

        Raises BrokerUnreachable after ``patience_seconds`` of that; raises errors that do not pass at once.
        """
        pause, longest = _PAUSES
        while True:
            # Before each try: an embedded server that was given up does not come back.
            self._check()
            self._step_began, self._partial = time.monotonic(), False
            try:
                result = step()
            except (*SERVER_ERRORS, BrokerUnreachable) as error:
                self.waits += 1
                self._note(error)
            else:
                # A step that succeeded only in part has not ended the trouble.
                if not self._partial:
                    self.over()
                return result
            finally:
                self._step_began = None
            time.sleep(pause)
            pause = min(2 * pause, longest)
            self._stand_by()

    def client(self) -> redis.Redis:
        """A client of the ledger for these steps; it does not retry by itself.

        Raises BrokerUnreachable if nothing answers at the start, and ServerRefused.
        """
        return connect(self._settings.ledger_address, self._settings, self._settings.answer_seconds, again=False)

    def in_part(self, error: BaseException) -> None:
        """Note that a step succeeds only in part because of ``error``; reported and limited as if it had failed."""
        self._partial = True
        self._note(error)

    def over(self) -> None:
        """Note that the wait is over."""
        with self._lock:
            since, reported, self._since, self._reported_at = self._since, self._reported_at, None, None
        if since is not None and reported is not None and self._sink is not None:
            self._sink.recovered(self._reason, time.monotonic() - since)

    def once(self, step: Callable[[], object]) -> bool:
        """Take a last step if the server answers at once; returns whether it was taken. Raises no server errors."""
        try:
            # Probe first, with a short time-out: the step could make an ending command wait for a dead server.
            if self._probe() is not None:
                return False
            step()
        except (*SERVER_ERRORS, BrokerUnreachable, ServerRefused):
            return False
        return True

    @contextlib.contextmanager
    def reporting(self) -> Iterator[None]:
        """Report waits during the block."""
        ended = threading.Event()
        thread = threading.Thread(target=self._report_until, args=(ended,), name="evalq-waiting", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            # No longer than its probe may take, so that a command ends in time if its server does not answer.
            thread.join(PROBE_SECONDS + 1)

    def _note(self, error: BaseException) -> None:
        """Note why a step failed. Raises evalq's own error if it does not pass or has lasted too long."""
        trouble = explained(error, self._server)
        if not isinstance(trouble, BrokerUnreachable):
            raise trouble from error.__cause__ or error
        with self._lock:
            now = time.monotonic()
            if self._since is None:
                # Count from the start of the step: with a stopped server, it fails only after its whole time-out.
                self._since = self._step_began or now
            self._reason = str(trouble)
            lasted = now - self._since
        if lasted >= self._settings.patience_seconds:
            raise BrokerUnreachable(f"{self._reason}; no change after {lasted:.0f} s (patience_seconds)") from error

    def _stand_by(self) -> None:
        """Wait until the ledger's server answers: a step would block for its whole time-out."""
        pause, longest = _PAUSES
        while (trouble := self._probe()) is not None:
            self._check()
            self._note(trouble)
            time.sleep(pause)
            pause = min(2 * pause, longest)

    def _probe(self) -> EvalqError | None:
        return probe(self._settings.ledger_address, self._settings, PROBE_SECONDS)

    def _report_until(self, ended: threading.Event) -> None:
        while not ended.wait(_POLL_SECONDS):
            self._check_step()
            self._report()

    def _check_step(self) -> None:
        """Probe the server if a step takes long; the step may also just have much to do."""
        began = self._step_began
        if began is None or self._since is not None or time.monotonic() - began < TELL_SECONDS:
            return
        trouble = self._probe()
        with self._lock:
            # Unless the step ended during the probe: then there was no trouble.
            if isinstance(trouble, BrokerUnreachable) and self._step_began == began and self._since is None:
                self._since, self._reason = began, str(trouble)

    def _report(self) -> None:
        with self._lock:
            now, since, reason = time.monotonic(), self._since, self._reason
            due = since is not None and now - since >= TELL_SECONDS
            if not due or (self._reported_at is not None and now - self._reported_at < AGAIN_SECONDS):
                return
            self._reported_at = now
        # Outside the lock: a stopped terminal blocks writers, and must not block the steps.
        if self._sink is not None and since is not None:
            self._sink.waiting(reason, now - since, self._settings.patience_seconds)
