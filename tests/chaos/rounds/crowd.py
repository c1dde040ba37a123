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

from tests.integration.harness import clean_environment

__all__ = ["Ended", "Going", "let_go", "witnessed"]

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
    ready, told = os.pipe()
    gate, hold = os.pipe()
    processes = []
    for number, going in enumerate(crowd):
        command = [sys.executable, "-P", str(HERE / "waiting.py"), str(told), str(gate), *going.args]
        with (folder / f"{number}.out").open("wb") as out, (folder / f"{number}.err").open("wb") as err:
            processes.append(
                subprocess.Popen(
                    command,
                    cwd=going.cwd,
                    env=witnessed(witness, going.code),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    pass_fds=(told, gate),
                    start_new_session=True,
                )
            )
    os.close(told)
    os.close(gate)
    deadline = time.monotonic() + SECONDS
    try:
        _lines(ready, len(crowd), deadline)
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


def _lines(pipe: int, wanted: int, deadline: float) -> list[bytes]:
    """So many lines that processes write; raises AssertionError where they do not come."""
    data = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while data.count(b"\n") < wanted:
            assert selector.select(max(0.0, deadline - time.monotonic())), "not all commands came to their start"
            more = os.read(pipe, 4096)
            assert more, "a command ended before its start: see what it said"
            data += more
    return data.splitlines()


def _end(number: int, going: Going, process: subprocess.Popen[bytes], folder: Path, deadline: float) -> Ended:
    code: int | None = None
    with contextlib.suppress(subprocess.TimeoutExpired):  # told by the code
        code = process.wait(max(0.0, deadline - time.monotonic()))
    said = (folder / f"{number}.err").read_text(errors="replace")
    return Ended(going, code, (folder / f"{number}.out").read_bytes(), said)
