"""Functions that end their process or hang: a failure of that call alone; and which module a targets file names."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evalq.evalcore.errors import ConfigError
from evalq.workers.targets import Answered, Call, Caller, Failure, Tries, load_targets
from evalq.workers.targets.python import PythonClient, PythonTarget
from tests.agents import functions
from tests.integration.harness import PATIENCE, clean_environment, wait_until
from tests.processes import runs
from tests.unit.targets.standstill import standstill
from tests.unit.targets.test_programs import calling


def _named(folder: Path, function: str, **more: Any) -> Path:
    shutil.copy(functions.__file__, folder / "agent.py")
    path = folder / "targets.yaml"
    entry = {"kind": "python", "function": f"agent:{function}", **more}
    path.write_text(json.dumps({"targets": {"t": entry}}))
    return path


async def _tried(caller: Caller, call: Call) -> list[Answered | Failure]:
    """Every attempt, by the target's policy."""
    tries, attempts = Tries(caller.named.target), []
    while True:
        attempts.append(await caller.call(call))
        wait = tries.wait(attempts[-1])
        if wait is None:
            return attempts
        await asyncio.sleep(wait)


@pytest.mark.parametrize(
    ("how", "said"),
    [("exit", "ended its process with exit code 0"), ("fault", "killed its process by SIGSEGV")],
)
def test_a_call_that_kills_its_process_is_found_and_fails_alone(tmp_path: Path, how: str, said: str) -> None:
    """Of ten in flight with it all others are answered, after one more attempt at most; it is tried twice."""

    async def all_of() -> list[list[Answered | Failure]]:
        async with Caller(load_targets(_named(tmp_path, "kills"))["t"]) as caller:
            calls = [Call(how if repeat == 7 else "fine", repeat=repeat) for repeat in range(10)]
            return list(await asyncio.gather(*(_tried(caller, call) for call in calls)))

    results = asyncio.run(all_of())
    killer = results.pop(7)
    assert [attempt.kind for attempt in killer if isinstance(attempt, Failure)] == ["crashed", "crashed"]
    last = killer[-1]
    assert isinstance(last, Failure)
    assert last.reason == f"the function {said}"
    assert all(isinstance(attempts[-1], Answered) and len(attempts) <= 2 for attempts in results), results


_ENDS_ONCE = """
import os
from pathlib import Path

def agent(call):
    seen = Path(call["prompt"])
    if not seen.exists():
        seen.touch()
        os._exit(1)
    return os.getpid()
"""


def test_a_process_that_ended_while_nobody_was_in_it_gets_no_call(tmp_path: Path) -> None:
    """The next call that is made by itself is made in another one; it waited there for its whole time."""
    (tmp_path / "agent.py").write_text(_ENDS_ONCE)
    target = PythonTarget(kind="python", function="agent:agent", timeout_seconds=20)

    async def made() -> list[Answered | Failure]:
        way = PythonClient(target, tmp_path, {})
        await way.open()
        results = [await way.call(Call(prompt)) for prompt in ("a", "a", "b")]
        (kept,) = way._idle
        kept.kill()
        await kept.close()
        results.append(await way.call(Call("b")))
        await way.close()
        return results

    kinds = [result.kind if isinstance(result, Failure) else "answered" for result in asyncio.run(made())]
    assert kinds == ["crashed", "answered", "crashed", "answered"]


def test_a_thread_that_hangs_keeps_none_from_the_next_call(tmp_path: Path) -> None:
    """It is made in another process at once: it waited for that thread until its own time was over."""
    target = PythonTarget(kind="python", function="agent:agent", max_concurrency=1, timeout_seconds=30)
    (tmp_path / "agent.py").write_text(_WAITS)

    async def made() -> tuple[bool, Answered | Failure]:
        way = PythonClient(target, tmp_path, {})
        await way.open()
        first, hung = way._shared, asyncio.create_task(way.call(Call("x")))
        await asyncio.to_thread(wait_until, (tmp_path / "began").is_file, "the first is called")
        hung.cancel()  # as it is when its time is over
        await asyncio.gather(hung, return_exceptions=True)
        second = asyncio.create_task(way.call(Call("y", repeat=7)))
        await asyncio.sleep(0)
        (tmp_path / "go").touch()
        result = await second
        moved = way._shared is not first
        await way.close()
        return moved, result

    moved, result = asyncio.run(made())
    assert isinstance(result, Answered)
    assert (moved, result.text) == (True, "7")


