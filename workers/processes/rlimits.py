"""What a process that runs somebody else's code may take of this machine."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys

__all__ = ["bound_memory", "die_with_parent", "leave_group"]

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def bound_memory(beyond: int) -> None:
    """Let allocations of this process fail at so many bytes beyond what it has. No effect where that is not known."""
    with contextlib.suppress(OSError):
        with open("/proc/self/statm", "rb") as stream:
            # The sixth number is data and stack in pages. Since Linux 4.7 RLIMIT_DATA bounds anonymous mappings, too;
            # unlike RLIMIT_AS it leaves address space alone that is reserved and not used.
            data = int(stream.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = data + beyond
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def die_with_parent() -> None:
    """Have the kernel end this process when the one that started it is gone, however it went."""
    if _prctl is not None:
        _prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        # The kernel tells of what happens from here on: a parent that was killed since the fork is gone already.
        if _forked_by and os.getppid() != _forked_by[0]:
            os.kill(os.getpid(), signal.SIGKILL)


def leave_group() -> None:
    """Let what ends this process's whole group, as a record's code may, end this process alone.

    Whoever ends its parent's group then does not reach it: it ends with its parent, so that this is for Linux only.
    """
    if _prctl is not None:
        die_with_parent()
        with contextlib.suppress(OSError):  # it leads a session, and with it its group
            os.setpgid(0, 0)


_forking: list[int] = []
_forked_by: list[int] = []
"""The process that forked this one; none where this one began as a program."""


def _before() -> None:
    _forking[:] = [os.getpid()]


def _in_child() -> None:
    _forked_by[:] = _forking


os.register_at_fork(before=_before, after_in_child=_in_child)
