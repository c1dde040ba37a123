"""The runs of a suite in one session of pytest, whichever of its processes makes them."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import pytest

from evalq.evalcore.errors import UsageError
from evalq.evalcore.files import lock_file, unlock_file
from evalq.producer.folder.files import RUNS
from evalq.producer.suites.suite_file import SuitePlan
from evalq.workers.settings import load_settings

__all__ = ["NotMade", "SuiteRuns"]

# `evalq run` beside a session of pytest.

_ENDING_SECONDS = 10.0
_MESSAGE_BYTES = 4000
_UNFIT = ("EVALQ_DETACH", "EVALQ_DRY_RUN")
"""Variables under which the command would leave no reports."""


class CommandResult(NamedTuple):
    """The exit code, the folders of the runs with a report, in the suite's order, and the end of standard error."""

    code: int
    folders: tuple[str, ...]
    messages: str


class EvalqProcess:
    """One process, in a process group of its own: Ctrl-C is the session's to answer.

    It ends in order when `end` is called, and when this process is gone, killed or not.
    """

    def __init__(self, words: Sequence[str], folder: Path) -> None:
        """Start ``evalq WORDS`` in ``folder``. Raises OSError."""
        self._out, self._stderr = _scratch(), _scratch()
        self._process = subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, "-P", "-m", "evalq._pytest.child", *words],
            stdin=subprocess.PIPE,
            stdout=self._out,
            stderr=self._stderr,
            cwd=folder,
            env={key: value for key, value in os.environ.items() if key not in _UNFIT},
            process_group=0,
        )

    def wait(self) -> CommandResult:
        """Wait until the process has ended."""
        try:
            code = self._process.wait()
        except BaseException:
            self.end()
            raise
        assert self._process.stdin is not None
        self._process.stdin.close()
        with self._out, self._stderr:
            self._out.seek(0)
            events = [json.loads(line) for line in self._out if line.startswith(b"{")]
            self._stderr.seek(max(0, self._stderr.seek(0, os.SEEK_END) - _MESSAGE_BYTES))
            messages = self._stderr.read().decode(errors="replace")
        folders = tuple(event["folder"] for event in events if event.get("event") == "done")
        return CommandResult(code, folders, messages)

    def interrupt(self) -> None:
        """Have it keep what it has paid for and end."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def end(self) -> None:
        """The same, within seconds."""
        self.interrupt()
        try:
            self._process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()


def _scratch() -> IO[bytes]:
    return tempfile.TemporaryFile(prefix="evalq-")  # closed when it has been read, or with the process


_SESSION = pytest.StashKey[str]()


class NotMade(Exception):
    """The runs were not completed; the message says why."""


class SuiteRuns:
    """Made once a session: one process holds the lock of their folder meanwhile, and the others wait for it.

    The kernel lets go of the lock when its holder dies, however it does; the next one then resumes the same runs.
    """

    def __init__(self, config: pytest.Config, path: Path, suite: SuitePlan, session: str = "") -> None:
        """``path`` is the suite's file; the processes of one session give one key of it, a single one needs none.

        Raises UsageError for options that do not fit, ConfigError.
        """
        self.path = path
        self._suite = suite
        self._words = [str(word) for word in config.getini("evalq_args")]
        options = _options(self._words)
        self.settings = load_settings(options.settings, broker=options.broker, ledger=options.ledger)
        self.baseline: str = options.baseline or os.environ.get("EVALQ_BASELINE") or suite.baseline
        once = os.environ.get("EVALQ_ONCE", "")
        self.candidate: str = options.candidate or os.environ.get("EVALQ_CANDIDATE") or once
        self._queued = bool(self.settings.broker) and not options.inline
        if not self._words and not self.settings.broker and not any(run.live for run in suite.runs):
            self._words.append("--inline")
        self.here = config.invocation_params.dir
        self._session = session or config.stash.setdefault(_SESSION, uuid.uuid4().hex)
        self._key = once or self._session
        # As it is called from here: one key is one run in every checkout.
        self._called = str(path.relative_to(self.here) if path.is_relative_to(self.here) else path)
        name = uuid.uuid5(uuid.NAMESPACE_URL, f"{self._key} {self._called}").hex[:16]
        self._out = RUNS / "pytest" / name
        self._place = self.here / self._out
        self._command: EvalqProcess | None = None
        self._ending = threading.Thread()
        self._folders: list[Path] | None = None
        self._problem = ""
        self._interrupted = False

    def begin(self) -> None:
        """For the process that begins the session: nothing of one before it counts, though it had the same key.

        Where there is a broker they are begun, and not waited for: the fleet evaluates meanwhile. Raises OSError.
        """
        self._marker.unlink(missing_ok=True)
        if not self._queued:
            return
        lock = self._lock_file()
        try:
            lock_file(lock)
        except BlockingIOError:
            lock.close()
            return
        self._command = command = self._start()
        self._ending = threading.Thread(target=self._see_through, args=(command, lock), daemon=True)
        self._ending.start()

    def folders(self) -> list[Path]:
        """Their folders in the suite's order, once all have their reports. Raises NotMade."""
        if self._problem:
            raise NotMade(f"{self._problem.partition(chr(10))[0]} an earlier test says what it said")
        if self._folders is None:
            with self._lock_file() as lock, _locked(lock):
                ended = self._ended() or self._keep(self._start().wait())
            if len(ended.folders) < len(self._suite.runs):
                self._problem = f"evalq run {self.path.name} ended with {ended.code}:\n{ended.messages}"
                raise NotMade(self._problem)
            self._folders = [self.here / folder for folder in ended.folders]
        return self._folders

    def interrupt(self) -> None:
        """Have what was enqueued here, and has not ended, keep what is paid for and end: nobody waits for it."""
        if self._command is not None and self._ending.is_alive():
            self._command.interrupt()
            self._interrupted = True

    def stop(self) -> str:
        """Wait until it has ended. Returns its last message, "" if it had ended before or had none."""
        if self._command is None or not self._interrupted:
            return ""
        self._command.end()
        self._ending.join()
        ended = self._ended()
        return ended.messages.strip().rpartition("\n")[2].removeprefix("evalq: ") if ended else ""

    def _start(self) -> EvalqProcess:
        words = ["run", self._called, "--once", self._key, "--out", str(self._out), "--json", "--no-progress"]
        # The decision is a test's: made here too, it would be another look at the baseline.
        return EvalqProcess([*words, *self._words, *(["--no-gate"] if self._suite.policy else [])], self.here)

    def _see_through(self, command: EvalqProcess, lock: IO[str]) -> None:
        with lock, _unlocking(lock):
            self._keep(command.wait())

    def _ended(self) -> CommandResult | None:
        """How they ended in this session."""
        try:
            code, folders, messages = json.loads(self._marker.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return CommandResult(code, tuple(folders), messages)

    def _keep(self, ended: CommandResult) -> CommandResult:
        """Tell the other processes of this session."""
        part = self._marker.with_suffix(".part")
        part.write_text(json.dumps(ended), encoding="utf-8")
        part.replace(self._marker)
        return ended

    @property
    def _marker(self) -> Path:
        return self._place / f"session-{self._session}.json"

    def _lock_file(self) -> IO[str]:
        self._place.mkdir(parents=True, exist_ok=True)
        return (self._place / "lock").open("w")


@contextlib.contextmanager
def _locked(lock: IO[str]) -> Iterator[None]:
    lock_file(lock, wait=True)
    with _unlocking(lock):
        yield


@contextlib.contextmanager
def _unlocking(lock: IO[str]) -> Iterator[None]:
    """Said, and not left to closing the file: a process that a test has forked may hold it open."""
    try:
        yield
    finally:
        unlock_file(lock)


def _options(words: list[str]) -> argparse.Namespace:
    """What of `evalq_args` counts here, too."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("--broker", "--ledger", "--settings", "--baseline", "--candidate"):
        parser.add_argument(name)
    for name in ("--inline", "--detach", "--dry-run", "--confirm"):
        parser.add_argument(name, action="store_true")
    try:
        found, _ = parser.parse_known_args(words)
    except argparse.ArgumentError as error:
        raise UsageError(f"evalq_args: {error}") from None
    found.settings = found.settings or os.environ.get("EVALQ_SETTINGS") or None
    if found.detach or found.dry_run or found.confirm:
        raise UsageError("evalq_args: --detach, --dry-run and --confirm go with no tests: they wait for reports, once")
    return found
