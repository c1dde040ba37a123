"""The run folder: everything a run needs to be resumed, and at its end everything that is shown of it.

While a run goes: `run.json` (what was asked, how it stands), `manifest.jsonl` (header, chunks, seal, a line each),
`chunks.key` (the secret of the chunks' digests), `parts.journal` (answers in chunk order) and `records.jsonl.partial`.
When it is done these become manifest.json, report.json, results.yaml, report.md, report.html and records.jsonl, each
written under another name first and renamed.
A run with dead records keeps its working files, so that a retry computes no more than their chunks.
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
from evalq.producer.folder.lock import CANCEL, LOCK, WAIT, RunLock, holder, saying

# Names under which run folders are made before they have their own, and what killed processes left under them.

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


def _make_locked(path: Path, made: list[Path]) -> RunLock | None:
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


def _not_made(path: Path, error: OSError) -> EvalqError:
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


def _remove_empty(made: list[Path]) -> None:
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


_COLLISION = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


class FolderTaken(Exception):
    """Somebody else was first with a run folder of this name."""


class RunFolder:
    """A run's folder at ``path``.

    `begin` makes one and holds its lock from the first moment; any other is only looked at until `driving`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = path
        """Where the folder will be found once it is complete; ``path`` is where it is now."""
        self._lock: RunLock | None = None
        self._made: list[Path] | None = None
        self._own = False

    @classmethod
    @contextlib.contextmanager
    def begin(cls, path: Path) -> Iterator[RunFolder]:
        """A new folder, filled in the block and seen by nobody under its name until then; locked by this process.

        It is made under a private name in the same parent and renamed; one that is there and empty is filled in place.
        Of what the block leaves with an exception nothing stays. Raises FolderTaken when somebody else was first with
        a folder there, UsageError when there is something else, or it cannot be made.
        """
        made: list[Path] = []
        try:
            folder = cls._inside(path) if path.is_dir() else cls._aside(path, made)
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
    def _aside(cls, path: Path, made: list[Path]) -> RunFolder:
        if os.path.lexists(path) and not path.is_dir():  # a file, or a link that leads nowhere
            raise NotADirectoryError(errno.ENOTDIR, "something that is not a folder is in the way", str(path))
        clean_up(path.parent, path.name)
        while True:
            folder = cls(private_name(path))
            folder.place, folder._own = path, True
            folder._lock = _make_locked(folder.path, made)
            if folder._lock is not None:
                return folder

    @classmethod
    def _inside(cls, path: Path) -> RunFolder:
        """A folder that is there already, and the user's: it is not renamed away under whoever is in it."""
        folder = cls(path)
        folder._refuse_used()
        folder._lock = RunLock.take(path / LOCK)
        if folder._lock is None:
            raise FolderTaken
        # Looked at again under the lock: another process may have begun a run here, and ended, in between.
        try:
            folder._refuse_used()
        except UsageError:
            folder._lock.release(remove=not (path / INFO).exists())
            raise
        remove_unfinished(path)  # of one that was killed here before it had its run.json
        return folder

    def _names(self) -> set[str]:
        return {entry.name for entry in self.path.iterdir()}

    def _refuse_used(self) -> None:
        names = self._names()
        if names and (INFO in names or LOCK not in names or not all(map(is_unfinished, names))):
            raise UsageError(f"{self.path}: the folder is not empty; name another with --out, or resume the run in it")

    def _settle(self) -> None:
        """The folder gets its name, safely on disk. Raises FolderTaken."""
        # First what is in it, then its name: after a crash of the machine, a folder of that name has its run.json.
        sync_folder(self.path)
        if self._own:
            try:
                self.path.rename(self.place)
            except OSError as error:
                if error.errno in _COLLISION:
                    raise FolderTaken from error
                raise
            self.path = self.place
            if self._lock is not None:
                self._lock.moved(self.path / LOCK)
        sync_folder(self.path.parent)

    def settled(self, path: str) -> str:
        """The name that a file will have when this folder has its own; that of a file elsewhere as it is."""
        for now, place in ((self.path, self.place), (self.path.absolute(), self.place.absolute())):
            if Path(path).is_relative_to(now):
                return str(place / Path(path).relative_to(now))
        return path

    @classmethod
    def existing(cls, path: Path) -> RunFolder:
        """A folder some run was started in. Raises UsageError when it is none."""
        if not (path / INFO).is_file():
            raise UsageError(f"{path}: not a run folder (it has no run.json)")
        return cls(path)

    @contextlib.contextmanager
    def driving(self) -> Iterator[bool]:
        """Whether this process may drive the run: False while another one does. A killed one's claim ends with it."""
        lock, self._lock = self._lock or RunLock.take(self.path / LOCK), None
        if lock is None:
            yield False
            return
        try:
            yield True
        finally:
            lock.release(remove=self._finished())

    def driver(self) -> str:
        """ "host pid" of the process that drives the run here, empty while none does; this only looks."""
        return holder(self.path / LOCK)

    def cancelling(self) -> AbstractContextManager[None]:
        """A block in which whoever drives the run is told that its end is for good."""
        return saying(self.path / CANCEL)

    def being_cancelled(self) -> bool:
        """Whether somebody is about to end the run for good."""
        return bool(holder(self.path / CANCEL))

    def waiting(self) -> AbstractContextManager[None]:
        """A block in which this process waits for a run that is driven from another folder."""
        return saying(self.path / WAIT)

    def waiter(self) -> str:
        """ "host pid" of a process that waits here for a driver in another folder; empty while none does."""
        return holder(self.path / WAIT)

    @property
    def begun(self) -> bool:
        """Whether there is a run in it."""
        return (self.path / INFO).is_file()

    @property
    def spool(self) -> Path:
        """Where unpacked inputs lie."""
        return self.path / "spool"

    @property
    def records(self) -> Path:
        """records.jsonl."""
        return self.path / RECORDS

    def own(self, name: str) -> Path:
        """The file ``name`` in it, to be read. Raises UsageError for a link that leads elsewhere: whoever filled the
        folder would choose a file of the reader's.
        """
        path = self.path / name
        if path.is_symlink():
            then = "remove the link, or put the file itself there"
            refuse(Writer.RUN_FOLDER, Thing.PATH, str(path), str(self.path), then, (self.path, Path.cwd()))
        return path

    def facts(self) -> dict[str, Json]:
        """All of run.json, also what this evalq does not know. Raises WireError, StorageError, UsageError (none)."""
        path = self.path / INFO
        try:
            return read_facts(path)
        except FileNotFoundError:
            raise UsageError(f"{self.path}: not a run folder (it has no run.json)") from None
        except OSError as error:
            raise StorageError.of(error, path, "run the command again") from error

    def info(self) -> RunInfo:
        """run.json. Raises WireError when it is damaged, UsageError where there is none."""
        return info_of(self.facts(), self.path / INFO)

    @property
    def reported(self) -> bool:
        """Whether the run has had a report."""
        return (self.path / "report.json").is_file()

    def named(self, server: str = "") -> str:
        """The run as commands are to be told of it, as no option; with the options that name its ``server``."""
        return f"{shlex.quote('./' * str(self.path).startswith('-') + str(self.path))} {server}".rstrip()

    def next_step(self, state: RunState) -> str:
        """What its user can do next, where nobody drives the run: at the server that it is on."""
        info, reported = self.info(), state == "done" and self.reported  # else its report waits at the server
        told: RunState = "following" if info.follows and state != "cancelled" else state
        return next_step(told, self.named("" if reported else info.server))

    def report(self) -> dict[str, Json]:
        """report.json. Raises UsageError when the run has none (yet), WireError where this evalq reads none in it."""
        path = self.path / "report.json"
        if not self.reported:
            state = self.info().state
            then = "somebody removed it: run the evaluation again" if state == "done" else self.next_step(state)
            if by := self.driver():
                then = f"{by} drives it: wait for it with evalq watch {self.named()}"
            raise UsageError(f"{self.path}: this run has no report (it is {state}); {then}")
        return read_report(path)

    def note(self, **facts: Json) -> None:
        """Set keys of run.json (None removes one). Raises UsageError for a state that cannot follow, OSError."""
        path = self.path / INFO
        if not path.is_file() and "started" not in facts:  # moved away under its run, and no damage
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        known: dict[str, Json] = self.facts() if path.is_file() else {"schema": SCHEMA}
        before: RunState | None = known.get("state")
        after: RunState | None = facts.get("state")
        if before is not None and after is not None and not may_follow(after, before):
            raise UsageError(f"{self.place}: this run is {before}, and cannot become {after}; {self.next_step(before)}")
        told = {name: fact for name, fact in {**known, **facts}.items() if fact is not None}
        if not is_text(json.dumps(told, ensure_ascii=False)):
            where = f"{self.place}: this run cannot be written down"
            raise UsageError(f"{where}: the path of the current folder is not text in UTF-8; rename it")
        info_of(told, path)  # nothing is written that could not be read
        write_atomic(path, msgspec.json.format(canonical_json(told), indent=2) + b"\n")

    def write(self, name: str, data: bytes) -> None:
        """One of the run's final files, whole or not at all."""
        write_atomic(self.path / name, data)

    def drop_working_files(self) -> None:
        """Remove what only an unfinished run needs; its lock goes when it is let go."""
        for name in (MANIFEST, JOURNAL, KEPT, KEY, RECORDS + ".partial"):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.spool, ignore_errors=True)

    def discard(self) -> None:
        """Remove a run that this process began, and the folders it made for it, as far as nothing else is in them.

        What somebody else began, or made, stays, and so does a report.
        """
        unnamed = self._own and self.path != self.place  # all that is in it is this process's own
        if self._made is None or (self.reported and not unnamed):
            return
        with contextlib.suppress(OSError):
            # A file of somebody else's in there stays, and with it the folder.
            if unnamed or (self._own and all(map(is_unfinished, self._names()))):
                gone = self.path.rename(private_name(self.place))  # it goes for all at once
                shutil.rmtree(gone)
            else:
                remove_unfinished(self.path)
            _remove_empty(self._made)
        if self._lock is not None:
            self._lock.release(remove=True)
            self._lock = None

    def _finished(self) -> bool:
        """Whether nobody has anything left to do here, so that the lock's file may go too."""
        with contextlib.suppress(EvalqError):
            over = self.info().state == "done"
            return over and not any((self.path / name).exists() for name in (MANIFEST, JOURNAL, HEAD))
        return True  # no run at all (any more)


# The runs of a parent folder.


def run_folders(parent: Path, warn: Callable[[str], None]) -> list[tuple[RunFolder, RunInfo]]:
    """The runs whose folders lie in ``parent``, the latest begun last; what cannot be read is told and passed over."""
    found = []
    for path in parent.glob("*/" + INFO):
        # A folder that is being made has its run.json before it has its name.
        if is_private(path.parent.name) or not path.is_file():
            continue
        try:
            info = RunFolder(path.parent).info()
            # By what a run says itself: its file is written anew with each note, and by whoever copies it. That file
            # tells only runs apart that were begun within a second.
            found.append(((info.started, path.stat().st_ctime_ns, path.parent), info))
        except (EvalqError, OSError) as error:
            warn(f"warning: {path.parent} is skipped: {error}")
    return [(RunFolder(key[-1]), info) for key, info in sorted(found, key=lambda each: each[0])]
