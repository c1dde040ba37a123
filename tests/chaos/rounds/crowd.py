"""Commands that stand in front of their first step, are let go at one instant, and have ended when it returns."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration import preloaded
from tests.integration.forked import IN_A_CROWD
from tests.integration.harness import clean_environment

HERE = Path(__file__).parent
SECONDS = 300.0
"""After which a crowd that is not ready, or has not ended, is given up."""


@dataclass(frozen=True)
class Going:
    """A command: its arguments, the folder it stands in, and the tree whose code it is (empty: this one)."""

    args: tuple[str, ...]
    cwd: Path
    code: str = ""


@dataclass(frozen=True)
class Ended:
    """How it ended: None for one that did not."""

    going: Going
    code: int | None
    out: bytes
    said: str


def witnessed(file: Path, code: str = "") -> dict[str, str]:
    """Variables for a process whose computing is counted in ``file``, of the tree ``code``."""
    path = os.pathsep.join(filter(None, (str(HERE.parent / "hooks"), code)))
    return clean_environment(PYTHONPATH=path, ROUNDS_WITNESS=str(file))


def let_go(crowd: Sequence[Going], folder: Path, witness: Path) -> tuple[list[Ended], float]:
    """Start all of them and let them go when every one is ready; how they ended, and in how many seconds they went.

    What they say goes to files in ``folder``.
    """
    pipes = [str(folder / "ready"), str(folder / "go")]
    for pipe in pipes:
        os.mkfifo(pipe)
    # Open for both ways, so that neither side waits for the other, nor takes it for gone before it has come.
    ready, hold = (os.open(pipe, os.O_RDWR) for pipe in pipes)
    processes = []
    for number, going in enumerate(crowd):
        with (folder / f"{number}.out").open("wb") as out, (folder / f"{number}.err").open("wb") as err:
            processes.append(_start(going, pipes, witness, stdin=subprocess.DEVNULL, stdout=out, stderr=err))
    deadline = time.monotonic() + SECONDS
    try:
        _lines(ready, len(crowd), deadline, processes)
        os.close(hold)
        hold = -1
        went = sorted(int(line) for line in _lines(ready, len(crowd), deadline))
        ended = [_end(*each, folder, deadline) for each in zip(range(len(crowd)), crowd, processes, strict=True)]
    finally:
        os.close(ready)
        if hold >= 0:
            os.close(hold)
        for process in processes:
            process.kill()
            process.wait()
    return ended, (went[-1] - went[0]) / 1e9


def _start(going: Going, pipes: list[str], witness: Path, **streams: Any) -> subprocess.Popen[Any]:
    """A command that will stand; in tests it is forked where that is the same: it stands when all is imported."""
    env = witnessed(witness, going.code)
    how = streams | {"cwd": going.cwd, "env": env, "start_new_session": True}
    words = [*pipes, *going.args]
    if preloaded.forks and not going.code and preloaded.startable(env, env["PYTHONPATH"]):
        return preloaded.Preloaded("command", words, module=IN_A_CROWD, safe=True, **how)
    return subprocess.Popen([sys.executable, "-P", str(HERE / "waiting.py"), *words], **how)


def _lines(pipe: int, wanted: int, deadline: float, living: Sequence[subprocess.Popen[Any]] = ()) -> list[bytes]:
    """So many lines that processes write; raises AssertionError where they do not come, or one of ``living`` ends."""
    data = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while data.count(b"\n") < wanted:
            if selector.select(0.5):
                data += os.read(pipe, 4096)
            assert all(process.poll() is None for process in living), "a command ended before its start"
            assert time.monotonic() < deadline, "not all commands came to their start"
    return data.splitlines()


def _end(number: int, going: Going, process: subprocess.Popen[bytes], folder: Path, deadline: float) -> Ended:
    code: int | None = None
    with contextlib.suppress(subprocess.TimeoutExpired):  # told by the code
        code = process.wait(max(0.0, deadline - time.monotonic()))
    said = (folder / f"{number}.err").read_text(errors="replace")
    return Ended(going, code, (folder / f"{number}.out").read_bytes(), said)
