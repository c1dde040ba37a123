"""Every error that evalq raises on purpose, with its exit code.

    EvalqError                          exit   whose fault
    |-- UsageError                        2    the command line
    |-- ConfigError                       2    a configuration file, parameter or environment variable
    |   `-- UnknownEvaluator              2    no installed package registers an evaluator of that name
    |-- InputError                        2    the data: carries its faults, each with file and line
    |   `-- InputChanged                  2    an input was altered while a run was reading it
    |-- NothingEvaluated                  5    no record has a result: there is none, or each failed
    |-- InfrastructureError               3    the machinery
    |   |-- BrokerUnreachable             3    the broker or the ledger does not answer, or cannot do its work now
    |   |-- ServerRefused                 3    the broker or the ledger refuses what evalq asks of it
    |   |-- WorkersLost                   3    the workers that a command started for itself end again and again
    |   |-- StorageError                  3    a disk: full, read-only, or a folder that is somebody else's
    |   |-- WireError                     3    something in the ledger or on the wire is not what evalq wrote
    |   |-- Divergent                     3    two workers computed different bytes for one chunk
    |   |-- AlreadyRunning                3    another process drives this run
    |   |   `-- Finished                  3    another process has finished this run; its report waits in the ledger
    |   |-- WaitTimeout                   3    a run did not end within the time that its caller wanted to wait
    |   `-- Incomplete                    3    a run ended before all of its chunks were committed
    |       `-- Cancelled                 3    somebody ended the run for good
    |-- Paused                          130    somebody paused the run: it can be resumed
    `-- Interrupted                     130    Ctrl-C: the run can be resumed

A message says what was wrong, where (file:line or key path), and what to do about it.
"""

from __future__ import annotations

import errno
import shlex
from collections.abc import Sequence
from typing import ClassVar

__all__ = [
    "AlreadyRunning",
    "BrokerUnreachable",
    "Cancelled",
    "ConfigError",
    "Divergent",
    "EvalqError",
    "Finished",
    "Incomplete",
    "InfrastructureError",
    "InputChanged",
    "InputError",
    "Interrupted",
    "NothingEvaluated",
    "Paused",
    "ServerRefused",
    "StorageError",
    "UnknownEvaluator",
    "UsageError",
    "WaitTimeout",
    "WireError",
    "WorkersLost",
]

# SPEC, section 2: the first 20 faulty lines, and their count.
SHOWN_FAULTS = 20


class EvalqError(Exception):
    """The base class: a command that ends with it returns ``exit_code``."""

    exit_code: ClassVar[int] = 3


class UsageError(EvalqError):
    """The command line asks for something that cannot be done."""

    exit_code = 2


class ConfigError(EvalqError):
    """A parameter or setting is wrong; the message names its file and key path."""

    exit_code = 2


class UnknownEvaluator(ConfigError):
    """No installed package registers an evaluator of that name, so no host of the same code version knows it."""


class InputError(EvalqError):
    """The data is not what the evaluator reads.

    ``faults`` holds ("file:line", reason) pairs in input order, ``total`` counts all of them.
    """

    exit_code = 2

    def __init__(self, message: str, faults: Sequence[tuple[str, str]] = (), total: int | None = None) -> None:
        super().__init__(message)
        self.faults = tuple(faults)
        self.total = len(self.faults) if total is None else total

    def __str__(self) -> str:
        shown = [f"{where}: {reason}" for where, reason in self.faults[:SHOWN_FAULTS]]
        rest = self.total - len(shown)
        more = [f"... and {rest} more"] if shown and rest > 0 else []
        return "\n  ".join([super().__str__(), *shown, *more])


class InputChanged(InputError):
    """An input's bytes are no longer those the run was planned on."""


class NothingEvaluated(EvalqError):
    """No record has a result: the inputs hold none, each one failed, or the budget allowed no call."""

    exit_code = 5


class InfrastructureError(EvalqError):
    """The machinery failed; the data may be fine."""


class BrokerUnreachable(InfrastructureError):
    """No server answers at the given address, or it is full, loading or the like: that may pass."""


