"""CPUs, memory and forks of a process, and how child processes start and end."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from evalq.evalcore.errors import ConfigError

FORKS = hasattr(os, "fork")
"""Whether processes can be forked, which workers and their guards need; Windows cannot."""


def require_forks(what: str = "workers and embedded servers", instead: str = "use --inline here") -> None:
    """Raise ConfigError where processes cannot be forked, grouped and killed; ``instead`` is what works there."""
    if not FORKS:
        raise ConfigError(f"{what} need Linux or macOS: {instead}, or the WSL of Windows")


_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def bound_memory(beyond: int) -> None:
    """Let allocations of this process fail at so many bytes beyond its present use; no effect if that is unknown."""
    with contextlib.suppress(OSError):
        with open("/proc/self/statm", "rb") as stream:
            # The sixth number is data and stack in pages. Since Linux 4.7 RLIMIT_DATA bounds anonymous mappings, too;
            # unlike RLIMIT_AS it leaves address space alone that is reserved and not used.
            data = int(stream.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
        import resource  # here: Windows has neither

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = data + beyond
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def die_with_parent() -> None:
    """Let the kernel end this process when its parent ends, however that ends."""
    if _prctl is not None:
        _prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        # This covers only later ends: the parent may have been killed since the fork.
        if _forked_by and os.getppid() != _forked_by[0]:
            os.kill(os.getpid(), signal.SIGKILL)


def leave_group() -> None:
    """Move this process to its own group, so that code that kills its group kills this process alone.

    A signal to its parent's group then does not reach it; it ends with its parent instead, which only Linux can do.
    """
    if _prctl is not None:
        die_with_parent()
        with contextlib.suppress(OSError):  # it leads a session, and with it its group
            os.setpgid(0, 0)


_forking: list[int] = []
_forked_by: list[int] = []
"""The process that forked this one; empty if this one began as a program."""


def _note_forker() -> None:
    _forking[:] = [os.getpid()]


def _note_parent() -> None:
    _forked_by[:] = _forking


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_note_forker, after_in_child=_note_parent)


# -- starting and ending ---------------------------------------------------------------------------


def child(module: str, *args: str) -> list[str]:
    """The command that runs ``module`` as a program.

    Without -P Python looks for every module in the current folder first, which may hold inputs or an untrusted
    checkout: a `redis.py` there would run in place of the real one, and an `x.dist-info` would register evaluators.
    """
    return [sys.executable, "-P", "-m", module, *args]


def signal_name(number: int) -> str:
    """A signal's name, such as "SIGKILL"; its number if it has none, like most real-time signals."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# -- forks only while no other thread is inside a library that locks -------------------------------
# A forked process has the locks of all threads, but only one thread: a lock that another thread held then is never
# released. OpenSSL takes such a lock for every handshake and hash. So a pool process that was forked while another
# thread of the main process connected hung in its first chunk.

PATIENCE = 5.0
"""Seconds that a fork waits for a block: a hanging server must not keep a pool from starting processes."""
_blocks = threading.RLock()
_waited: list[bool] = []


@contextmanager
def fork_lock() -> Iterator[None]:
    """A block during which no other thread forks this process, or only after `PATIENCE`; one block at a time.

    For threads beside the main one that use connections and hashes.
    """
    with _blocks:
        yield


def _before_fork() -> None:
    _waited.append(_blocks.acquire(timeout=PATIENCE))


def _after_in_parent() -> None:
    if _waited.pop():
        _blocks.release()


def _after_in_child() -> None:
    global _blocks  # the thread that held it does not exist here
    _blocks = threading.RLock()
    _waited.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)


# -- CPUs that this process may use: by scheduler and control groups -------------------------------
# Not the machine's number: a container with one CPU of 64 would start 64 processes.

_PROC = Path("/proc/self")


def usable_cpus(proc: Path = _PROC) -> int:
    """The number of usable CPUs, at least 1. Parts are rounded up: with 1.5 CPUs, two processes are faster than one.

    ``proc`` is this process's folder in /proc; without one, only the scheduler counts.
    """
    quotas = [quota for quota in _quotas(proc) if quota > 0]
    return max(1, min([_scheduled(), *(math.ceil(quota) for quota in quotas)]))


def _scheduled() -> int:
    if hasattr(os, "sched_getaffinity"):  # Linux; taskset, cpusets
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quotas(proc: Path) -> Iterator[float]:
    """CPU limits of each control group of this process; all of them apply."""
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
    """A group's folder and its parents, up to the mount point; a container may have only that."""
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
    """The quota's share of the period in CPUs; 0 without a limit."""
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else 0.0


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _unescaped(field: str) -> str:
    """Decode a path of mountinfo, which has blanks and others as a backslash and three octal digits."""
    return field.encode().decode("unicode_escape") if "\\" in field else field
