"""The environment of this process: remove Celery's variables from it, and hide its secrets from other processes."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from evalq.workers.names import is_celery_variable

_ASIDE: dict[str, str] = {}


def set_aside_celery() -> None:
    """Remove Celery's variables from this process's environment. Call it before anything imports Celery or kombu.

    Celery and kombu read some of them at import, and an invalid value (AUTOSCALE_KEEPALIVE=soon) ends the process.
    Only evalq's own processes call this: in a program that uses evalq as a library, the variables may be the program's.
    """
    for name in [name for name in os.environ if is_celery_variable(name)]:
        _ASIDE[name] = os.environ.pop(name)


def inherited() -> dict[str, str]:
    """The environment that this process started with, with Celery's variables, for children and targets' programs."""
    return {**os.environ, **_ASIDE}


# -- secrets in the environment --------------------------------------------------------------------
# Linux shows a process's initial environment in /proc/PID/environ, to every process of the same user and to root. A
# target's program could read keys there that are not in its own environment. So a process with keys makes itself
# undumpable, which hides /proc from its user. It also overwrites the values in the memory that the kernel shows, which
# hides them from root. If a shell runs between two of evalq's processes, the keys go through a pipe.

_NOT_DUMPABLE = 4  # PR_SET_DUMPABLE
_HANDED = "EVALQ_HANDED"
"""The variable with the path of the pipe for keys; `receive_secrets` removes it before settings are read."""
_ENV_START, _ENV_END = 47, 48
"""Fields of /proc/self/stat, counted after the program's name: the bounds of the environment that the kernel shows."""
_PIPE_BYTES = 1 << 15
_SECRET = re.compile(
    r"(^|_)(API_?KEYS?|KEYS?|TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PWD_?HASH|CREDENTIALS?|AUTH|COOKIE|PRIVATE)(_|$)"
    r"|^EVALQ_(BROKER|LEDGER)$",
    re.IGNORECASE,
)


_named: set[str] = set()
"""Variables that the targets file names; `seal` adds them."""


def is_secret(name: str) -> bool:
    """Whether the value of a variable with this name may be secret."""
    return bool(_SECRET.search(name))


def _secret_names(environment: Mapping[str, str]) -> set[str]:
    """The variables that may be secret, by their names or because this process's targets file names them."""
    return {name for name in environment if name in _named or is_secret(name)}


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` without the variables that may be secret, for a program that needs no key."""
    secret = _secret_names(environment)
    return {name: value for name, value in environment.items() if name not in secret}


def seal(also: Iterable[str] = ()) -> None:
    """Hide this process's secret variables from other processes, above all from programs that it starts.

    ``also`` are further secret variables, which the targets file names. ``os.environ`` still has all values, in memory
    that /proc does not show. Does nothing outside Linux.
    """
    _named.update(also)
    if sys.platform != "linux":
        return
    secret = _secret_names(os.environ)
    for name in secret:
        os.environ[name] = os.environ[name]  # the C library takes a copy
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_bytes().rpartition(b") ")[2].split()
        _blank(int(fields[_ENV_START]), int(fields[_ENV_END]), {os.fsencode(name) for name in secret})
    ctypes.CDLL(None).prctl(_NOT_DUMPABLE, 0, 0, 0, 0)


def _blank(start: int, end: int, names: set[bytes]) -> None:
    """Overwrite the values of the variables ``names`` in the initial environment, at these memory addresses."""
    if not 0 < start < end:
        return
    place = start
    for entry in ctypes.string_at(start, end - start).split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and value and name in names:
            ctypes.memset(place + len(name) + 1, ord("*"), len(value))
        place += len(entry) + 1


def send_secrets(environment: Mapping[str, str], folder: Path) -> tuple[dict[str, str], int | None]:
    """Send secrets through a pipe to a process that a shell starts, whose environment others could read.

    Returns the environment for that process, which has the pipe's path in place of the secrets, and a descriptor to
    close when the process has ended (None if nothing was sent). The process calls `receive_secrets`. ``folder`` must be
    private to this user. Nothing is written to a disk.
    """
    secret = {name: environment[name] for name in _secret_names(environment)}
    data = json.dumps(secret).encode() + b"\n"
    if not secret or len(data) > _PIPE_BYTES:  # a longer write would block, as there is no reader yet
        return dict(environment), None
    pipe = folder / "handed"
    pipe.unlink(missing_ok=True)  # left by a process that ended before it could read
    os.mkfifo(pipe, 0o600)
    # Open for reading and writing, so that opening and filling it do not wait for a reader.
    held = os.open(pipe, os.O_RDWR | os.O_CLOEXEC)
    os.write(held, data)
    return {**without_secrets(environment), _HANDED: str(pipe)}, held


def receive_secrets() -> None:
    """Add the variables that `send_secrets` put into the pipe to this process's environment, once."""
    handed = os.environ.pop(_HANDED, "")
    if handed:
        with contextlib.suppress(OSError, ValueError), open(handed, "rb") as source:
            os.environ.update(json.loads(source.readline()))
            Path(handed).unlink()