_TELLS_MUCH = """
from evalq.workers.targets import Failure
from evalq.workers.targets import CallFailed

def agent(call):
    raise CallFailed(Failure(kind="bad_output", reason="\u00fc" * 99_999, text="\u00fc" * 99_999))
"""


def test_a_failure_of_any_length_costs_no_process(tmp_path: Path) -> None:
    """What a function gives with it is cut: a line that is too long would end its process, with all calls in it."""
    (tmp_path / "agent.py").write_text(_TELLS_MUCH)
    target = PythonTarget(kind="python", function="agent:agent", max_bytes=1025)

    async def made() -> Answered | Failure:
        way = PythonClient(target, tmp_path, {})
        await way.open()
        result = await way.call(Call("x"))
        await way.close()
        return result

    result = asyncio.run(made())
    assert isinstance(result, Failure)
    assert (result.kind, result.text, result.reason) == ("bad_output", "\u00fc" * 512, "\u00fc" * 1000)


_GIVES_NO_JSON = """
from evalq import Answer

def agent(call):
    if call["prompt"] == "text":
        return Answer(output="a\\ud800b", tool_calls=[{"name": "t", "arguments": {"\\ud800": "\\udfff"}}])
    nested = []
    for _ in range(5000):
        nested = [nested]
    return {"object": object(), "nested": nested, "answer": Answer(output="x", extra={"x": nested})}[call["prompt"]]
"""


@pytest.mark.parametrize("prompt", ["object", "nested", "answer"])
def test_what_cannot_be_written_as_json_is_paid_once(tmp_path: Path, prompt: str) -> None:
    """The function answered: another call would give the same."""
    (tmp_path / "agent.py").write_text(_GIVES_NO_JSON)
    named = load_targets(_entry(tmp_path))["t"]

    async def made() -> list[Answered | Failure]:
        async with Caller(named) as caller:
            return await _tried(caller, Call(prompt, takes_text=True))

    (result,) = asyncio.run(made())
    assert isinstance(result, Failure)
    assert (result.kind, "cannot be written as JSON" in result.reason) == ("bad_output", True), result.reason


