"""This process's environment: Celery's variables are taken out of it, and secrets are kept from other processes."""

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
    """Take Celery's variables out of this process's environment; call it before anything imports Celery or kombu.

    They read some of them when they are imported, and a wrong value (AUTOSCALE_KEEPALIVE=soon) ends the process.
    Only for processes that are evalq's own: in a program that uses evalq as a library they may be the program's.
    """
    for name in [name for name in os.environ if is_celery_variable(name)]:
        _ASIDE[name] = os.environ.pop(name)


def inherited() -> dict[str, str]:
    """The environment that this process was started with: for its children, and for programs of targets."""
    return {**os.environ, **_ASIDE}


# -- secrets of the environment --------------------------------------------------------------------
# Linux shows the environment that a process began with in /proc/PID/environ, to every process of the same user and
# to root. A target's program could read there what its own environment was not given. So a process that has keys
# makes itself undumpable, which closes /proc to its user, and overwrites their values where the kernel shows them,
# which closes it to root as well; and keys are handed to a helper through a pipe where a shell stands between the
# two.

_NOT_DUMPABLE = 4  # PR_SET_DUMPABLE
_HANDED = "EVALQ_HANDED"
"""The variable that names the pipe through which keys come; it is gone before settings are read."""
_ENV_START, _ENV_END = 47, 48
"""Of the fields of /proc/self/stat behind the program's name: where the kernel shows the environment from and to."""
_PIPE_BYTES = 1 << 15
_SECRET = re.compile(
    r"(^|_)(API_?KEYS?|KEYS?|TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PWD_?HASH|CREDENTIALS?|AUTH|COOKIE|PRIVATE)(_|$)"
    r"|^EVALQ_(BROKER|LEDGER)$",
    re.IGNORECASE,
)


_named: set[str] = set()
"""Variables that a targets file names, from `seal` on."""


def is_secret(name: str) -> bool:
    """Whether a variable of this name may hold a secret."""
    return bool(_SECRET.search(name))


def _secret_names(environment: Mapping[str, str]) -> set[str]:
    """The variables that may hold a secret: by their names, and because this process's targets file names them."""
    return {name for name in environment if name in _named or is_secret(name)}


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` as a program may have it that needs no key."""
    secret = _secret_names(environment)
    return {name: value for name, value in environment.items() if name not in secret}


def seal(also: Iterable[str] = ()) -> None:
    """Keep what may be secret in this process's environment from other processes, its own programs above all.

    ``also`` are the variables that its targets file names. ``os.environ`` keeps all values: they are moved to memory
    of which /proc shows nothing.
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
    """Overwrite the values of these variables in the environment that this process began with."""
    if not 0 < start < end:
        return
    place = start
    for entry in ctypes.string_at(start, end - start).split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and value and name in names:
            ctypes.memset(place + len(name) + 1, ord("*"), len(value))
        place += len(entry) + 1


def send_secrets(environment: Mapping[str, str], folder: Path) -> tuple[dict[str, str], int | None]:
    """(``environment`` without its secrets, a descriptor to be closed when the process has ended), for a process that
    is started by way of another, whose environment anybody may read. `take_over` gets them from a pipe in ``folder``,
    which is nobody else's; nothing of them is on a disk.
    """
    secret = {name: environment[name] for name in _secret_names(environment)}
    data = json.dumps(secret).encode() + b"\n"
    if not secret or len(data) > _PIPE_BYTES:  # more would wait for a reader that is not there yet
        return dict(environment), None
    pipe = folder / "handed"
    pipe.unlink(missing_ok=True)  # of one that ended before it could take over
    os.mkfifo(pipe, 0o600)
    # For both ways: so it can be opened and filled before anybody reads.
    held = os.open(pipe, os.O_RDWR | os.O_CLOEXEC)
    os.write(held, data)
    return {**without_secrets(environment), _HANDED: str(pipe)}, held


def receive_secrets() -> None:
    """Take what was handed over into this process's environment, once."""
    handed = os.environ.pop(_HANDED, "")
    if handed:
        with contextlib.suppress(OSError, ValueError), open(handed, "rb") as source:
            os.environ.update(json.loads(source.readline()))
            Path(handed).unlink()
