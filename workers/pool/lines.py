"""A worker's log: errors that are no bug's have a line instead of a traceback."""

from __future__ import annotations

import logging

from billiard.exceptions import WorkerLostError

from evalq.evalcore.errors import BrokerUnreachable, StorageError
from evalq.workers.servers.errors import SERVER_ERRORS, explained

__all__ = ["without_traceback"]

_MORE = "raise the limits on open files and processes (ulimit, or the container's), or have fewer (--concurrency)"


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
    if limited := record.name == "celery.worker" and _limited(error):
        record.msg, record.args = f"{record.getMessage()}; {_MORE}", ()
    if away or limited or isinstance(error, WorkerLostError):
        record.exc_info = record.exc_text = None
    return True
