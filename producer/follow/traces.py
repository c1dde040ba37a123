"""Traces that a Collector appends: each one is put into one window once, when it is whole.

The state is a file of its own beside the windows. It is replaced after a window's file is there, so that a kill at any
time leaves each trace in one window: in the one that the state knows, or in the next one.
"""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from evalq.evalcore.errors import InputError, UsageError, WireError
from evalq.evalcore.files import open_raw, read_plain, replacing, write_atomic
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.records.inputs import file_kind
from evalq.evalcore.records.traces.otlp import Gathered, Trace
from evalq.evalcore.records.traces.otlp_files import MOST_MESSAGE, NO_TRACES, Message, whole_messages
from evalq.evalcore.records.traces.recording import NAME, SUFFIXES, Keeps, Written, write_traces

STATE = "traces.state"
_KEPT = "pending-{}"
_READING = ".reading-"
_HEAD = 256
_BLOCK = 64 << 20
_GONE = 2
"""A file is gone after so many passes without it: a rotation may rename it while a pass lists the folder."""
_ABSENT = 100
"""A file is forgotten after so many passes without it."""
_OLD = 20
"""A trace without a root is given up after so many times the time that a whole one waits."""
_KNOWN_WINDOWS = 500
"""Windows whose traces are known, so that a late span of one of them begins no new trace."""


class ReadFile(msgspec.Struct):
    """A file and how much of it was read.

    ``head`` are its first bytes and ``tail`` the last that were read: the number of a removed file comes again, and
    files of one service begin alike. ``absent`` counts the passes that did not find it. ``current``: it was still
    being written to when it was read last.
    """

    device: int
    inode: int
    head: bytes
    read: int = 0
    messages: int = 0
    tail: bytes = b""
    absent: int = 0
    current: bool = False


class FollowTotals(msgspec.Struct):
    """All that was counted since the beginning.

    Of windows that were made: ``traces``, those that no `where` selects, calls of tools and their errors. Of windows
    that were evaluated: traces by their results, tokens and cost. ``lag`` is the seconds from the end of the newest
    trace of the last window to its result.
    """

    traces: int = 0
    left_out: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    passed: int = 0
    failed: int = 0
    errors: int = 0
    tokens: float = 0.0
    cost: float = 0.0
    lag: float | None = None


class FollowState(msgspec.Struct):
    """What was read, the time of the last span of each waiting trace, and the windows that were made and evaluated.

    ``ended`` says when the newest trace of each window ended that is not evaluated, in nanoseconds since 1970.
    ``removed`` counts how often files were gone that were not read to their end.
    """

    given: list[str]
    id: str = ""
    files: list[ReadFile] = []
    waiting: dict[str, float] = {}
    window: int = 0
    evaluated: int = 0
    kept: int = 0
    late: int = 0
    doubled: int = 0
    unread: int = 0
    removed: int = 0
    totals: FollowTotals = msgspec.field(default_factory=FollowTotals)
    ended: dict[int, int] = {}
    schema: str = "evalq.follow-traces/1"


