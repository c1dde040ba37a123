"""`evalq run` beside a session of pytest."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

__all__ = ["Command", "CommandResult"]

_ENDING_SECONDS = 10.0
_TOLD_BYTES = 4000
_UNFIT = ("EVALQ_DETACH", "EVALQ_DRY_RUN")
"""Variables under which the command would leave no reports."""


class CommandResult(NamedTuple):
    """How it ended: the folders of the runs that it saw to their reports, in the suite's order, and what it said."""

    code: int
    folders: tuple[str, ...]
    told: str


class Command:
    """One process, in a process group of its own: Ctrl-C is the session's to answer.

    It ends in order when `end` is called, and when this process is gone, killed or not.
    """

    def __init__(self, words: Sequence[str], folder: Path) -> None:
        """Start ``evalq WORDS`` in ``folder``. Raises OSError."""
        self._out, self._told = _scratch(), _scratch()
        self._process = subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, "-P", "-m", "evalq._pytest.child", *words],
            stdin=subprocess.PIPE,
            stdout=self._out,
            stderr=self._told,
            cwd=folder,
            env={key: value for key, value in os.environ.items() if key not in _UNFIT},
            process_group=0,
        )

    def wait(self) -> CommandResult:
        """Until it has ended."""
        try:
            code = self._process.wait()
        except BaseException:
            self.end()
            raise
        assert self._process.stdin is not None
        self._process.stdin.close()
        with self._out, self._told:
            self._out.seek(0)
            events = [json.loads(line) for line in self._out if line.startswith(b"{")]
            self._told.seek(max(0, self._told.seek(0, os.SEEK_END) - _TOLD_BYTES))
            told = self._told.read().decode(errors="replace")
        folders = tuple(event["folder"] for event in events if event.get("event") == "done")
        return CommandResult(code, folders, told)

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
