"""A worker's log: errors that are no bug have a line instead of a traceback, and lasting trouble is no flood."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from billiard.exceptions import RestartFreqExceeded, WorkerLostError

from evalq.evalcore.errors import BrokerUnreachable, StorageError
from evalq.workers.servers.complaint import AGAIN_SECONDS
from evalq.workers.servers.errors import SERVER_ERRORS, explained

__all__ = ["Reconnecting", "without_traceback"]

_MORE = "raise the limits on open files and processes (ulimit, or the container's), or have fewer (--concurrency)"

_GIVES_UP = "Too many open files. Aborting..."
"""What Celery says, without the error, where its loop gets none."""


def _limited(error: BaseException | None) -> bool:
    """Whether the system gives this worker no more processes, or no more files that go with them."""
    return isinstance(error, OSError) and error.errno in StorageError.NO_FILES | StorageError.NO_PROCESS


def without_traceback(record: logging.LogRecord) -> bool:
    """A lost pool process or server has no traceback worth showing: a line says what happened."""
    error = record.exc_info[1] if record.exc_info else None
    error = getattr(error, "exc", error)  # billiard raises its own in a wrapper, with the traceback as text
    away = isinstance(error, (BrokerUnreachable, *SERVER_ERRORS))
    if error is not None and away:
        record.msg, record.args = f"{record.getMessage()} ({explained(error, 'the server')})", ()
    if limited := record.getMessage() == _GIVES_UP or (record.name == "celery.worker" and _limited(error)):
        record.msg, record.args = f"{record.getMessage()}; {_MORE}", ()
    if away or limited or isinstance(error, WorkerLostError):
        record.exc_info = record.exc_text = None
    return True


class Reconnecting:
    """A filter of records: what Celery says of its connection is said once, then every AGAIN_SECONDS.

    To a server that answers but takes no writes (a replica that was a primary until now) it connects five times a
    second, and says so each time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said: dict[tuple[str, type[BaseException] | None], float] = {}

    def __call__(self, record: logging.LogRecord) -> bool:
        """Whether the record is to be shown; one of the connection becomes a single line."""
        if record.name != "celery.worker.consumer.consumer":
            return True
        if record.exc_info and isinstance(record.exc_info[1], RestartFreqExceeded):
            return False  # that it waits a second now, with a traceback, after the lines that say why
        record.msg, record.args = " ".join(record.getMessage().split()), ()
        # With what broke the connection: a server that is back and refuses the password is news behind the same words.
        error = record.exc_info[0] if record.exc_info else None
        now, line = self._clock(), (record.msg, error)
        self._said = {said: at for said, at in self._said.items() if now - at < AGAIN_SECONDS}
        if line in self._said:
            return False
        self._said[line] = now
        return True