class FollowedTraces:
    """The files of traces, and the windows made of them in ``folder``, which the caller has for itself."""

    def __init__(self, folder: Path, given: Sequence[str], settle: float, keeps: Keeps) -> None:
        self._folder, self._settle, self._keeps = folder, settle, keeps
        self.state = self._load(given)
        for left in folder.glob(f"{_READING}*"):  # of a killed process; the caller has the folder for itself
            shutil.rmtree(left, ignore_errors=True)
        self._windows: deque[list[str]] = deque(self._known(), maxlen=_KNOWN_WINDOWS)
        self._done = {trace for window in self._windows for trace in window}
        self.news: list[str] = []
        """What there is to say of the last `gather`."""

    def _load(self, given: Sequence[str]) -> FollowState:
        path, absolute = self._folder / STATE, [os.path.abspath(each) for each in given]  # noqa: PTH100 - links stay
        if not path.exists():
            return FollowState(absolute, secrets.token_hex(6))
        try:
            state = msgspec.json.decode(read_plain(path), type=FollowState)
        except (ValueError, RecursionError) as error:
            raise WireError(f"{path} is damaged: {error}; begin anew: name another --run-dir") from error
        if state.given != absolute:
            raise UsageError(f"{self._folder}: this run follows other files: {', '.join(state.given)}")
        return state

    def _known(self) -> Iterator[list[str]]:
        """The traces of each of the last windows."""
        for number in range(max(1, self.state.window - _KNOWN_WINDOWS + 1), self.state.window + 1):
            with contextlib.suppress(FileNotFoundError):
                yield _names(self._folder, number)

    def _remember(self, window: Iterable[str]) -> None:
        """Know the traces of a new window, and no longer those of the oldest."""
        if len(self._windows) == _KNOWN_WINDOWS:
            self._done.difference_update(self._windows[0])
        self._windows.append(list(window))
        self._done.update(self._windows[-1])

    def window_path(self, number: int) -> Path:
        """The recorded outputs of a window."""
        return _window(self._folder, number) / NAME

    def pending(self) -> Iterator[int]:
        """The windows that were made and are not evaluated, in order."""
        yield from range(self.state.evaluated + 1, self.state.window + 1)

    def evaluated(self, number: int, results: Mapping[str, Any], now: float) -> None:
        """Note that a window is evaluated, with the ``results`` of its report."""
        totals, outputs = self.state.totals, results.get("outputs") or {}
        for name in ("passed", "failed", "errors"):
            setattr(totals, name, getattr(totals, name) + outputs.get(name, 0))
        for name in ("tokens", "cost"):
            setattr(totals, name, getattr(totals, name) + ((results.get(name) or {}).get("total") or 0.0))
        if ended := self.state.ended.pop(number, 0):
            totals.lag = max(0.0, now - ended / 1e9)
        self.state.evaluated = number
        self._store()

    def gather(self, now: float, *, last: bool = False) -> int:
        """Read what is new, and make a window of the whole traces; returns how many. ``last``: of all that are there.

        Raises InputError for a file that cannot be read.
        """
        self.news = []
        with tempfile.TemporaryDirectory(prefix=_READING, dir=self._folder) as scratch:
            gathered = Gathered(Path(scratch))
            fresh = self._read_new(gathered)
            arrived = {name for part in gathered.parts() for name in gathered.names_in(part)}
            for name in arrived & self._done:
                self.state.late += 1
                self.news.append(f"trace {name}: spans came after it was counted; they are left out")
            self.state.waiting |= dict.fromkeys(arrived - self._done, now)
            before = self._folder / _KEPT.format(self.state.kept)
            if before.is_file():
                with before.open("rb") as stream:
                    gathered.restore(line.rstrip(b"\n") for line in stream)
            whole, kept = gathered.split(lambda trace: last or self._is_whole(trace, now))
            whole = [trace for trace in whole if trace.id not in self._done]
            self.state.doubled += gathered.doubled
            self.state.unread += gathered.unread
            self.news += [f"{where}: {reason}" for where, reason in gathered.faults]
            written = self._commit(whole, kept, changed=fresh)
        with contextlib.suppress(OSError):
            os.utime(self._folder / STATE)  # `evalq prune` removes followers that made no pass for long
        return written

    def _is_whole(self, trace: Trace, now: float) -> bool:
        if trace.id in self._done:
            return True  # to be dropped
        quiet = now - self.state.waiting.get(trace.id, now)
        rooted = any(not span.parent for span in trace.spans)
        return quiet >= self._settle and (rooted or quiet >= self._settle * _OLD)

    def _commit(self, whole: Sequence[Trace], kept: Sequence[bytes], *, changed: bool) -> int:
        """Write the window, what waits, and then the state, which makes both count."""
        written, before = Written(), self.state.kept
        if whole:
            path = self.window_path(self.state.window + 1)
            path.parent.mkdir(exist_ok=True)
            written = write_traces(whole, path, self._keeps)
        if whole or changed:
            self.state.kept += 1
            with replacing(self._folder / _KEPT.format(self.state.kept)) as out:
                out.writelines(line + b"\n" for line in kept)
            for trace in whole:
                self.state.waiting.pop(trace.id, None)
            self.state.window += bool(written.traces)
            self._count(written)
            self._store()
            self._remember(trace.id for trace in whole)
            (self._folder / _KEPT.format(before)).unlink(missing_ok=True)
        return written.traces

    def _count(self, written: Written) -> None:
        totals = self.state.totals
        for name in ("traces", "left_out", "tool_calls", "tool_errors"):
            setattr(totals, name, getattr(totals, name) + getattr(written, name))
        if written.ended:
            self.state.ended[self.state.window] = written.ended

    def _store(self) -> None:
        write_atomic(self._folder / STATE, msgspec.json.encode(self.state) + b"\n")

    def _read_new(self, gathered: Gathered) -> bool:
        """Feed the new whole messages of all files; whether there were any."""
        any_new, here = False, []
        for path in self._paths():
            try:
                stream = open_raw(path)
            except FileNotFoundError:
                continue  # rotated away since it was listed
            except OSError as error:
                raise InputError("an input cannot be read", [(str(path), error.strerror or str(error))]) from error
            with stream:
                file = self._file_of(stream)
                file.current = str(path) in self.state.given
                here.append(file)
                for messages in self._new_messages(file, stream, path):
                    gathered.feed(str(path), messages)
                    any_new = True
        for file in self.state.files:
            file.absent = 0 if file in here else file.absent + 1
            if file.current and file.absent == _GONE and here:
                self._note_removed(file)
                any_new = True
        self.state.files = [file for file in self.state.files if file.absent < _ABSENT]
        return any_new

    def _new_messages(self, file: ReadFile, stream: BinaryIO, path: Path) -> Iterator[list[Message]]:
        size = _BLOCK
        while True:
            data = os.pread(stream.fileno(), size, file.read)
            try:
                messages, length = whole_messages(data, file.messages)
                if not length and len(data) == size > MOST_MESSAGE:
                    raise ValueError(f"message {file.messages + 1}: it is longer than {MOST_MESSAGE:,} bytes")
            except ValueError as error:
                if not file.read:
                    what = file_kind(data[:_HEAD]) or NO_TRACES
                    raise InputError(f"{path} has no traces that evalq can follow", [(f"{path}:1", what)]) from None
                raise InputError(f"{path} is damaged", [(str(path), str(error))]) from None
            if not length and len(data) == size:
                size *= 2
                continue
            if not length:
                return
            file.read += length
            file.messages += len(messages)
            file.tail = data[max(0, length - _HEAD) : length]
            yield messages

    def _file_of(self, stream: BinaryIO) -> ReadFile:
        found = os.fstat(stream.fileno())
        head = os.pread(stream.fileno(), _HEAD, 0)
        for file in self.state.files:
            same = (file.device, file.inode) == (found.st_dev, found.st_ino) and found.st_size >= file.read
            if same and head.startswith(file.head) and _ends_with(stream, file):
                file.head = head
                return file
        made = ReadFile(found.st_dev, found.st_ino, head)
        for file in [each for each in self.state.files if (each.device, each.inode) == (made.device, made.inode)]:
            self.state.files.remove(file)
            if file.current:
                self._note_removed(file)
        self.state.files.append(made)
        return made

    def _note_removed(self, file: ReadFile) -> None:
        """Note that the file of an earlier pass is gone, which others were written after: a rotation removed them."""
        file.current = False
        self.state.removed += 1
        self.news.append(
            f"{', '.join(self.state.given)}: files were removed before evalq read them, after byte {file.read:,} "
            "of one: their traces may be lost. Have the Collector keep more files (max_backups), or follow without "
            "long breaks"
        )

    def _paths(self) -> list[Path]:
        """The files that are given, and those that a rotation has renamed: `traces-2026-03-01T10-00-00.000.jsonl`."""
        found: dict[Path, None] = {}
        for each in self.state.given:
            path = Path(each)
            if path.is_dir():
                found |= dict.fromkeys(
                    child for child in path.iterdir() if child.suffix in SUFFIXES and child.is_file()
                )
                continue
            rotated = glob.escape(path.stem) + "-*" + glob.escape(path.suffix)
            found |= dict.fromkeys(child for child in path.parent.glob(rotated) if child.is_file())
            if path.is_file():
                found[path] = None
        return sorted(found)


