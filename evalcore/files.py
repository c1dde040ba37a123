"""Opening files in folders that somebody else may have filled: an untrusted checkout, or a data folder in use.

evalq writes through no link, and under no name that anybody could guess. It reads only plain files: a pipe or a device
could keep its reader waiting for ever, or never end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from importlib import import_module
from io import BufferedReader, FileIO
from pathlib import Path
from typing import IO, Any, BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_PIECE = 1 << 20
_NEVER_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)


def read_up_to(stream: BinaryIO, most: int) -> bytes:
    """The rest of ``stream``, or ``most`` + 1 bytes if it is longer. Raises OSError."""
    # Read in pieces: otherwise Python allocates all of ``most`` before it reads anything.
    parts, left = [], most + 1
    while left and (part := stream.read(min(left, _PIECE))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


@contextlib.contextmanager
def replacing(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A stream whose bytes become the file at ``path`` if the block succeeds; otherwise the old file stays.

    The bytes go to a new file next to it, under a random name, which is synced and renamed. If ``path`` is a link, the
    new file replaces the link. ``mode`` is the file's, less the umask. Raises OSError.
    """
    partial = path.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        with open(partial, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as out:
            yield out
            out.flush()
            # Sync before the rename: otherwise a crash can leave the new name without the bytes.
            os.fsync(out.fileno())
        partial.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and (error.filename == str(partial) or _of_the_disk(error)):
            error.filename = str(path)  # the name that its user knows
        raise


def _of_the_disk(error: OSError) -> bool:
    """Whether it is an error of a write, which names no file."""
    return error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def write_atomic(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Write a whole file or nothing (see `replacing`)."""
    with replacing(path, mode=mode) as out:
        out.write(data)


def open_new(path: Path) -> BinaryIO:
    """A new file that replaces anything at ``path``; the target of a link there stays. Raises OSError."""
    path.unlink(missing_ok=True)
    return path.open("xb")  # O_EXCL follows no link


def open_appending(path: Path) -> FileIO:
    """The plain file at ``path``, created if missing, unbuffered. Raises OSError, ELOOP for a link."""
    return open(path, "ab", buffering=0, opener=_unlinked)


def open_input(path: str | os.PathLike[str]) -> BufferedReader:
    """The plain file at ``path``, or behind a link there. Raises OSError for anything else, and never waits."""
    return open(path, "rb", opener=_plain)


def read_plain(path: str | os.PathLike[str]) -> bytes:
    """All of the plain file at ``path`` (see `open_input`). Raises OSError."""
    with open_input(path) as stream:
        return stream.read()


def open_unlinked(path: str | os.PathLike[str]) -> BufferedReader:
    """The plain file at ``path``. Raises OSError for anything else, and for a link."""
    return open(path, "rb", opener=_plain_unlinked)


def open_given(path: str | os.PathLike[str]) -> BufferedReader:
    """The file that a user names: as `open_input`, but also standard input, and the pipe of ``<(command)``."""
    from_shell = os.path.normpath(path).startswith(("/dev/fd/", "/dev/stdin", "/proc/self/fd/"))
    return open(path, "rb") if from_shell else open_input(path)


def open_raw(path: str | os.PathLike[str]) -> FileIO:
    """The plain file at ``path``, or behind a link there, unbuffered. Raises OSError."""
    return open(path, "rb", buffering=0, opener=_plain)


def _unlinked(path: str, flags: int) -> int:
    try:
        return _plain_unlinked(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "a link, and evalq writes through no link: remove it", path) from None
        raise


def _plain_unlinked(path: str, flags: int) -> int:
    """As `_plain`, for no link."""
    # Windows cannot refuse a link as it opens one; there a link could still be put in place after this check.
    if not hasattr(os, "O_NOFOLLOW") and Path(path).is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return _plain(path, flags | getattr(os, "O_NOFOLLOW", 0))


def _plain(path: str, flags: int) -> int:
    """A descriptor of a regular file: opening a pipe would wait for its other end, reading a terminal for a person."""
    # Check the open file, not the name, since another file could take that name before it is opened.
    descriptor = os.open(path, flags | _NEVER_WAIT, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a plain file (a pipe, a device or a folder)", path)
    return descriptor


# -- locks: the kernel releases them when their holder ends ----------------------------------------

_FAR = 1 << 40
"""Nobody can read a byte that is locked on Windows, so the lock is on one far behind the file's end."""


def lock_file(file: IO[Any], *, wait: bool = False, shared: bool = False) -> None:
    """Lock an open file, or raise BlockingIOError while another process has it locked; with ``wait``, wait for that.

    Several processes can hold a ``shared`` lock, except on Windows. Raises OSError.
    """
    if fcntl is not None:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        return
    while True:
        try:
            _lock_byte(file, "LK_LOCK" if wait else "LK_NBLCK")  # the first gives up after ten seconds
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EDEADLK):
                raise
            if not wait:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None
        else:
            return


def unlock_file(file: IO[Any]) -> None:
    """Release a lock before its file is closed. Raises OSError."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_UN)
    else:
        _lock_byte(file, "LK_UNLCK")


def _lock_byte(file: IO[Any], mode: str) -> None:
    """What Windows has in place of `flock`."""
    msvcrt: Any = import_module("msvcrt")
    before = os.lseek(file.fileno(), 0, os.SEEK_CUR)
    os.lseek(file.fileno(), _FAR, os.SEEK_SET)
    try:
        msvcrt.locking(file.fileno(), getattr(msvcrt, mode), 1)
    finally:
        os.lseek(file.fileno(), before, os.SEEK_SET)
