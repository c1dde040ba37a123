"""Waiting for servers, aloud: what is waited for is said within seconds, and ends within ``patience_seconds``.

Steps run in the caller's thread, which may stand in a system call; a second thread tells. It also asks the server
itself when a step takes long, since a stopped server neither answers nor refuses.
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
"""What lasts shorter is not told."""
PROBE_SECONDS = 2.0
_PAUSES = (0.1, 2.0)
"""The first and the longest pause before a step is tried again, each twice the one before."""
_LOOK_SECONDS = 0.25


class ServerRetry:
    """Takes steps on servers. Steps may be repeated at any point, so each has to be idempotent.

    ``check`` is asked before every step, and raises what waiting cannot cure.
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
        self._what = ""
        self._said_at: float | None = None
        self._held = False
        self.waits = 0
        """How often a step had to be taken again: while that is so, nobody else could be heard of either."""

    def __call__(self, step: Callable[[], T]) -> T:
        """Take a step and return what it does; while its server cannot, wait and take it again.

        Raises BrokerUnreachable after ``patience_seconds`` of that, and what does not pass by itself at once.
        """
        pause, longest = _PAUSES
        while True:
            # Before each try: a server of this command's own that has been given up does not come back.
            self._check()
            self._step_began, self._held = time.monotonic(), False
            try:
                done = step()
            except (*SERVER_ERRORS, BrokerUnreachable) as error:
                self.waits += 1
                self._suffer(error)
            else:
                # A step that went on in part only has not ended the trouble.
                if not self._held:
                    self.over()
                return done
            finally:
                self._step_began = None
            time.sleep(pause)
            pause = min(2 * pause, longest)
            self._stand_by()

    def client(self) -> redis.Redis:
        """The ledger, for steps that are taken here: whatever fails is tried again here, and nowhere else.

        Raises BrokerUnreachable where nothing answers from the start, and ServerRefused.
        """
        return connect(self._settings.ledger_address, self._settings, self._settings.answer_seconds, again=False)

    def held(self, error: BaseException) -> None:
        """A step goes on in part only, for ``error`` that passes: told and limited as if all of it stood still."""
        self._held = True
        self._suffer(error)

    def over(self) -> None:
        """Nothing is waited for any more."""
        with self._lock:
            since, said, self._since, self._said_at = self._since, self._said_at, None, None
        if since is not None and said is not None and self._sink is not None:
            self._sink.recovered(self._what, time.monotonic() - since)

    def once(self, step: Callable[[], object]) -> bool:
        """Take a last step if its server answers at once; whether it was taken. Raises nothing of a server's."""
        try:
            # Asked first, with its short time-out: the step alone could keep a command that ends waiting for a dead
            # server.
            if self._probed() is not None:
                return False
            step()
        except (*SERVER_ERRORS, BrokerUnreachable, ServerRefused):
            return False
        return True

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """Tell what is waited for, as long as the block."""
        ended = threading.Event()
        thread = threading.Thread(target=self._tell_until, args=(ended,), name="evalq-waiting", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            # No longer than its probe may take: a command ends in time also where its server does not answer.
            thread.join(PROBE_SECONDS + 1)

    def _suffer(self, error: BaseException) -> None:
        """Note why a step failed. Raises it as evalq's own when it does not pass, or has lasted too long."""
        trouble = explained(error, self._server)
        if not isinstance(trouble, BrokerUnreachable):
            raise trouble from error.__cause__ or error
        with self._lock:
            now = time.monotonic()
            if self._since is None:
                # From when the step began, not from its failure: a server that is stopped lets the whole time-out pass
                # first.
                self._since = self._step_began or now
            self._what = str(trouble)
            lasted = now - self._since
        if lasted >= self._settings.patience_seconds:
            raise BrokerUnreachable(f"{self._what}; still so after {lasted:.0f} s (patience_seconds)") from error

    def _stand_by(self) -> None:
        """Until the ledger's server answers: a step on one that does not would stand for as long as it may take."""
        pause, longest = _PAUSES
        while (trouble := self._probed()) is not None:
            self._check()
            self._suffer(trouble)
            time.sleep(pause)
            pause = min(2 * pause, longest)

    def _probed(self) -> EvalqError | None:
        return probe(self._settings.ledger_address, self._settings, PROBE_SECONDS)

    def _tell_until(self, ended: threading.Event) -> None:
        while not ended.wait(_LOOK_SECONDS):
            self._notice()
            self._tell()

    def _notice(self) -> None:
        """Ask the server why a step takes long; a step may also have much to do here."""
        began = self._step_began
        if began is None or self._since is not None or time.monotonic() - began < TELL_SECONDS:
            return
        trouble = self._probed()
        with self._lock:
            # Unless the step ended while the server was asked: then there was no trouble.
            if isinstance(trouble, BrokerUnreachable) and self._step_began == began and self._since is None:
                self._since, self._what = began, str(trouble)

    def _tell(self) -> None:
        with self._lock:
            now, since, what = time.monotonic(), self._since, self._what
            due = since is not None and now - since >= TELL_SECONDS
            if not due or (self._said_at is not None and now - self._said_at < AGAIN_SECONDS):
                return
            self._said_at = now
        # Outside the lock: a terminal that is stopped holds up whoever writes to it, and must not hold up the steps.
        if self._sink is not None and since is not None:
            self._sink.waiting(what, now - since, self._settings.patience_seconds)
