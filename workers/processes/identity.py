"""A process by name: in the ledger, in the locks of run folders, and in the log that workers write."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from functools import cache

__all__ = ["driver_token", "host", "is_gone", "is_running", "log_to_stderr", "unique_name"]


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
