"""The run folder: everything that a run needs to be resumed, and its results.

While a run goes: `run.json` (request and state), `manifest.jsonl` (header, chunks, seal, a line each),
`chunks.key` (the secret of the chunks' digests), `parts.journal` (answers in chunk order) and `records.jsonl.partial`.
At the end these become manifest.json, report.json, results.yaml, report.md, report.html and records.jsonl, each
written under another name first and renamed.
A run with dead records keeps its working files, so that a retry computes only their chunks.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from evalq.evalcore.errors import EvalqError, StorageError, UsageError
from evalq.evalcore.files import write_atomic
from evalq.evalcore.model.canonical import Json, canonical_json
from evalq.evalcore.model.life import RunState, may_follow, next_step
from evalq.evalcore.naming import is_text
from evalq.evalcore.trust import Thing, Writer, refuse
from evalq.producer.folder.documents import SCHEMA, RunInfo, info_of, read_facts, read_report
from evalq.producer.folder.files import (
    HEAD,
    INFO,
    JOURNAL,
    KEPT,
    KEY,
    MANIFEST,
    RECORDS,
    is_unfinished,
    remove_unfinished,
)
from evalq.producer.folder.lock import CANCEL, LOCK, WAIT, RunLock, holder, signalling

# Private names under which run folders are made, and their removal after a kill.

_YOUNG_SECONDS = 60.0
_SCRATCH = re.compile(r"scratch-[a-z0-9_]{8}")
"""Folders of tempfile."""
_HALF = re.compile(r"\.[0-9a-f]{16}\.partial")
"""Files of `evalq.evalcore.files.replacing`."""


def private_name(path: Path) -> Path:
    """A name beside ``path`` that no other process uses."""
    # Six bytes: the twelve digits that `is_private` expects.
    return path.with_name(f".{path.name}.{secrets.token_hex(6)}")


def is_private(name: str, of: str = "") -> bool:
    """Whether ``name`` is a private one (``of`` a folder of that name)."""
    return re.fullmatch(rf"\.{re.escape(of) or '.+'}\.[0-9a-f]{{12}}", name) is not None


def clean_up(parent: Path, name: str = "", *, dry_run: bool = False) -> list[Path]:
    """Remove folders in ``parent`` of processes that were killed while they began a run (of that ``name``).

    Returns the folders. Folders of living processes are locked, and stay.
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
    """Remove unfinished files of killed drivers in the folder at ``path``. Only the run's driver may call it."""
    for entry in list(os.scandir(path)):
        if _SCRATCH.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        elif _HALF.fullmatch(entry.name):
            with contextlib.suppress(OSError):
                # Commands that write outputs or cases.json are no drivers, and may be writing now.
                if time.time() - entry.stat(follow_symlinks=False).st_mtime >= _YOUNG_SECONDS:
                    Path(entry.path).unlink()


def _remove(path: Path) -> bool:
    """Remove a folder under its lock, so that no process begins to use it; False if one already has."""
    # A slow process may return to a folder that looks abandoned: the lock decides.
    lock = RunLock.take(path / LOCK)
    if lock is None:
        return False
    shutil.rmtree(path)
    lock.release()
    return True


def _make_locked(path: Path, made: list[Path]) -> RunLock | None:
    """Make a folder at the private name ``path`` and lock it; None if another process removed it as a leftover.

    Adds the parents that it makes to ``made``. A folder that cannot be locked is removed. Raises OSError.
    """
    try:
        _make_parents(path.parent, made)
        path.mkdir()
    except FileNotFoundError:
        if path.parent.is_dir():  # not a place for folders, such as /proc; otherwise the parent was removed meanwhile
            raise
        return None
    try:
        return RunLock.take(path / LOCK)
    except FileNotFoundError:
        return None
    except OSError:
        shutil.rmtree(path, ignore_errors=True)
        raise


def _not_made(path: Path, error: OSError) -> EvalqError:
    """The error for a run folder that cannot be made at ``path``; only a full disk keeps the name."""
    text = f"{path}: the run folder cannot be made: {error.strerror or error}"
    if error.errno in StorageError.NO_SPACE:
        return StorageError(f"{text}; free some space, then run the command again")
    if error.errno in StorageError.NO_FILES:
        return StorageError(f"{text}; raise the limit on open files (ulimit -n), then run the command again")
    if error.errno in StorageError.NO_DISK:
        return StorageError(f"{text}; check the disk, then run the command again")
    return UsageError(f"{text}; name another with --out")


