"""Processes of this machine as its kernel knows them, for tests that look for what is left of some."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def runs(pid: int) -> bool:
    """Whether it goes on: one that has ended and is not reaped does not."""
    try:
        return _stat(Path(f"/proc/{pid}"))[0] not in "ZX"
    except OSError:
        return False


def children() -> set[str]:
    """Children of this process, those that have ended and are not reaped, too."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if _stat(process)[1] == str(os.getpid()):
                found.add(process.name)
    return found


def at_work_in(folder: Path) -> list[str]:
    """Processes whose current folder that is."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink() == folder and runs(int(process.name)):
                found.append(process.name)
    return found


def _stat(process: Path) -> list[str]:
    """Its state, its parent, and so on."""
    return (process / "stat").read_text().rpartition(")")[2].split()
