"""What this system gives a process: CPUs, memory, forks, and how child processes start and end."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

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


def _note_forker() -> None:
    _forking[:] = [os.getpid()]


def _note_parent() -> None:
    _forked_by[:] = _forking


os.register_at_fork(before=_note_forker, after_in_child=_note_parent)


# -- starting and ending ---------------------------------------------------------------------------


def child(module: str, *args: str) -> list[str]:
    """The command that runs ``module`` as a program.

    Without -P Python looks for every module in the current folder first, which may hold inputs or an untrusted
    checkout: a `redis.py` there would run in place of the real one, and an `x.dist-info` would register evaluators.
    """
    return [sys.executable, "-P", "-m", module, *args]


def signal_name(number: int) -> str:
    """As "SIGKILL", say; by its number where it has no name, as most real-time signals."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# -- forks at moments in which no other thread is inside a library that locks ----------------------
# A forked process has the locks of all threads and only one of the threads: what another one held at that moment is
# held there for ever. OpenSSL guards its algorithms by such a lock, for every handshake and every hash, so that a
# process of the pool that was forked while the main process' other thread connected stood still in its first chunk.

PATIENCE = 5.0
"""Seconds that a fork waits for a block: a server that hangs must not keep a pool from its processes."""
_blocks = threading.RLock()
_waited: list[bool] = []


@contextmanager
def fork_lock() -> Iterator[None]:
    """For the length of a block no other thread of this process forks it, or only after `PATIENCE`.

    For what a thread beside the main one does with connections and hashes. One such block at a time.
    """
    with _blocks:
        yield


def _before_fork() -> None:
    _waited.append(_blocks.acquire(timeout=PATIENCE))


def _after_in_parent() -> None:
    if _waited.pop():
        _blocks.release()


def _after_in_child() -> None:
    global _blocks  # whoever held it is not here
    _blocks = threading.RLock()
    _waited.clear()


os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)


# -- CPUs: those that the scheduler gives, and no more than the control groups pay for -------------
# The machine's number is another one: a container with one CPU of 64 would start 64 processes for it.

_PROC = Path("/proc/self")


def usable_cpus(proc: Path = _PROC) -> int:
    """At least 1. A part of a CPU counts as a whole one: with 1.5, two processes are faster than one.

    ``proc`` is the folder that tells of this process (proc(5)); where there is none, only the scheduler is asked.
    """
    quotas = [quota for quota in _quotas(proc) if quota > 0]
    return max(1, min([_scheduled(), *(math.ceil(quota) for quota in quotas)]))


def _scheduled() -> int:
    if hasattr(os, "sched_getaffinity"):  # Linux; taskset, cpusets
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quotas(proc: Path) -> Iterator[float]:
    """CPUs that each control group of this process may use, where that is limited: all of them hold."""
    groups = _lines(proc / "cgroup")
    for mount in _lines(proc / "mountinfo"):
        before, _, after = mount.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        root, point = (_unescaped(field) for field in fields[3:5])
        controllers = kind[2].split(",")
        for group in groups:
            _, names, path = [*group.split(":", 2), "", ""][:3]
            if kind[0] == "cgroup2" and not names:
                yield from (_version_2(folder) for folder in _folders(Path(point), root, path))
            elif kind[0] == "cgroup" and "cpu" in controllers and "cpu" in names.split(","):
                yield from (_version_1(folder) for folder in _folders(Path(point), root, path))


def _folders(point: Path, root: str, path: str) -> Iterator[Path]:
    """A group's folder and those above it, up to where they are mounted, which may be all that a container has."""
    inside = PurePosixPath(path)
    if inside.is_relative_to(root):
        inside = inside.relative_to(root)
    here = point / str(inside).lstrip("/")
    yield here
    while here != point and point in here.parents:
        here = here.parent
        yield here


def _version_2(folder: Path) -> float:
    """ "<quota> <period>" in microseconds, or "max <period>"."""
    words = " ".join(_lines(folder / "cpu.max")).split()
    return _share(*words[:2]) if len(words) == 2 else 0.0


def _version_1(folder: Path) -> float:
    """The same in two files; -1 is no limit."""
    words = [" ".join(_lines(folder / name)) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
    return _share(*words)


def _share(quota: str, period: str) -> float:
    """0 where nothing is limited."""
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else 0.0


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _unescaped(field: str) -> str:
    """A path of mountinfo, which has blanks and others as a backslash and three octal digits."""
    return field.encode().decode("unicode_escape") if "\\" in field else field
