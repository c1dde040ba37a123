"""Who drives a run: one process, by the token that each of its steps carries."""

from __future__ import annotations

import os
import secrets
import socket
from functools import cache

__all__ = ["driver_token"]


def driver_token() -> str:
    """This process's token, "<host> <pid> <hex>": the same each time, and no other process's."""
    return _made(os.getpid())


@cache
def _made(pid: int) -> str:
    return f"{'-'.join(socket.gethostname().split()) or 'unknown'} {pid} {secrets.token_hex(8)}"
