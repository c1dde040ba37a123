"""How many CPUs this process may use: those that the scheduler gives it, and no more than its control groups pay for.

The machine's number is another one: a container with one CPU of 64 would start 64 processes for it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

__all__ = ["usable_cpus"]

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
