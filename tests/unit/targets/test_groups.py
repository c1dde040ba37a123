"""Programs as processes: a call takes of this machine what it needs, and leaves nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from evalq.workers.targets import Answered, Call, Caller, Failure, load_targets
from tests.integration.harness import PATIENCE, clean_environment, wait_until
from tests.portions import some
from tests.processes import at_work_in, children, runs
from tests.unit.targets.test_programs import write_target

_COMMAND = {"kind": "command", "argv": ["/bin/sh", "-c", "sleep 600 & echo > there; wait"], "timeout_seconds": 600}
_FUNCTION = {"kind": "python", "function": "agent:agent"}
_FORKS = """
import os, time
from pathlib import Path

if os.fork() == 0:
    time.sleep(600)
Path("there").touch()
time.sleep(600)
"""
_CALLS = """
import asyncio, sys
from evalq.workers.targets import Call, Caller, load_targets

async def called():
    async with Caller(load_targets(sys.argv[1])["t"]) as caller:
        await caller.call(Call("x"))

async def turns():
    call = asyncio.create_task(called())
    for _ in range(int(sys.argv[2])):
        await asyncio.sleep(0)

asyncio.run(turns())
"""


async def _called(targets: Path) -> None:
    """A call from the start of its target to its end."""
    async with Caller(load_targets(targets)["t"]) as caller:
        await caller.call(Call("x"))


@pytest.mark.parametrize("turns", some(range(1, 10), of=3))
@pytest.mark.parametrize("entry", [_COMMAND, _FUNCTION], ids=["command", "function"])
def test_a_loop_that_closes_while_a_program_starts_ends(tmp_path: Path, entry: dict[str, Any], turns: int) -> None:
    """As at a second Ctrl-C: not one turn of the loop is such that it then waits for a program for ever."""
    command = [sys.executable, "-P", "-c", _CALLS, str(write_target(tmp_path, entry)), str(turns)]
    done = subprocess.run(
        command, env=clean_environment(), capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("entry", [_COMMAND, _FUNCTION], ids=["command", "function"])
def test_what_is_cancelled_as_it_starts_leaves_no_process(tmp_path: Path, entry: dict[str, Any]) -> None:
    """Python kills the first process alone then, and waits for whoever has its pipes: here for ten minutes."""
    targets = write_target(tmp_path, entry)
    (tmp_path / "agent.py").write_text(_FORKS)

    async def cancelled() -> None:
        before, call = children(), asyncio.create_task(_called(targets))
        while not children() - before:
            await asyncio.sleep(0)
        # Without a turn of the loop, in which its pipes would be connected.
        wait_until((tmp_path / "there").is_file, "the program and its child run")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(call, PATIENCE)
        wait_until(lambda: not at_work_in(tmp_path), "what was killed is gone", 60)  # what was not runs for longer
        assert children() <= before

    asyncio.run(cancelled())


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

    assert asyncio.run(under_way())
    wait_until(lambda: not runs(int((tmp_path / "pid").read_text())), "the daemon is killed", 60)


_DIES = """
import os, time
from pathlib import Path

def agent(call):
    leader = os.getpid()
    if os.fork() == 0:  # it has the pipes that its parent answers by
        Path("new").write_text(f"{leader} {os.getpid()}")
        Path("new").rename("pids")
        time.sleep(600)
    while not Path("pids").exists():
        time.sleep(0.01)
    os._exit(0)
"""


def test_the_number_of_a_functions_process_is_nobody_elses_before_its_group_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has ended, and what it forked goes on: were it reaped, another might be given its number, and killed."""
    targets = write_target(tmp_path, _FUNCTION)
    (tmp_path / "agent.py").write_text(_DIES)
    held, killpg = list[bool](), os.killpg

    def watched(group: int, number: int) -> None:
        held.append(Path(f"/proc/{group}").exists())  # also of what has ended, and is not reaped
        killpg(group, number)

    monkeypatch.setattr(os, "killpg", watched)

    async def made() -> Answered | Failure:
        async with Caller(load_targets(targets)["t"]) as caller:
            return await caller.call(Call("x"))

    result = asyncio.run(made())
    assert isinstance(result, Failure)
    assert (result.kind, result.reason) == ("crashed", "the function ended its process with exit code 0")
    assert held
    assert all(held)
    leader, child = (int(pid) for pid in (tmp_path / "pids").read_text().split())
    assert not Path(f"/proc/{leader}").exists()
    wait_until(lambda: not runs(child), "its child was killed", 60)  # if it was not, it runs for longer


