"""Locks of a run folder: the process that holds run.lock drives the run.

The kernel releases the lock when its holder ends. The file may be removed and made again, so a lock counts only while
the locked file is still the one with that name.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from evalq.evalcore.files import lock_file, open_appending, open_raw, read_plain
from evalq.workers.processes import identity

LOCK = "run.lock"
CANCEL = "cancel.lock"
"""Held by the command that cancels the run, until the run's driver has ended."""
WAIT = "wait.lock"
"""Held by a command that waits for the run's driver in another folder."""
_TRIES, _PAUSE = 5, 0.01
"""`holder` takes a shared lock for a moment, so a driver tries several times."""


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
                lock_file(file)
                if _is_same_file(file, path):
                    # For display: only the kernel's lock counts.
                    os.truncate(file.fileno(), 0)
                    file.write(f"{identity.host()} {os.getpid()}".encode())
                    return cls(path, file)
                file.close()  # another process removed and replaced it before the lock
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
        """Note that the folder was renamed, and that the file is at ``path`` now."""
        self._path = path

    def release(self, *, remove: bool = False) -> None:
        """Release the lock; with ``remove``, remove the file if it is still this one."""
        # Before unlocking: a moment later the name could belong to the next driver's lock. It may do so already if this
        # folder was renamed in order to be removed, and another run began under its name.
        remove = remove and _is_same_file(self._file, self._path)
        if remove:
            with contextlib.suppress(OSError):
                self._path.unlink()
        self._file.close()
        if remove and os.name == "nt":  # which removes no file that is open
            with contextlib.suppress(OSError):
                self._path.unlink()


@contextlib.contextmanager
def signalling(path: Path) -> Iterator[None]:
    """Hold the lock at ``path`` for a block as a signal to others; if another process holds it, that is the signal."""
    lock = None
    with contextlib.suppress(OSError):  # go on without the signal
        lock = RunLock.take(path)
    try:
        yield
    finally:
        if lock is not None:
            lock.release(remove=True)


def holder(path: Path) -> str:
    """ "host pid" of the process that holds the lock at ``path``; empty if none does. Changes nothing."""
    try:
        with open_raw(path) as file:
            # Shared, so that two readers do not take each other for a driver.
            lock_file(file, shared=True)
    except BlockingIOError:
        return _read_holder(path) or "another process"
    except OSError:
        return ""
    return ""


def interrupt_holder(path: Path) -> bool:
    """Send SIGTERM to the process that holds the lock at ``path``: like Ctrl-C in its terminal.

    False if it may not be a process of this host and this user. The handle stays open while this checks that the
    process has this very file open, so its number cannot have been reused.
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
    """Whether a process has the file at ``path`` open (Linux). Raises OSError without permission."""
    wanted = path.stat()
    for opened in Path(f"/proc/{number}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.path.samestat(opened.stat(), wanted):
                return True
    return False


def _read_holder(path: Path) -> str:
    with contextlib.suppress(OSError):
        return read_plain(path)[:200].decode(errors="replace").strip()
    return ""


def _is_same_file(file: FileIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False
