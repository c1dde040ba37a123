"""Who drives a run, among the processes that see its folder: the one that holds the lock on its run.lock.

The kernel gives the lock back when its holder ends, however it ends. The file may be removed and made anew, so a lock
counts only while the file that is locked is the one that has the name.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from evalq.evalcore.files import open_appending, open_raw, read_plain
from evalq.workers.processes import identity

LOCK = "run.lock"
CANCEL = "cancel.lock"
"""Held by whoever cancels the run for good, until its driver has ended."""
WAIT = "wait.lock"
"""Held by a command of the run that waits for its driver in another folder."""
_TRIES, _PAUSE = 5, 0.01
"""`holder` takes the lock for a moment, shared: a driver that meets it tries again."""


class RunLock:
    """A lock that this process holds."""

    def __init__(self, path: Path, file: FileIO) -> None:
        self._path = path
        self._file = file

    @classmethod
    def take(cls, path: Path) -> RunLock | None:
        """The lock at ``path``; None while another process has it. Raises OSError."""
        tries = 0
        while True:
            file = open_appending(path)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _same(file, path):
                    # For those who look: what counts is the kernel's lock, not what is written there.
                    os.truncate(file.fileno(), 0)
                    file.write(f"{identity.host()} {os.getpid()}".encode())
                    return cls(path, file)
                file.close()  # removed between opening and locking: another file has the name now
            except BlockingIOError:
                file.close()
                tries += 1
                if tries == _TRIES:
                    return None
                time.sleep(_PAUSE)
            except BaseException as error:
                file.close()
                if isinstance(error, OSError):
                    error.filename = error.filename or str(path)
                raise

    def moved(self, path: Path) -> None:
        """The folder was renamed: the same file is at ``path`` now."""
        self._path = path

    def release(self, *, remove: bool = False) -> None:
        """Let go; with ``remove``, of the file too, while it is still this process's."""
        # While it is still locked: a moment later the name could be that of the next driver's lock. It is already where
        # this folder was renamed to be removed, and somebody began a run under its name since.
        if remove and _same(self._file, self._path):
            with contextlib.suppress(OSError):
                self._path.unlink()
        self._file.close()


@contextlib.contextmanager
def saying(path: Path) -> Iterator[None]:
    """Hold the lock at ``path`` for a block, for others to see; where somebody does already, that one is seen."""
    lock = None
    with contextlib.suppress(OSError):  # where it cannot be said, it goes on without
        lock = RunLock.take(path)
    try:
        yield
    finally:
        if lock is not None:
            lock.release(remove=True)


def holder(path: Path) -> str:
    """ "host pid" of the process that holds the lock at ``path``; empty while nobody does. Changes nothing."""
    try:
        with open_raw(path) as file:
            # Shared, so that two who look at the same moment do not take each other for a driver.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _written(path) or "another process"
    except OSError:
        return ""
    return ""


def interrupt_holder(path: Path) -> bool:
    """Send SIGTERM to the process that holds the lock at ``path``: what Ctrl-C in its terminal would do to it.

    False, and nothing is sent, where that is not certainly a process of this host and of this user: its number is held
    while it is seen to have this very file open, so that it can be nobody else's.
    """
    host, _, number = holder(path).rpartition(" ")
    if host != identity.host() or not number.isdecimal() or not hasattr(os, "pidfd_open"):
        return False
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(int(number))
        try:
            if _has_open(int(number), path):
                signal.pidfd_send_signal(handle, signal.SIGTERM)
                return True
        finally:
            os.close(handle)
    return False


def _has_open(number: int, path: Path) -> bool:
    """Whether a process has the file at ``path`` open (Linux). Raises OSError where it may not be looked at."""
    wanted = path.stat()
    for opened in Path(f"/proc/{number}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.path.samestat(opened.stat(), wanted):
                return True
    return False


def _written(path: Path) -> str:
    with contextlib.suppress(OSError):
        return read_plain(path)[:200].decode(errors="replace").strip()
    return ""


def _same(file: FileIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False