@pytest.mark.parametrize("turns", range(4))
def test_a_loop_that_closes_while_a_target_is_closed_ends_its_processes(tmp_path: Path, turns: int) -> None:
    """As at a second Ctrl-C: a function's child would go on, since only its parent ends with this process."""
    targets = write_target(tmp_path, _FUNCTION)
    (tmp_path / "agent.py").write_text(_FORKS.rpartition("time.sleep")[0] + "def agent(call): ...\n")
    before = children()

    async def closed() -> asyncio.Task[None]:
        caller = await Caller(load_targets(targets)["t"]).__aenter__()
        assert len(at_work_in(tmp_path)) == 2
        closing = asyncio.create_task(caller.__aexit__(None, None, None))
        for _ in range(1 + turns):
            await asyncio.sleep(0)
        return closing

    asyncio.run(closed())
    wait_until(lambda: not at_work_in(tmp_path), "what was killed is gone", 60)  # what was not runs for longer
    for pid in children() - before:
        os.waitpid(int(pid), 0)


@pytest.mark.parametrize("turns", range(6))
def test_a_function_that_is_started_while_its_target_is_closed_leaves_no_process(tmp_path: Path, turns: int) -> None:
    """Nobody would end it any more: the call fails, as one whose process is killed."""
    named = load_targets(write_target(tmp_path, _FUNCTION))["t"]
    before = children()

    async def called() -> tuple[str, str]:
        client = named.target.client(named.folder, None, dict(os.environ))
        call = asyncio.create_task(client.call(Call("x")))
        for _ in range(turns):
            await asyncio.sleep(0)
        await client.close()
        result = await call
        assert isinstance(result, Failure)
        assert children() <= before
        return result.kind, result.reason

    kind, reason = asyncio.run(called())
    assert (kind, "importing its module killed its process by SIGKILL" in reason) == ("server", True), reason


@pytest.mark.parametrize("entry", [_COMMAND, _FUNCTION], ids=["command", "function"])
def test_a_program_takes_no_thread(tmp_path: Path, entry: dict[str, Any]) -> None:
    """Where none is left, a program that had been started would stay, with nobody to end it."""
    targets = write_target(tmp_path, entry)
    (tmp_path / "agent.py").write_text(_FORKS)

    async def more() -> int:
        before, call = threading.active_count(), asyncio.create_task(_called(targets))
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
            await asyncio.to_thread(wait_until, lambda: children() == others, "what the call started is reaped")

    others = children()

    async def everything() -> list[str]:
        for turns in range(10):
            await cancelled(turns)
        return [await kind(text) for text in (*texts, left)]

    asyncio.run(everything())  # what is made but once
    before = _descriptors()
    assert asyncio.run(everything()) == kinds
    assert _descriptors() == before
    assert children() == others
    daemons = [int(pid) for pid in (tmp_path / "left").read_text().split()]
    wait_until(lambda: not any(runs(pid) for pid in daemons), "what left its group is killed", 60)


@pytest.mark.parametrize("lacking", [("pidfd_open",), ("pidfd_open", "waitid")])
def test_a_system_without_these_calls_has_the_same_answers(
    tmp_path: Path, lacking: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS has the second one since Python 3.13."""
    for name in lacking:
        monkeypatch.delattr(os, name)

    async def message(text: str) -> tuple[str, str]:
        entry = {"kind": "command", "argv": ["/bin/sh", "-c", text], "timeout_seconds": 2, "max_bytes": 2000}
        async with Caller(load_targets(write_target(tmp_path, entry))["t"]) as caller:
            result = await caller.call(Call("x"))
        return (result.kind, result.reason) if isinstance(result, Failure) else ("answer", result.text)

    assert asyncio.run(message("echo 1")) == ("answer", "1\n")
    assert asyncio.run(message("exit 3")) == ("server", "the program ended with exit code 3")
    assert asyncio.run(message("kill -9 $$")) == ("server", "the program was killed by SIGKILL")
    assert asyncio.run(message("sleep 600"))[0] == "timeout"
    assert asyncio.run(message("exec yes"))[0] == "bad_output"


def _descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])
