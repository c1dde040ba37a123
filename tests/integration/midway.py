"""Runs that stand still in their middle, however fast evalq is, and however late the test comes to it."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.agents.server import Agent
from tests.integration.harness import HAZARDS, Fleet, Server, committed, descendants_of, evalq, queued, wait_until

WINDOW = 16
"""Chunks in flight of a run that is to stand still: its producer plans three times as many before any is done."""
_GATE = "gate"


@contextlib.contextmanager
def standing_midway(
    server: Server, fleet: Fleet, producer: subprocess.Popen[Any], out: Path, *options: str
) -> Iterator[subprocess.Popen[bytes]]:
    """For the length of a block a run has a window of its chunks committed and no more than three, and goes no further.

    Its producer was started with EVALQ_WINDOW of `WINDOW`, and no worker was there before. The worker, started with
    ``options``, is the value: it stands still, perhaps at work, and goes on after the block; nothing hinders the
    producer in the block.
    """
    wait_until(lambda: queued(server, out) >= WINDOW, "a window of chunks waits")
    with contextlib.ExitStack() as standing:
        with fleet.stopped(producer):  # what it has not planned cannot be done
            worker = fleet.add(2, *options, EVALQ_WINDOW=str(WINDOW))
            wait_until(lambda: committed(server, out) >= WINDOW, "they are committed")
            standing.enter_context(fleet.stopped(worker))
        yield worker


class Held(NamedTuple):
    """Records of `hazards` in the file in.jsonl of ``folder``, the last of which wait until they are let go."""

    folder: Path
    free: int
    held: int

    @property
    def command(self) -> tuple[str, ...]:
        """A chunk a record; for processes with `HAZARDS` as their PYTHONPATH."""
        return ("hazards", "in.jsonl", "--params", "params.json", "--chunk-size", "1", "--format", "none")

    @property
    def chunks(self) -> int:
        """Of all of it."""
        return self.free + self.held

    def let_go(self) -> None:
        """From now on nothing waits."""
        (self.folder / _GATE).unlink()

    def calm(self) -> Path:
        """The folder of an undisturbed inline run over the same records, none of which waits any more."""
        done = evalq(*self.command, "--inline", "--out", "calm", cwd=self.folder, PYTHONPATH=HAZARDS)
        assert done.returncode == 0, done.stderr
        return self.folder / "calm"


def hold(folder: Path, free: int = 100, held: int = 10) -> Held:
    """Write so many records that do not wait, and then so many that do."""
    rows = ({"id": f"r{number}", "value": number, "waits": number >= free} for number in range(free + held))
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "params.json").write_text(json.dumps({"gate": str(folder / _GATE)}))
    (folder / _GATE).touch()
    return Held(folder, free, held)


def keep_pace(agent: Agent, run: Path, ahead: int = 4) -> None:
    """Have an agent answer no more than so many calls whose answers are not in the run folder yet.

    Whoever decides by the answers that enough are there has seen them all by then, however late it is.
    """
    log = run / "calls.jsonl"

    def ready() -> bool:
        recorded = 0
        with contextlib.suppress(FileNotFoundError):  # before the first answer, and after the last
            recorded = log.read_bytes().count(b'{"call":')
        return len(agent.log) - recorded < ahead

    agent.ready = ready


def killed_with_all(process: subprocess.Popen[Any]) -> int:
    """SIGKILL to a command; returns its exit code when nothing is left of what it had started.

    That notices soon: until then it would go on calling, and be answered.
    """
    below = descendants_of(process.pid)
    process.kill()
    code = process.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), "all that it started is gone")
    return code
