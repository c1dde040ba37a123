"""Programs as processes: a call takes of this machine what it needs, and leaves nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from evalq.workers.targets import Call, Caller, Failure, load_targets
from tests.integration.harness import PATIENCE, clean_environment, wait_until
from tests.unit.targets.test_programs import calling, runs, write_target


@pytest.mark.parametrize("turns", range(1, 10))
def test_a_loop_that_closes_while_a_program_starts_ends(tmp_path: Path, turns: int) -> None:
    """As at a second Ctrl-C: not one turn of the loop is such that it then waits for a program for ever."""
    targets = write_target(tmp_path, {"kind": "command", "argv": ["sleep", "600"], "timeout_seconds": 600})
    what = f'[asyncio.create_task(caller.call(Call("x"))), *[await asyncio.sleep(0) for _ in range({turns})]][1:]'
    done = subprocess.run(
        calling(targets, what), env=clean_environment(), capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert (done.stdout, done.stderr) == (f"{[None] * turns}\n", "")


def test_the_number_of_a_program_is_nobody_elses_before_its_group_is_killed(tmp_path: Path) -> None:
    """It has ended, and a daemon keeps its output: were it reaped, another might be given its number, and killed."""
    daemon = "setsid sh -c 'echo $$ > new; mv new pid; exec sleep 600' & "  # of another group by the time of its file
    text = f"echo $$ > leader; {daemon} while [ ! -f pid ]; do sleep 0.01; done; kill -KILL 0"
    entry = {"kind": "command", "argv": ["/bin/sh", "-c", text], "timeout_seconds": 600}
    named = load_targets(write_target(tmp_path, entry))["t"]

    async def under_way() -> bool:
        async with Caller(named) as caller:
            call = asyncio.create_task(caller.call(Call("x")))
            await asyncio.to_thread(wait_until, (tmp_path / "pid").is_file, "the daemon runs")
            leader = int((tmp_path / "leader").read_text())
            await asyncio.to_thread(wait_until, lambda: not runs(leader), "the program has ended")
            for _ in range(20):  # turns in which it might be reaped
                await asyncio.sleep(0.01)
            held = Path(f"/proc/{leader}").exists()
            call.cancel()
            await asyncio.wait([call])
            return held and not Path(f"/proc/{leader}").exists()

    try:
        assert asyncio.run(under_way())
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_a_command_takes_no_thread(tmp_path: Path) -> None:
    """Where none is left, a program that had been started would stay, with nobody to end it."""
    entry = {"kind": "command", "argv": ["/bin/sh", "-c", "echo > there; sleep 600"], "timeout_seconds": 600}
    named = load_targets(write_target(tmp_path, entry))["t"]

    async def more() -> int:
        async with Caller(named) as caller:
            before = threading.active_count()
            call = asyncio.create_task(caller.call(Call("x")))
            while not (tmp_path / "there").is_file():
                await asyncio.sleep(0.01)
            after = threading.active_count()
            call.cancel()
            await asyncio.wait([call])
            return after - before

    assert asyncio.run(more()) == 0


def test_no_call_leaves_a_descriptor_or_a_process(tmp_path: Path) -> None:
    """Programs that end, stop, say too much, let go of their pipes, and calls that are cancelled in any turn, twice."""
    texts = ("echo 1", "kill -STOP $$", "kill -STOP 0", "exec yes", "exec <&-; echo 1", "exec <&- >&- 2>&-; sleep 600")
    left = "exec 3<&0; setsid sleep 600 <&3 >/dev/null 2>&1 & echo $! >> left; wait"
    kinds = ["answer", "timeout", "timeout", "bad_output", "answer", "timeout", "timeout"]

    def ready(text: str) -> Caller:
        entry = {"kind": "command", "argv": ["/bin/sh", "-c", text], "timeout_seconds": 600, "max_bytes": 2000}
        if text.startswith(("kill", "exec <&- >&-", "exec 3<&0")):
            entry["timeout_seconds"] = 0.5
        return Caller(load_targets(write_target(tmp_path, entry))["t"])

    async def kind(text: str) -> str:
        async with ready(text) as caller:
            before = _descriptors()
            result = await caller.call(Call(200_000 * "x"))
            await asyncio.to_thread(wait_until, lambda: _descriptors() == before, "its pipes are closed", 60)
            return result.kind if isinstance(result, Failure) else "answer"

    async def cancelled(turns: int) -> None:
        async with ready("sleep 600") as caller:
            call = asyncio.create_task(caller.call(Call(200_000 * "x")))
            for _ in range(turns):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
            await asyncio.to_thread(wait_until, lambda: _children() == others, "what the call started is reaped")

    others = _children()

    async def everything() -> list[str]:
        for turns in range(10):
            await cancelled(turns)
        return [await kind(text) for text in (*texts, left)]

    try:
        asyncio.run(everything())  # what is made but once
        before = _descriptors()
        assert asyncio.run(everything()) == kinds
        assert _descriptors() == before
        assert _children() == others
    finally:
        for pid in (tmp_path / "left").read_text().split():
            os.kill(int(pid), signal.SIGKILL)


@pytest.mark.parametrize("lacking", [("pidfd_open",), ("pidfd_open", "waitid")])
def test_a_system_without_these_calls_has_the_same_answers(
    tmp_path: Path, lacking: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS has the second one since Python 3.13."""
    for name in lacking:
        monkeypatch.delattr(os, name)

    async def told(text: str) -> tuple[str, str]:
        entry = {"kind": "command", "argv": ["/bin/sh", "-c", text], "timeout_seconds": 2, "max_bytes": 2000}
        async with Caller(load_targets(write_target(tmp_path, entry))["t"]) as caller:
            result = await caller.call(Call("x"))
        return (result.kind, result.reason) if isinstance(result, Failure) else ("answer", result.text)

    assert asyncio.run(told("echo 1")) == ("answer", "1\n")
    assert asyncio.run(told("exit 3")) == ("server", "the program ended with exit code 3")
    assert asyncio.run(told("kill -9 $$")) == ("server", "the program was killed by SIGKILL")
    assert asyncio.run(told("sleep 600"))[0] == "timeout"
    assert asyncio.run(told("exec yes"))[0] == "bad_output"


def _descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def _children() -> set[str]:
    """Children of this process, those that have ended and are not reaped, too."""
    parents = {}
    for process in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[process.parent.name] = process.read_text().rpartition(")")[2].split()[1]
    return {pid for pid, parent in parents.items() if parent == str(os.getpid())}
