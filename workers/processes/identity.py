"""A process's identity: its name in the ledger, in locks and in logs, and its code version."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
from functools import cache

from evalq.evalcore.version import code_now, code_version
from evalq.evalcore.views.markdown import printed_block


def host() -> str:
    """This machine's name, as one word."""
    return "-".join(socket.gethostname().split()) or "unknown"


def unique_name() -> str:
    """A new name for a worker, a caller or a holder of permits in this process."""
    return f"{host()}-{os.getpid()}-{secrets.token_hex(3)}"


def driver_token() -> str:
    """This process's token, "<host> <pid> <hex>": the same at each call, and unique to the process."""
    # Cached by pid: a forked child must not drive under its parent's token.
    return _made(os.getpid())


@cache
def _made(pid: int) -> str:
    return f"{host()} {pid} {secrets.token_hex(8)}"


def is_gone(token: str) -> bool:
    """Whether the process with that token was on this host and has ended."""
    where, _, rest = token.partition(" ")
    # A pid that the system has reused counts as running; then the driver's silence decides.
    pid = rest.partition(" ")[0]
    return where == host() and pid.isdecimal() and 0 < int(pid) < 1 << 31 and not is_running(int(pid))


def is_running(pid: int) -> bool:
    """Whether any process of this host has that number now."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class _PrintedFormatter(logging.Formatter):
    """Formats a record as `printed_block`: errors of users' functions hold texts of others, of any length."""

    def format(self, record: logging.LogRecord) -> str:
        return printed_block(super().format(record))


def log_to_stderr(level: str = "WARNING") -> None:
    """Log this process to standard error, one line per event, unless logging is set up already."""
    handler = logging.StreamHandler()
    handler.setFormatter(_PrintedFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


# -- the code version of a process, and that of its files by now -----------------------------------
# Python imports a module when it is first needed. If evalq is upgraded while a worker runs, the worker would import new
# modules and answer with them under the old code version.


def code_change(who: str) -> str:
    """A message if the code on this host differs by now from that of this process (a ``who``); empty if not.

    Raises OSError if the files cannot be read.
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
    """Checks one worker process; it reads the files only if modules were imported since the last check."""

    def __init__(self) -> None:
        self._modules = 0
        self._changed = ""

    def changed(self, *, elsewhere: bool = False) -> str:
        """The fault and its remedy, if something was imported after the code had changed; empty if not.

        It stays, since a process keeps its imported modules. ``elsewhere``: a process forked from this one may have
        imported more. Raises OSError if the files cannot be read.
        """
        # Count before reading the files: imports of another thread meanwhile are checked next time.
        modules = len(sys.modules)
        if not self._changed and (elsewhere or modules != self._modules):
            change = code_change("worker")
            self._changed = change and f"{change}: restart this worker"
            self._modules = modules
        return self._changed