def _ends_with(stream: BinaryIO, file: ReadFile) -> bool:
    """Whether the part that was read still ends as it did."""
    return os.pread(stream.fileno(), len(file.tail), file.read - len(file.tail)) == file.tail


class _Case(msgspec.Struct):
    case: str


def _window(folder: Path, number: int) -> Path:
    return folder / f"window-{number:06}"


def _names(folder: Path, number: int) -> list[str]:
    """The traces of a window. Raises FileNotFoundError."""
    window = _window(folder, number)
    path = window / NAME if (window / NAME).exists() else window / _SEEN
    with path.open("rb") as stream:
        return [msgspec.json.decode(line, type=_Case).case for line in stream]


# What `evalq prune` removes of followers.

FOLLOWERS = "traces-follow-*"
"""Their folders among run folders."""
_SEEN = "seen.jsonl"
"""The names of a window's traces, once its recorded outputs are removed."""
_FORGOTTEN_SECONDS = 7 * 86_400.0


def prune_windows(folder: Path, used: Collection[str], before: float, *, dry_run: bool) -> Iterator[Path]:
    """Remove the recorded outputs of windows that ended before ``before`` and that no run has ``used``.

    The names of traces in the last windows stay, so that late spans begin no new trace. Yields what it removes.
    """
    try:
        state = msgspec.json.decode(read_plain(folder / STATE), type=FollowState)
    except (OSError, ValueError, RecursionError):
        return  # none of evalq's, or one that the next pass complains of
    for number in range(1, state.evaluated + 1):
        window = _window(folder, number)
        path, forgotten = window / NAME, number <= state.window - _KNOWN_WINDOWS
        if path.exists() and path.stat().st_mtime <= before and str(path.absolute()) not in used:
            if not dry_run and not forgotten:
                names = _names(folder, number)
                write_atomic(window / _SEEN, b"".join(msgspec.json.encode(_Case(name)) + b"\n" for name in names))
            if not dry_run:
                path.unlink()
            yield path
        if forgotten and not dry_run and window.is_dir() and not path.exists():
            shutil.rmtree(window, ignore_errors=True)


def is_abandoned(folder: Path, used: Collection[str], before: float) -> bool:
    """Whether no process has made a pass since ``before``, nor for a week, and no run has ``used`` a window."""
    try:
        last = (folder / STATE).stat().st_mtime
    except OSError:
        return False
    inside = str(folder.absolute()) + os.sep
    return last <= min(before, time.time() - _FORGOTTEN_SECONDS) and not any(path.startswith(inside) for path in used)


def folder_name(given: Sequence[str], params: Mapping[str, Any], digest: Callable[[bytes], str]) -> str:
    """The name of the folder for these files and parameters, so that the same command goes on."""
    return f"traces-follow-{digest(canonical_json([sorted(map(os.path.realpath, given)), dict(params)]))[:10]}"