def _make_parents(path: Path, made: list[Path]) -> None:
    """Make ``path`` and its parents, and add those that this process makes to ``made``. Raises OSError."""
    if not path.is_dir():
        _make_parents(path.parent, made)
        try:
            path.mkdir()
            made.append(path)
        # Another process may make the same parents. A dead link never becomes a folder, so trying again would not end.
        except FileExistsError:
            if path.is_symlink() and not path.exists():
                raise NotADirectoryError(errno.ENOTDIR, "a link that leads nowhere is in the way", str(path)) from None


def _remove_empty(made: list[Path]) -> None:
    """Remove folders that this process made, unless another process uses them by now."""
    with contextlib.suppress(OSError):
        while made:
            # Only the empty folder: another process may have put a run there.
            made[-1].rmdir()
            made.pop()


_NOT_FOR_FOLDERS = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF, errno.ENOTTY}
"""Errors of file systems that cannot sync a folder, such as SMB, FUSE, 9P and shared folders of virtual machines."""


def sync_folder(path: Path) -> None:
    """Sync a folder, so that its new files survive a crash of the machine, if the file system supports that.

    Raises OSError with the folder's name.
    """
    if not hasattr(os, "O_DIRECTORY"):  # Windows, which opens no folder
        return
    # Without this a synced file may lose its name, which is in the folder.
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NOT_FOR_FOLDERS:
            raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(handle)


_COLLISION = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


class FolderTaken(Exception):
    """Another process has already made a run folder of this name."""


