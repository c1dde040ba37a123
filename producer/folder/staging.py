"""Names under which run folders are made before they have their own, and what killed processes left under them."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import time
from pathlib import Path

from evalq.evalcore.errors import EvalqError, StorageError, UsageError
from evalq.producer.folder.lock import LOCK, RunLock, holder

__all__ = [
    "clean_up",
    "is_private",
    "make_locked",
    "not_made",
    "private_name",
    "remove_empty",
    "remove_halves",
    "sync_folder",
]

_YOUNG_SECONDS = 60.0
_SCRATCH = re.compile(r"scratch-[a-z0-9_]{8}")
"""As tempfile names folders."""
_HALF = re.compile(r"\.[0-9a-f]{16}\.partial")
"""As `evalq.evalcore.files.replacing` does files."""


def private_name(path: Path) -> Path:
    """A name beside ``path`` that nobody else uses or looks at."""
    # Six bytes: the twelve digits by which `is_private` knows such a name.
    return path.with_name(f".{path.name}.{secrets.token_hex(6)}")


def is_private(name: str, of: str = "") -> bool:
    """Whether ``name`` is a private one (``of`` a folder of that name)."""
    return re.fullmatch(rf"\.{re.escape(of) or '.+'}\.[0-9a-f]{{12}}", name) is not None


def clean_up(parent: Path, name: str = "", *, dry_run: bool = False) -> list[Path]:
    """Remove what processes that were killed while they began a run (of that ``name``) left in ``parent``.

    Returns what was removed, or would be. What a living process is at is locked, and stays.
    """
    removed = []
    for entry in os.scandir(parent) if parent.is_dir() else ():
        path = Path(entry.path)
        if not is_private(entry.name, name) or not entry.is_dir(follow_symlinks=False) or holder(path / LOCK):
            continue
        with contextlib.suppress(OSError):
            if not (path / LOCK).exists() and time.time() - path.stat().st_mtime < _YOUNG_SECONDS:
                continue  # its maker may be about to lock it
            if dry_run or _remove(path):
                removed.append(path)
    return removed


def remove_halves(path: Path) -> None:
    """Remove what killed drivers of the run in the folder at ``path`` were writing there. For the run's driver."""
    for entry in list(os.scandir(path)):
        if _SCRATCH.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        elif _HALF.fullmatch(entry.name):
            with contextlib.suppress(OSError):
                # Whoever writes outputs of a run there, or how its cases went, is no driver, and may be at it.
                if time.time() - entry.stat(follow_symlinks=False).st_mtime >= _YOUNG_SECONDS:
                    Path(entry.path).unlink()


def _remove(path: Path) -> bool:
    """Under its lock, so that nobody begins to use it meanwhile; False where somebody did before."""
    # A process that is slow to begin may come back to a folder that looks left: who has the lock decides.
    lock = RunLock.take(path / LOCK)
    if lock is None:
        return False
    shutil.rmtree(path)
    lock.release()
    return True


def make_locked(path: Path, made: list[Path]) -> RunLock | None:
    """Make a folder at ``path``, a private name, and lock it; None when another process took it for a leftover.

    The folders above it that this process made are noted in ``made``. Of one that cannot be locked nothing stays.
    Raises OSError.
    """
    try:
        _make_parents(path.parent, made)
        path.mkdir()
    except FileNotFoundError:
        if path.parent.is_dir():  # nothing can be made there, as under /proc; else it was empty, and removed meanwhile
            raise
        return None
    try:
        return RunLock.take(path / LOCK)
    except FileNotFoundError:
        return None
    except OSError:
        shutil.rmtree(path, ignore_errors=True)
        raise


def not_made(path: Path, error: OSError) -> EvalqError:
    """Why there can be no run folder at ``path``: a full disk may pass, everything else is a matter of the name."""
    said = f"{path}: the run folder cannot be made: {error.strerror or error}"
    if error.errno in StorageError.NO_SPACE:
        return StorageError(f"{said}; free some space, then run the command again")
    if error.errno in StorageError.NO_FILES:
        return StorageError(f"{said}; raise the limit on open files (ulimit -n), then run the command again")
    if error.errno in StorageError.NO_DISK:
        return StorageError(f"{said}; check the disk, then run the command again")
    return UsageError(f"{said}; name another with --out")


def _make_parents(path: Path, made: list[Path]) -> None:
    """Make ``path`` and what lies above it, noting in ``made`` what this process made. Raises OSError."""
    if not path.is_dir():
        _make_parents(path.parent, made)
        try:
            path.mkdir()
            made.append(path)
        # Another process may make the same parents, which is as good. A dead link never becomes a folder: whoever
        # took it for one would try again for ever.
        except FileExistsError:
            if path.is_symlink() and not path.exists():
                raise NotADirectoryError(errno.ENOTDIR, "a link that leads nowhere is in the way", str(path)) from None


def remove_empty(made: list[Path]) -> None:
    """Remove folders that this process made, unless somebody else uses them by now."""
    with contextlib.suppress(OSError):
        while made:
            # The folder alone, never what is in it: another process may have put a run there.
            made[-1].rmdir()
            made.pop()


_NOT_FOR_FOLDERS = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF, errno.ENOTTY}
"""What SMB, FUSE, 9P and shared folders of virtual machines answer who would sync a folder: they cannot."""


def sync_folder(path: Path) -> None:
    """What was made in a folder is there after a crash of the machine, where its file system can promise that.

    Raises OSError, which names the folder.
    """
    # A synced file may still be lost with its name, which is written in the folder.
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NOT_FOR_FOLDERS:
            raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(handle)
