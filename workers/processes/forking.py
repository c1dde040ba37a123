"""Forks at moments in which no other thread is inside a library that locks.

A forked process has the locks of all threads and only one of the threads: what another one held at that moment is held
there for ever. OpenSSL guards its algorithms by such a lock, for every handshake and every hash, so that a process of
the pool that was forked while the main process' other thread connected stood still in its first chunk.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["unforked"]

PATIENCE = 5.0
"""Seconds that a fork waits for a block: a server that hangs must not keep a pool from its processes."""
_blocks = threading.RLock()
_waited: list[bool] = []


@contextmanager
def unforked() -> Iterator[None]:
    """For the length of a block no other thread of this process forks it, or only after `PATIENCE`.

    For what a thread beside the main one does with connections and hashes. One such block at a time.
    """
    with _blocks:
        yield


def _before() -> None:
    _waited.append(_blocks.acquire(timeout=PATIENCE))


def _in_parent() -> None:
    if _waited.pop():
        _blocks.release()


def _in_child() -> None:
    global _blocks  # whoever held it is not here
    _blocks = threading.RLock()
    _waited.clear()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
