"""Which process this is: its name in the ledger, in locks and in logs, and the version of its code."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
from functools import cache

from evalq.evalcore.version import code_now, code_version


def host() -> str:
    """This machine's name, as one word."""
    return "-".join(socket.gethostname().split()) or "unknown"


def unique_name() -> str:
    """A name for a worker, a caller or a holder of permits of this process: another one at each call."""
    return f"{host()}-{os.getpid()}-{secrets.token_hex(3)}"


def driver_token() -> str:
    """This process's token, "<host> <pid> <hex>": the same each time, and no other process's."""
    # Cached by pid: a forked child is another process, and must not drive under its parent's token.
    return _made(os.getpid())


@cache
def _made(pid: int) -> str:
    return f"{host()} {pid} {secrets.token_hex(8)}"


def is_gone(token: str) -> bool:
    """Whether the process with that token was one of this host and runs no more."""
    where, _, rest = token.partition(" ")
    # A pid that the system has reused counts as running; then the driver's silence decides.
    pid = rest.partition(" ")[0]
    return where == host() and pid.isdecimal() and 0 < int(pid) < 1 << 31 and not is_running(int(pid))


def is_running(pid: int) -> bool:
    """Whether a process of this host has that number now, whoever's it is."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def log_to_stderr(level: str = "WARNING") -> None:
    """Have this process's log on standard error, a line an event, unless it was set up before."""
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


# -- the code that a process says it is, and the one that its files are by now ---------------------
# Python imports a module when it is first needed. A worker under whose feet evalq is installed anew would import
# what it has not needed yet of the new code, and answer with it in the name of the old.


def code_change(who: str) -> str:
    """That the code on this host is another by now than this process's, a ``who``'s; empty where it is the same.

    Raises OSError where its files cannot be read.
    """
    try:
        now = code_now()
    except FileNotFoundError:
        now = "half installed"
    if now == code_version():
        return ""
    return (
        f"the files of evalq or of a plug-in on this host were changed while this {who} ran (it began as code "
        f"{code_version()}, they are {now})"
    )


class CodeVersionGuard:
    """One worker process's; it looks at the files only when modules were imported since it last did."""

    def __init__(self) -> None:
        self._modules = 0
        self._changed = ""

    def changed(self, *, elsewhere: bool = False) -> str:
        """What is wrong and what to do, where something was imported after the code had changed; empty where not.

        For good: what a process has imported once, it computes with. ``elsewhere``: a process that was forked from
        this one may have imported what this one has not. Raises OSError where the files cannot be read.
        """
        # Counted before the files are read: what another thread imports meanwhile is looked at the next time.
        modules = len(sys.modules)
        if not self._changed and (elsewhere or modules != self._modules):
            told = code_change("worker")
            self._changed = told and f"{told}: restart this worker"
            self._modules = modules
        return self._changed
