"""The runs of a suite in one session of pytest; one of the session's processes makes them."""

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

# The command `evalq run`, started by a session of pytest.

_ENDING_SECONDS = 10.0
_MESSAGE_BYTES = 4000
_UNFIT = ("EVALQ_DETACH", "EVALQ_DRY_RUN")
"""Variables with which the command would write no reports."""


class CommandResult(NamedTuple):
    """The exit code, the folders of the runs with a report, in the suite's order, and the end of standard error."""

    code: int
    folders: tuple[str, ...]
    messages: str


class EvalqProcess:
    """One `evalq` process, in its own process group, so that Ctrl-C reaches only the session.

    It shuts down cleanly on `end`, and also when this process ends or is killed.
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
        """Make the process shut down; it keeps all paid answers."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def end(self) -> None:
        """`interrupt`, and kill the process if it has not ended after some seconds."""
        self.interrupt()
        try:
            self._process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()


def _scratch() -> IO[bytes]:
    return tempfile.TemporaryFile(prefix="evalq-")  # `wait` closes it after reading


_SESSION = pytest.StashKey[str]()


class NotMade(Exception):
    """The runs were not completed; the message says why."""


class SuiteRuns:
    """The runs of a suite, made once per session: one process locks their folder, and the others wait for it.

    If the process with the lock dies, the kernel releases the lock, and the next process resumes the runs.
    """

    def __init__(self, config: pytest.Config, path: Path, suite: SuitePlan, session: str = "") -> None:
        """``path`` is the suite's file. The processes of one session share the key ``session``; one alone needs none.

        Raises UsageError for options that tests do not support, and ConfigError.
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
        # The path relative to this folder, so that one key means one run in every checkout.
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
        """Called by the process that starts the session. Discards results of an earlier session with the same key.

        With a broker, this also starts the runs without waiting: the fleet evaluates meanwhile. Raises OSError.
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
        """Wait for the runs. Returns their folders in the suite's order. Raises NotMade if one has no report."""
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
        """Stop the command that `begin` started, if it still runs, because no test waits for it."""
        if self._command is not None and self._ending.is_alive():
            self._command.interrupt()
            self._interrupted = True

    def stop(self) -> str:
        """Wait until the interrupted command has ended. Returns its last message, or "" without one."""
        if self._command is None or not self._interrupted:
            return ""
        self._command.end()
        self._ending.join()
        ended = self._ended()
        return ended.messages.strip().rpartition("\n")[2].removeprefix("evalq: ") if ended else ""

    def _start(self) -> EvalqProcess:
        words = ["run", self._called, "--once", self._key, "--out", str(self._out), "--json", "--no-progress"]
        # Without the gate: the policy's test decides, and a second decision would be another look at the baseline.
        return EvalqProcess([*words, *self._words, *(["--no-gate"] if self._suite.policy else [])], self.here)

    def _see_through(self, command: EvalqProcess, lock: IO[str]) -> None:
        with lock, _unlocking(lock):
            self._keep(command.wait())

    def _ended(self) -> CommandResult | None:
        """The result of the runs in this session; None before they have ended."""
        try:
            code, folders, messages = json.loads(self._marker.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return CommandResult(code, tuple(folders), messages)

    def _keep(self, ended: CommandResult) -> CommandResult:
        """Write the result for the other processes of this session."""
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
    """Unlock explicitly: closing the file may not be enough, because a process forked by a test may hold it open."""
    try:
        yield
    finally:
        unlock_file(lock)


def _options(words: list[str]) -> argparse.Namespace:
    """The options in `evalq_args` that the plug-in itself uses. Raises UsageError for unsupported ones."""
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