class RunFolder:
    """A run's folder at ``path``.

    `begin` makes one and holds its lock from the start; an existing one is read-only until `driving`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.final_path = path
        """The folder's path once it is complete; ``path`` is the current one."""
        self._lock: RunLock | None = None
        self._made: list[Path] | None = None
        self._own = False

    @classmethod
    @contextlib.contextmanager
    def begin(cls, path: Path) -> Iterator[RunFolder]:
        """A new locked folder, filled in the block; it gets its name only at the end of the block.

        It is made under a private name in the same parent and renamed; an existing empty folder is filled in place.
        After an exception in the block it is removed. Raises FolderTaken if another process has made it, and UsageError
        if there is something else, or if it cannot be made.
        """
        made: list[Path] = []
        try:
            folder = cls._use_existing(path) if path.is_dir() else cls._make_private(path, made)
        except OSError as error:
            _remove_empty(made)
            raise _not_made(path, error) from error
        except BaseException:
            _remove_empty(made)
            raise
        folder._made = made
        try:
            yield folder
            folder._settle()
        except BaseException:
            folder.discard()
            raise

    @classmethod
    def _make_private(cls, path: Path, made: list[Path]) -> RunFolder:
        if os.path.lexists(path) and not path.is_dir():  # a file, or a link that leads nowhere
            raise NotADirectoryError(errno.ENOTDIR, "something that is not a folder is in the way", str(path))
        clean_up(path.parent, path.name)
        while True:
            folder = cls(private_name(path))
            folder.final_path, folder._own = path, True
            folder._lock = _make_locked(folder.path, made)
            if folder._lock is not None:
                return folder

    @classmethod
    def _use_existing(cls, path: Path) -> RunFolder:
        """Use the user's existing folder in place: a shell or editor may be in it."""
        folder = cls(path)
        folder._refuse_used()
        folder._lock = RunLock.take(path / LOCK)
        if folder._lock is None:
            raise FolderTaken
        # Check again under the lock: another process may have run here in between.
        try:
            folder._refuse_used()
        except UsageError:
            folder._lock.release(remove=not (path / INFO).exists())
            raise
        remove_unfinished(path)  # of a run that was killed before it wrote run.json
        return folder

    def _names(self) -> set[str]:
        return {entry.name for entry in self.path.iterdir()}

    def _refuse_used(self) -> None:
        names = self._names()
        if names and (INFO in names or LOCK not in names or not all(map(is_unfinished, names))):
            raise UsageError(f"{self.path}: the folder is not empty; name another with --out, or resume the run in it")

    def _settle(self) -> None:
        """Give the folder its name, safely on disk. Raises FolderTaken."""
        # The content before the name, so that after a crash a folder of that name has its run.json.
        sync_folder(self.path)
        if self._own:
            lock = self._lock
            if lock is not None and os.name == "nt":  # which renames no folder in which a file is open
                lock.release()
            try:
                self.path.rename(self.final_path)
            except OSError as error:
                if error.errno in _COLLISION:
                    raise FolderTaken from error
                raise
            self.path = self.final_path
            if lock is not None and os.name == "nt":
                self._lock = RunLock.take(self.path / LOCK)
            elif lock is not None:
                lock.moved(self.path / LOCK)
        sync_folder(self.path.parent)

    def settled(self, path: str) -> str:
        """The path of a file once this folder has its final name; a path elsewhere stays the same."""
        for now, final in ((self.path, self.final_path), (self.path.absolute(), self.final_path.absolute())):
            if Path(path).is_relative_to(now):
                return str(final / Path(path).relative_to(now))
        return path

    @classmethod
    def existing(cls, path: Path) -> RunFolder:
        """An existing run folder. Raises UsageError if it is none."""
        if not (path / INFO).is_file():
            raise UsageError(f"{path}: not a run folder (it has no run.json)")
        return cls(path)

    @contextlib.contextmanager
    def driving(self) -> Iterator[bool]:
        """Whether this process may drive the run: not while another does. A killed process loses its lock."""
        lock, self._lock = self._lock or RunLock.take(self.path / LOCK), None
        if lock is None:
            yield False
            return
        try:
            yield True
        finally:
            lock.release(remove=self._finished())

    def driver(self) -> str:
        """ "host pid" of the process that drives the run here; empty if none does. Takes no lock."""
        return holder(self.path / LOCK)

    def cancelling(self) -> AbstractContextManager[None]:
        """A block that signals the run's driver that the run is being cancelled."""
        return signalling(self.path / CANCEL)

    def being_cancelled(self) -> bool:
        """Whether a command is cancelling the run."""
        return bool(holder(self.path / CANCEL))

    def waiting(self) -> AbstractContextManager[None]:
        """A block that shows that this process waits for a driver in another folder."""
        return signalling(self.path / WAIT)

    def waiter(self) -> str:
        """ "host pid" of a process that waits here for a driver in another folder; empty if none does."""
        return holder(self.path / WAIT)

    @property
    def begun(self) -> bool:
        """Whether the folder has a run."""
        return (self.path / INFO).is_file()

    @property
    def spool(self) -> Path:
        """The folder of unpacked inputs."""
        return self.path / "spool"

    @property
    def records(self) -> Path:
        """records.jsonl."""
        return self.path / RECORDS

    def own(self, name: str) -> Path:
        """The path of the file ``name`` in it. Raises UsageError for a link that leads elsewhere: a folder of
        somebody else must not choose files of this user.
        """
        path = self.path / name
        if path.is_symlink():
            then = "remove the link, or put the file itself there"
            refuse(Writer.RUN_FOLDER, Thing.PATH, str(path), str(self.path), then, (self.path, Path.cwd()))
        return path

    def facts(self) -> dict[str, Json]:
        """All of run.json, unknown keys included. Raises WireError, StorageError, and UsageError if there is none."""
        path = self.path / INFO
        try:
            return read_facts(path)
        except FileNotFoundError:
            raise UsageError(f"{self.path}: not a run folder (it has no run.json)") from None
        except OSError as error:
            raise StorageError.of(error, path, "run the command again") from error

    def info(self) -> RunInfo:
        """run.json. Raises WireError if it is damaged, UsageError if there is none."""
        return info_of(self.facts(), self.path / INFO)

    @property
    def reported(self) -> bool:
        """Whether the run has a report."""
        return (self.path / "report.json").is_file()

    def named(self, server: str = "") -> str:
        """The run as a command's argument, with the options that name its ``server``."""
        return f"{shlex.quote('./' * str(self.path).startswith('-') + str(self.path))} {server}".rstrip()

    def next_step(self, state: RunState) -> str:
        """The user's next step for a run that no process drives."""
        info, reported = self.info(), state == "done" and self.reported  # otherwise its report is on the server
        shown: RunState = "following" if info.follows and state != "cancelled" else state
        return next_step(shown, self.named("" if reported else info.server))

    def report(self) -> dict[str, Json]:
        """report.json. Raises UsageError if the run has none (yet), WireError if evalq cannot read it."""
        path = self.path / "report.json"
        if not self.reported:
            state = self.info().state
            then = "somebody removed it: run the evaluation again" if state == "done" else self.next_step(state)
            if by := self.driver():
                then = f"{by} drives it: wait for it with evalq watch {self.named()}"
            raise UsageError(f"{self.path}: this run has no report (it is {state}); {then}")
        return read_report(path)

    def note(self, **facts: Json) -> None:
        """Set keys of run.json (None removes one). Raises UsageError for a forbidden change of state, OSError."""
        path = self.path / INFO
        if not path.is_file() and "started" not in facts:  # the folder was moved away during its run
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        known: dict[str, Json] = self.facts() if path.is_file() else {"schema": SCHEMA}
        before: RunState | None = known.get("state")
        after: RunState | None = facts.get("state")
        if before is not None and after is not None and not may_follow(after, before):
            raise UsageError(
                f"{self.final_path}: this run is {before}, and cannot become {after}; {self.next_step(before)}"
            )
        document = {name: fact for name, fact in {**known, **facts}.items() if fact is not None}
        if not is_text(json.dumps(document, ensure_ascii=False)):
            where = f"{self.final_path}: this run cannot be written down"
            raise UsageError(f"{where}: the path of the current folder is not text in UTF-8; rename it")
        info_of(document, path)  # never write a document that evalq could not read
        write_atomic(path, msgspec.json.format(canonical_json(document), indent=2) + b"\n")

    def write(self, name: str, data: bytes) -> None:
        """Write one of the run's final files atomically."""
        write_atomic(self.path / name, data)

    def drop_working_files(self) -> None:
        """Remove the files that only an unfinished run needs, except the lock."""
        for name in (MANIFEST, JOURNAL, KEPT, KEY, RECORDS + ".partial"):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.spool, ignore_errors=True)

    def discard(self) -> None:
        """Remove a run that this process began, and the folders that it made, unless they hold anything else.

        Runs and files of others stay, and so does a report.
        """
        unnamed = self._own and self.path != self.final_path  # all files in it are this process's
        if self._made is None or (self.reported and not unnamed):
            return
        with contextlib.suppress(OSError):
            # A file of another process stays, and so does the folder.
            if unnamed or (self._own and all(map(is_unfinished, self._names()))):
                gone = self.path.rename(private_name(self.final_path))  # atomic for other processes
                shutil.rmtree(gone)
            else:
                remove_unfinished(self.path)
            _remove_empty(self._made)
        if self._lock is not None:
            self._lock.release(remove=True)
            self._lock = None

    def _finished(self) -> bool:
        """Whether no work is left, so that the lock file can be removed."""
        with contextlib.suppress(EvalqError):
            over = self.info().state == "done"
            return over and not any((self.path / name).exists() for name in (MANIFEST, JOURNAL, HEAD))
        return True  # no run at all (any more)


# The runs of a parent folder.


def run_folders(parent: Path, warn: Callable[[str], None]) -> list[tuple[RunFolder, RunInfo]]:
    """The runs in ``parent``, the latest begun last; warns of folders that it cannot read, and skips them."""
    found = []
    for path in parent.glob("*/" + INFO):
        # A folder that is being made has its run.json before it has its name.
        if is_private(path.parent.name) or not path.is_file():
            continue
        try:
            info = RunFolder(path.parent).info()
            # By the start in run.json: the file itself is written again with each note and each copy, so its time only
            # decides within a second.
            found.append(((info.started, path.stat().st_ctime_ns, path.parent), info))
        except (EvalqError, OSError) as error:
            warn(f"warning: {path.parent} is skipped: {error}")
    return [(RunFolder(key[-1]), info) for key, info in sorted(found, key=lambda each: each[0])]