class ServerRefused(InfrastructureError):
    """A server answers, but refuses; that does not pass by itself."""


class WorkersLost(InfrastructureError):
    """The workers or the server that a command started for itself ended too often to be started again."""


class StorageError(InfrastructureError):
    """evalq cannot write or read a file that it needs."""

    NO_SPACE: ClassVar = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
    """The system's errors for lack of space: that may pass, unlike a wrong name or a missing right."""
    NO_FILES: ClassVar = frozenset({errno.EMFILE, errno.ENFILE})
    """The system's errors for too many open files: the file itself is fine."""
    NO_DISK: ClassVar = frozenset({errno.EIO, errno.ENXIO, errno.ENODEV, errno.ESTALE, errno.ETIMEDOUT})
    """The system's errors for a failing disk or file server: no name or right is wrong."""
    NO_PROCESS: ClassVar = frozenset({errno.EAGAIN, errno.ENOMEM})
    """The system's errors if no process can start: files have no part in that."""

    @classmethod
    def of(cls, error: OSError, path: object, then: str) -> StorageError:
        """The system's error for ``path`` (or the file that it names), how to fix it, and what to do ``then``."""
        where = path if error.filename is None else error.filename
        if error.filename is None and error.errno in cls.NO_PROCESS:
            where = "no process can be started"
        return cls(f"{where}: {error.strerror or error}; {cls._fix(error)}, then {then}")

    @classmethod
    def _fix(cls, error: OSError) -> str:
        if error.errno in cls.NO_SPACE:
            return "free some space"
        if error.errno in cls.NO_FILES:
            return "raise the limit on open files (ulimit -n)"
        if error.errno in cls.NO_PROCESS:
            return "raise the limits on processes and memory (ulimit, or the container's)"
        return "check the disk" if error.errno in cls.NO_DISK else "see that this user may write there"


class WireError(InfrastructureError):
    """A message, ledger entry or partial does not have the form evalq writes."""


class Divergent(InfrastructureError):
    """One chunk has two different answers; neither is trusted."""


class AlreadyRunning(InfrastructureError):
    """Another process drives the run; ``by`` says which ("host pid ..."). A process that gets this only watches."""

    def __init__(self, run: str, by: str, server: str = "") -> None:
        """``server`` has the options that name it for a command, if the run's folder is not enough."""
        watch = f"evalq watch {shlex.quote(run)} {server}".rstrip()
        super().__init__(f"run {run} is driven by another process ({by}); see it with: {watch}")
        self.run = run
        self.by = by


class Finished(AlreadyRunning):
    """Another process has finished the run: nothing is left to compute, only a report to fetch."""

    def __init__(self, run: str, server: str = "") -> None:
        report = f"evalq report {shlex.quote(run)} {server}".rstrip()
        # Skip the parent's message: no process drives the run any more, so there is nothing to watch.
        InfrastructureError.__init__(self, f"run {run} was finished by another command; see it: {report}")
        self.run = run
        self.by = ""


class Incomplete(InfrastructureError):
    """The run ended (cancelled, expired, or dead records) before every chunk was committed."""


class Cancelled(Incomplete):
    """Somebody cancelled the run: it cannot be resumed."""


class Paused(EvalqError):
    """Somebody paused the run from elsewhere; it can be resumed."""

    exit_code = 130


class WaitTimeout(InfrastructureError, TimeoutError):
    """The run did not end within the time that its caller wanted to wait; it goes on."""


class Interrupted(EvalqError):
    """The user stopped the command; ``how`` is the command that resumes it."""

    exit_code = 130

    def __init__(self, how: str) -> None:
        super().__init__(f"interrupted; resume with: {how}")
        self.how = how


def resource_shortage(error: BaseException) -> str:
    """The resource that this machine lacks, and what to do about it; empty for any other error."""
    if isinstance(error, MemoryError):
        return "there is no memory left; raise its limit (ulimit -v, or the container's)"
    # Python has no class for it.
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return "no thread can be started; raise the limits on processes and memory (ulimit, or the container's)"
    return ""
