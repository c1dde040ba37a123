"""What a whole command takes, with all that it starts: seconds by the clock and of CPU time, and memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tests.bench.costs import share_cores_alike

_PR_SET_CHILD_SUBREAPER = 36


class Whole(msgspec.Struct, frozen=True):
    """A command from its start to its exit: ``cpu`` is that of all processes, also of those that were killed."""

    seconds: float
    cpu: float
    said: str


def adopting() -> None:
    """From now on processes whose parents have gone are this one's children, so that what they took is counted."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def taken(command: Sequence[str | Path], cwd: Path) -> Whole:
    """Run a command, which has to end well. Call `adopting` before; this process may have no other children."""
    began, used = time.perf_counter(), _used()
    with _started(command, cwd) as process:
        # What begins a session gets a share of the cores for itself (Linux), and rivals begin none.
        with _looking(process.pid, 0.05, _share_alike):
            said, _ = process.communicate()
        seconds = time.perf_counter() - began
    _wait_for_all()
    return Whole(seconds, _used() - used, said)


def memory_of(command: Sequence[str | Path], cwd: Path) -> float:
    """The most MB that all of a command's processes have at once; of what several share, each has its part (Pss)."""
    most = 0.0

    def look(pids: list[int]) -> None:
        nonlocal most
        most = max(most, sum(map(_proportional, pids)))

    with _started(command, cwd) as process, _looking(process.pid, 0.01, look):
        process.communicate()
    _wait_for_all()
    return most


@contextmanager
def _started(command: Sequence[str | Path], cwd: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        list(map(str, command)), cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        yield process
    assert process.returncode == 0, command


@contextmanager
def _looking(pid: int, seconds: float, look: Callable[[list[int]], None]) -> Iterator[None]:
    """``look`` at a process and all below it, after each so many seconds of the block."""
    over = threading.Event()

    def looking() -> None:
        while not over.wait(seconds):
            look(_with_descendants(pid))

    thread = threading.Thread(target=looking)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _with_descendants(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _share_alike(pids: list[int]) -> None:
    for pid in pids:
        share_cores_alike(pid)


def _proportional(pid: int) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def _wait_for_all() -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