def test_half_a_pair_in_an_answer_is_as_in_a_text(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(_GIVES_NO_JSON)
    named = load_targets(_entry(tmp_path))["t"]

    async def made() -> Answered | Failure:
        async with Caller(named) as caller:
            return await caller.call(Call("text", takes_text=True))

    result = asyncio.run(made())
    assert isinstance(result, Answered), result
    assert result.text == "a\ufffdb"
    assert result.envelope is not None
    assert result.envelope.tool_calls == ({"name": "t", "arguments": {"\ufffd": "\ufffd"}},)


def _entry(folder: Path) -> Path:
    path = folder / "targets.yaml"
    path.write_text(json.dumps({"targets": {"t": {"kind": "python", "function": "agent:agent"}}}))
    return path


_WAITS = """
import time
from pathlib import Path

def agent(call):
    Path("began").touch()
    while not Path("go").exists():
        time.sleep(0.01)
    return call["repeat"]
"""


def test_the_time_of_a_call_does_not_run_while_it_waits_for_a_thread(tmp_path: Path) -> None:
    """Nor is it sent: it would be given up, with the process, though it was never begun."""
    (tmp_path / "agent.py").write_text(_WAITS)
    target = PythonTarget(kind="python", function="agent:agent", max_concurrency=1)

    async def made() -> tuple[int, list[str]]:
        way = PythonClient(target, tmp_path, {})
        await way.open()
        calls = [asyncio.create_task(way.call(Call("x", repeat=repeat))) for repeat in range(3)]
        await asyncio.to_thread(wait_until, (tmp_path / "began").is_file, "the first is called")
        assert way._shared is not None
        sent = len(way._shared._waiting)
        (tmp_path / "go").touch()
        results = await asyncio.gather(*calls)
        await way.close()
        return sent, [result.text for result in results]

    assert asyncio.run(made()) == (1, ["0", "1", "2"])


def test_a_call_that_waited_and_came_too_late_took_its_time_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it waited for a thread is none of its latency, as of one that answers."""
    caller = Caller(load_targets(_named(tmp_path, "agent", timeout_seconds=2))["t"], {})
    now = iter((100.0, 109.0))

    async def late(call: Call) -> Answered | Failure:
        raise TimeoutError

    monkeypatch.setattr("evalq.workers.targets.caller.time", SimpleNamespace(monotonic=lambda: next(now)))
    monkeypatch.setattr(caller._client, "call", late)
    assert asyncio.run(caller.call(Call("x"))).latency_seconds == 2.0


def test_memory_has_a_bound(tmp_path: Path) -> None:
    """What asks for more gets Python's own error."""

    async def once() -> Answered | Failure:
        async with Caller(load_targets(_named(tmp_path, "kills", max_megabytes=256))["t"]) as caller:
            return await caller.call(Call("memory"))

    result = asyncio.run(once())
    assert isinstance(result, Failure)
    assert (result.kind, "MemoryError" in result.reason) == ("server", True), result.reason


@pytest.mark.parametrize(("function", "prompt"), [("blocks", ""), ("blocks_the_loop", "block")])
def test_a_function_that_hangs_gets_no_more_calls(tmp_path: Path, function: str, prompt: str) -> None:
    """It is given up in time, nothing else waits for it, and its process goes: hung threads do not heap up."""

    async def hung() -> tuple[Answered | Failure, float]:
        named = load_targets(_named(tmp_path, function, timeout_seconds=0.5))["t"]
        async with Caller(named) as caller, standstill() as longest:
            way: Any = caller._client
            first = way._shared
            result, stood = await caller.call(Call(prompt)), longest()
            async with asyncio.timeout(30):
                while not first.over:
                    await asyncio.sleep(0.01)
            return result, stood

    result, longest = asyncio.run(hung())
    assert isinstance(result, Failure)
    assert (result.kind, result.reason) == ("timeout", "no answer within 0.5 s (timeout_seconds)")
    assert longest < 0.4


@pytest.mark.parametrize("function", ["blocks", "async_agent"], ids=["goes on", "stops when it is told"])
def test_suspects_that_come_too_late_leave_no_process(tmp_path: Path, function: str) -> None:
    """Each is asked in a process of its own, which ends when its time to clean up is over."""

    async def late() -> None:
        named = load_targets(_named(tmp_path, function, timeout_seconds=0.2))["t"]
        async with Caller(named) as caller:
            way: Any = caller._client
            calls = [Call("hang", repeat=number) for number in range(3)]
            way._suspects.update(dict.fromkeys(calls))
            for call in calls:
                result = await caller.call(call)
                assert isinstance(result, Failure)
                assert result.kind == "timeout"
            assert way._idle == []
            async with asyncio.timeout(30):
                while any(not process.over for process in way._all if process is not way._shared):
                    await asyncio.sleep(0.01)

    asyncio.run(late())


@pytest.mark.parametrize("leaves", [False, True], ids=["in its group", "in one of its own"])
def test_a_call_whose_process_ends_before_what_it_started_has_crashed(tmp_path: Path, leaves: bool) -> None:
    """A child has the pipe of the answers, too; it is killed, also where it left the group, and nobody waits for it."""
    away = "os.setsid()" if leaves else "pass"
    text = f"""
import os, time
def agent(call):
    if not os.fork():
        {away}
        open('pid', 'w').write(str(os.getpid()))
        os.rename('pid', 'there')
        time.sleep(600)
    while not os.path.exists('there'):
        time.sleep(.01)
    os._exit(3)
"""
    targets = _named(tmp_path, "agent", timeout_seconds=300)
    (tmp_path / "agent.py").write_text(
        text.replace("'pid'", repr(str(tmp_path / "pid"))).replace("'there'", repr(str(tmp_path / "there")))
    )

    async def made() -> Answered | Failure:
        async with Caller(load_targets(targets)["t"]) as caller:
            async with asyncio.timeout(PATIENCE):
                return await caller.call(Call("x"))

    result = asyncio.run(made())
    child = int((tmp_path / "there").read_text())
    assert isinstance(result, Failure)
    assert (result.kind, result.reason) == ("crashed", "the function ended its process with exit code 3")
    wait_until(lambda: not runs(child), "the child has ended")  # killed with its group, it may take a moment


@pytest.mark.parametrize("leaves", [False, True], ids=["in its group", "in one of its own"])
def test_an_import_whose_process_ends_before_what_it_started_is_over(tmp_path: Path, leaves: bool) -> None:
    """How it ended is reported at once, not after the time that imports have."""
    there = tmp_path / "there"
    targets = _named(tmp_path, "agent")
    (tmp_path / "agent.py").write_text(f"""
import os, time
if child := os.fork():
    open({str(there)!r}, "w").write(str(child))
    os._exit(3)
{"os.setsid()" if leaves else ""}
time.sleep(600)
""")

    async def opened() -> None:
        async with asyncio.timeout(PATIENCE), Caller(load_targets(targets)["t"]):
            pass

    with pytest.raises(ConfigError, match="importing its module ended its process with exit code 3"):
        asyncio.run(opened())
    child = int(there.read_text())
    wait_until(lambda: not runs(child), "the child has ended")


def test_a_function_ends_with_the_process_that_calls_it(tmp_path: Path) -> None:
    """Killed, it cannot end it itself."""
    text = "import os, time\ndef runs(call):\n    open('pid', 'w').write(str(os.getpid()))\n"
    text += "    os.rename('pid', 'there')\n    time.sleep(600)\n"
    targets = _named(tmp_path, "runs")
    (tmp_path / "agent.py").write_text(text)
    caller = subprocess.Popen(calling(targets), env=clean_environment())
    try:
        wait_until((tmp_path / "there").is_file, "the function runs")
    finally:
        caller.send_signal(signal.SIGKILL)
        caller.wait()
    process = Path("/proc", (tmp_path / "there").read_text())
    wait_until(lambda: not process.exists(), "its process has ended")


def _asked(targets: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        calling(targets, '(await caller.call(Call("x"))).text'), cwd=cwd, env=clean_environment(EVALQ_BROKER="secret"),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_module_is_the_one_beside_the_targets_file(tmp_path: Path) -> None:
    """Not one of that name in the current folder, nor anything else there; and it runs where its file is."""
    beside, cwd = tmp_path / "beside", tmp_path / "cwd"
    for folder in (beside, cwd):
        folder.mkdir()
    targets = _named(beside, "where")
    for name in ("agent", "random", "secrets", "msgspec", "asyncio", "workers"):
        (cwd / f"{name}.py").write_text("raise SystemExit('imported from the current folder')")
    for name in ("random", "secrets", "site"):
        (beside / f"{name}.py").write_text("raise SystemExit('imported in place of Python\\'s own')")
    done = _asked(targets, cwd)
    assert done.returncode == 0, done.stderr
    _, folder, broker = json.loads(done.stdout)
    assert (folder, broker) == (str(beside), ""), "and it need not know the broker"


def test_a_module_that_cannot_be_had_says_why(tmp_path: Path) -> None:
    """Its name is Python's own, its import ends the process, or it is not there: told before the first call."""
    targets = _named(tmp_path, "where")
    texts = {
        "random": ("", "has the same name"),
        "ends": ("import os; os._exit(3)", "importing its module ended its process with exit code 3"),
        "raises": ("raise SystemExit('no')", r"raises:where cannot be imported: raises calls sys.exit\('no'\) while"),
        "text": (
            "def where(answer): return answer",
            r'where\(answer\) expects .*write def where\(call\), .* call\["prompt"\]',
        ),
        "lacking": ("import gone_for_good", r"lacking:where cannot be imported: .* 'gone_for_good'$"),
        "several": ("async def where(call, case): return call", r"where\(call, case\) expects something else"),
    }

    async def opened() -> None:
        async with Caller(load_targets(targets)["t"]):
            pass

    for name, (text, said) in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
        targets.write_text(json.dumps({"targets": {"t": {"kind": "python", "function": f"{name}:where"}}}))
        with pytest.raises(ConfigError, match=said):
            asyncio.run(opened())
    targets.write_text(json.dumps({"targets": {"t": {"kind": "python", "function": "nowhere:where"}}}))
    with pytest.raises(ConfigError, match=rf"No module named 'nowhere' in {tmp_path}, nor installed"):
        asyncio.run(opened())
