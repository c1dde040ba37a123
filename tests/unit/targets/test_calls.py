"""Calls of each kind of target: what an answer holds, and every failure with its kind and what the user sees."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalq.workers.targets import Answered, Call, Caller, Failure, load_targets
from tests.agents import functions
from tests.agents.server import Agent, running_agent
from tests.integration.harness import PATIENCE, clean_environment, wait_until
from tests.integration.ports import free_port
from tests.processes import runs
from tests.unit.targets.test_programs import calling

SECRET = "sk-never-to-be-seen"  # noqa: S105 - nobody's


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[Agent, str]]:
    """A server that obeys."""
    with running_agent() as started:
        yield started


def _ask(folder: Path, entry: dict[str, Any], *calls: Call) -> list[Answered | Failure]:
    """Results of calls, one after the other."""
    (folder / "targets.yaml").write_text(json.dumps({"targets": {"t": entry}}))
    named = load_targets(folder / "targets.yaml")["t"]

    async def all_of() -> list[Answered | Failure]:
        async with Caller(named, {"KEY": SECRET, "PATH": os.environ["PATH"], "EVALQ_BROKER": "x"}) as caller:
            return [await caller.call(call) for call in calls]

    return asyncio.run(all_of())


def _chat(url: str, **more: Any) -> dict[str, Any]:
    return {"kind": "openai", "base_url": url, "model": "m", "api_key_env": "KEY", "timeout_seconds": 60, **more}


def _order(**order: Any) -> Call:
    return Call(json.dumps(order))


def test_a_completion(service: tuple[Agent, str], tmp_path: Path) -> None:
    """The agent's system prompt, the key, options and JSON mode go out; text, JSON, tokens and reason come back."""
    agent, url = service
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "critic.md").write_text("You are {agent}.")
    entry = _chat(url, system_prompt="prompts/{agent}.md", json_mode=True, options={"temperature": 0.5})
    first, missing, escape = _ask(
        tmp_path, entry, Call("hello", "critic"), Call("hello", "nobody"), Call("hello", "../targets")
    )
    assert isinstance(first, Answered)
    assert first.output == json.loads(first.text) == {"echo": "hello", "system": "You are critic.", "n": 1}
    assert (first.prompt_tokens, first.completion_tokens, first.tokens, first.finish_reason) == (10, 10, 20, "stop")
    assert 0 < first.latency_seconds < 60
    sent = agent.requests[-1]
    assert sent["path"] == "/v1/chat/completions"
    assert sent["headers"]["authorization"] == f"Bearer {SECRET}"
    assert (sent["body"]["model"], sent["body"]["temperature"]) == ("m", 0.5)
    assert sent["body"]["response_format"] == {"type": "json_object"}
    for result, said in ((missing, "prompts/nobody.md: cannot be read"), (escape, "cannot be an agent's name")):
        assert isinstance(result, Failure)
        assert result.kind == "refused"
        assert said in result.reason


def test_a_schema_is_sent(service: tuple[Agent, str], tmp_path: Path) -> None:
    """The file's schema, in the form chat completions know."""
    agent, url = service
    (tmp_path / "answer.json").write_text('{"type": "object"}')
    _ask(tmp_path, _chat(url, json_schema="answer.json"), Call("with schema"))
    sent = agent.requests[-1]["body"]["response_format"]
    assert sent == {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}


LIMITS = {"retry-after": "7", "x-ratelimit-remaining-requests": "0"}
SPENT = {"error": {"code": "insufficient_quota", "message": "see billing"}}
FAILURES: list[tuple[dict[str, Any], str, str]] = [
    ({"do": "raw", "status": 429, "body": "{}", "headers": LIMITS}, "rate_limit", "HTTP 429: asked too often"),
    ({"do": "raw", "status": 429, "body": json.dumps(SPENT)}, "quota", "quota is spent: see billing"),
    ({"do": "raw", "status": 402, "body": "pay"}, "quota", "HTTP 402: the account is spent: pay"),
    ({"do": "raw", "status": 401, "body": '{"error": "bad key"}'}, "auth", "see api_key_env: bad key"),
    ({"do": "raw", "status": 403, "body": ""}, "auth", "HTTP 403: the key may not do this"),
    ({"do": "raw", "status": 404, "body": ""}, "refused", "HTTP 404: not found: see the URL"),
    ({"do": "raw", "status": 400, "body": '{"message": "too long"}'}, "refused", "refuses this request: too long"),
    ({"do": "raw", "status": 302, "body": "", "headers": {"location": "http://h/"}}, "refused", "give the final URL"),
    ({"do": "raw", "status": 408, "body": ""}, "timeout", "HTTP 408"),
    ({"do": "raw", "status": 500, "body": "<html>oh</html>"}, "server", "HTTP 500: the server failed: <html>oh"),
    ({"do": "raw", "status": 503, "body": "", "headers": {"retry-after": "7"}}, "server", "HTTP 503"),
    ({"do": "cut"}, "server", "the connection was cut"),
    ({"do": "half"}, "server", "the connection was cut"),
    ({"do": "hang"}, "timeout", "no answer within 1 s (timeout_seconds)"),
    (
        {"do": "raw", "body": "<h1>Log in</h1>"},
        "server",
        "(status 200): check the address, and proxies on the way; it begins: <h1>",
    ),
    ({"do": "raw", "body": '{"choices": [{"mess'}, "server", "the reply is not JSON"),
    ({"do": "raw", "body": '{"choices": []}'}, "server", "not a chat completion: the reply has nothing at choices"),
    ({"do": "raw", "body": '{"x": "' + 5000 * "x" + '"}'}, "bad_output", "longer than max_bytes, 4096"),
    ({"do": "say", "content": None}, "bad_output", "the answer has no text"),
    ({"do": "say", "content": "Well, yes."}, "bad_output", "not JSON"),
    ({"do": "say", "content": '{"a": ', "finish_reason": "length"}, "bad_output", "cut off: finish_reason length"),
    ({"do": "say", "content": None, "refusal": "I won't"}, "refused", "the model refuses: I won't"),
    ({"do": "say", "content": "x", "finish_reason": "content_filter"}, "refused", "content filter"),
]


@pytest.mark.parametrize(("order", "kind", "said"), FAILURES, ids=[f"{n}-{f[1]}" for n, f in enumerate(FAILURES)])
def test_every_failure_has_its_kind(
    service: tuple[Agent, str], tmp_path: Path, order: dict[str, Any], kind: str, said: str
) -> None:
    """What the server does, what it is called, and what the user reads; waits are told; bad output is kept and paid."""
    seconds = 1 if order["do"] == "hang" else 60
    (result,) = _ask(tmp_path, _chat(service[1], max_bytes=4096, timeout_seconds=seconds), _order(**order))
    assert isinstance(result, Failure)
    assert (result.kind, said in result.reason) == (kind, True), result.reason
    message = order.get("headers", {}).get("retry-after")
    assert result.retry_after_seconds == (float(message) if message else None)
    assert result.limits.spent == (order.get("headers") == LIMITS)
    if order["do"] == "say" and kind == "bad_output":
        assert result.tokens == 20
        assert order["content"] is None or result.text == order["content"]


def test_a_number_of_tokens_that_no_call_has_is_none(service: tuple[Agent, str], tmp_path: Path) -> None:
    """Counts are added up on a server whose numbers end: nonsense must not."""
    usage = {"prompt_tokens": 1 << 70, "completion_tokens": 7}
    body = {"choices": [{"message": {"content": "{}"}}], "usage": usage}
    (result,) = _ask(tmp_path, _chat(service[1]), _order(do="raw", body=json.dumps(body)))
    assert isinstance(result, Answered)
    assert (result.prompt_tokens, result.completion_tokens) == (None, 7)


@pytest.mark.parametrize("before", range(165, 200, 5))
def test_no_part_of_a_key_is_reported_where_a_reply_is_cut(
    service: tuple[Agent, str], tmp_path: Path, before: int
) -> None:
    """Of a long reply its first characters are shown, and they may end within the key."""
    body = (before - 4) * "y" + "end " + SECRET + 5000 * "z"
    for status, kind in ((403, "auth"), (200, "bad_output")):
        (result,) = _ask(tmp_path, _chat(service[1], max_bytes=4096), _order(do="raw", status=status, body=body))
        assert isinstance(result, Failure)
        assert result.kind == kind
        assert SECRET[:6] not in result.reason + result.text
        assert "yend" in result.reason + result.text


def test_connections_are_kept(tmp_path: Path) -> None:
    """Calls one after the other use one connection; so many at once, so many."""
    with running_agent() as (agent, url):
        results = _ask(tmp_path, _chat(url), *[Call("again")] * 20)
        assert all(isinstance(result, Answered) for result in results)
        assert agent.connections == 1
        agent.ready = lambda: agent.busiest >= 8
        named = load_targets(tmp_path / "targets.yaml")["t"]

        async def at_once() -> None:
            async with Caller(named, {"KEY": SECRET}) as caller:
                for _ in range(3):
                    await asyncio.gather(*(caller.call(Call("at once")) for _ in range(8)))

        asyncio.run(at_once())
        assert agent.busiest == 8
        assert agent.connections <= 1 + 8


def test_nobody_there(tmp_path: Path) -> None:
    """A refused connection is the server's failure, with the system's words."""
    (result,) = _ask(tmp_path, _chat(f"http://127.0.0.1:{free_port()}/v1"), Call("x"))
    assert isinstance(result, Failure)
    assert result.kind == "server"
    assert result.reason.startswith("cannot connect: ")


def test_no_secret_comes_back(service: tuple[Agent, str], tmp_path: Path) -> None:
    """A server that repeats its request headers does not get the key into an answer, a failure or a repr."""
    entry = _chat(service[1], headers={"X-Team": "team-secret-1"})
    for status in (200, 400):
        (result,) = _ask(tmp_path, entry, _order(do="leak", status=status))
        assert SECRET not in repr(result)
        assert "team-secret-1" not in repr(result)
        assert "***" in result.text


def test_an_http_endpoint(service: tuple[Agent, str], tmp_path: Path) -> None:
    """Template out, paths in; a reply without the path keeps its text."""
    agent, url = service
    entry = {
        "kind": "http", "url": f"{url}/any?x=1", "api_key_env": "KEY", "api_key_header": "X-Key",
        "body": {"messages": [{"content": "{prompt}"}], "n": "{repeat}"},
        "answer": "choices[0].message.content", "finish_reason": "choices[0].finish_reason",
        "prompt_tokens": "usage.prompt_tokens", "completion_tokens": "usage.nothing",
    }  # fmt: skip
    good, bad = _ask(tmp_path, entry, Call("by template", repeat=4), _order(do="raw", body='{"a": 1}'))
    assert isinstance(good, Answered)
    assert good.output["echo"] == "by template"
    assert (good.prompt_tokens, good.completion_tokens, good.finish_reason) == (10, None, "stop")
    sent = agent.requests[-2]
    assert (sent["path"], sent["body"]["n"], sent["headers"]["x-key"]) == ("/v1/any?x=1", 4, SECRET)
    assert isinstance(bad, Failure)
    said = (
        "the reply has nothing at choices; set the target's `answer` to the answer's path; the reply begins: {\"a\": 1}"
    )
    assert (bad.kind, bad.reason, bad.text) == ("bad_output", said, '{"a": 1}')


def _program(folder: Path, text: str, **more: Any) -> dict[str, Any]:
    (folder / "agent.py").write_text("import json, os, sys, time\n" + text)
    return {"kind": "command", "argv": [sys.executable, "agent.py"], "api_key_env": "KEY", **more}


def test_a_command(tmp_path: Path) -> None:
    """JSON in and out, in the targets file's folder, with the key and none of evalq's variables."""
    text = """
call = json.load(sys.stdin)
print(json.dumps([call, os.getcwd(), "KEY" in os.environ, "EVALQ_BROKER" in os.environ]))
"""
    (result,) = _ask(tmp_path, _program(tmp_path, text), Call("p", "a", "c", 2))
    assert isinstance(result, Answered)
    assert result.output == [{"prompt": "p", "agent": "a", "case": "c", "repeat": 2}, str(tmp_path), True, False]


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("sys.exit('sorry, ' + os.environ['KEY'])", "server", "the program ended with exit code 1: sorry, ***"),
        ("os.kill(os.getpid(), 9)", "server", "the program was killed by SIGKILL"),
        ("print('no json')", "bad_output", "not JSON"),
        ("print('x' * 100_000); time.sleep(60)", "bad_output", "longer than max_bytes, 4096"),
        ("x = bytearray(1 << 30)", "server", "MemoryError"),
        ("os.close(0); os.close(1); time.sleep(60)", "timeout", "no answer within 2 s"),
    ],
)
def test_a_command_that_fails(tmp_path: Path, text: str, kind: str, said: str) -> None:
    """Exit codes with the end of standard error, signals, bounds of output, memory and time."""
    seconds = 2 if kind == "timeout" else 60
    entry = _program(tmp_path, text, max_bytes=4096, max_megabytes=512, timeout_seconds=seconds)
    (result,) = _ask(tmp_path, entry, Call("x" * 200_000))
    assert isinstance(result, Failure)
    assert (result.kind, said in result.reason) == (kind, True), result.reason


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time-out no process of the group is left."""
    text = """
import subprocess
child = subprocess.Popen(["sleep", "600"])
open("new", "w").write(f"{os.getpid()} {child.pid}")
os.rename("new", "pids")
child.wait()
"""
    file = tmp_path / "targets.yaml"
    file.write_text(json.dumps({"targets": {"t": _program(tmp_path, text, timeout_seconds=600)}}))

    async def late() -> Answered | Failure:
        loop = asyncio.get_running_loop()
        async with Caller(load_targets(file)["t"], {"KEY": SECRET}) as caller:
            call = asyncio.create_task(caller.call(Call("x")))
            await asyncio.to_thread(wait_until, (tmp_path / "pids").is_file, "the program and its child run")
            monkeypatch.setattr(loop, "time", lambda: time.monotonic() + 600)
            return await call

    result = asyncio.run(late())
    assert isinstance(result, Failure)
    assert result.kind == "timeout"
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    wait_until(lambda: not any(runs(pid) for pid in pids), "all are gone")


def test_too_long_an_output_is_reported_as_that_where_the_loop_is_busy(tmp_path: Path) -> None:
    """What nobody reads any more is not waited for: it was a call that took too long, after all of its time."""
    text = "sys.stdout.write('x' * 20_000_000)"
    entry = _program(tmp_path, text, max_bytes=100_000, timeout_seconds=PATIENCE)
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"t": entry}}))

    async def busy() -> None:
        while True:
            time.sleep(0.003)  # as other calls whose answers are read
            await asyncio.sleep(0)

    async def kinds() -> list[str]:
        other = asyncio.create_task(busy())
        async with Caller(load_targets(tmp_path / "targets.yaml")["t"], {"KEY": SECRET}) as caller:
            found = await asyncio.gather(*(caller.call(Call("x")) for _ in range(4)))
        other.cancel()
        return [result.kind for result in found if isinstance(result, Failure)]

    assert asyncio.run(kinds()) == ["bad_output"] * 4


@pytest.mark.parametrize("keeps", ["<&-", "3<&0 >/dev/null 2>&1"], ids=["output", "input"])
def test_who_left_the_group_with_its_pipes_is_not_waited_for(tmp_path: Path, keeps: str) -> None:
    """A daemon that a program starts and that keeps its pipes: the call takes its time, and no longer."""
    text = f"{{ setsid sleep 600 & echo $! > pid; }} {keeps}; wait"
    entry = {"kind": "command", "argv": ["/bin/sh", "-c", text], "timeout_seconds": 1}
    (result,) = _ask(tmp_path, entry, Call("x" * 1_000_000))  # more than a pipe holds
    assert isinstance(result, Failure)
    assert result.kind == "timeout"
    wait_until(lambda: not runs(int((tmp_path / "pid").read_text())), "the daemon is killed", 60)


_LEAVES = {
    "setsid": "setsid sh -c '{0}' & {1}",
    "its parent has ended": "(setsid sh -c '{0}' &) ; {1}",
    "no environment": "setsid env -i /bin/sh -c '{0}' & {1}",
    "no environment, its parent has ended": "(setsid env -i /bin/sh -c '{0}' &) ; {1}",
    "no pipe, its parent has ended": "(setsid sh -c '{0}' </dev/null >/dev/null 2>&1 &) ; {1}",
    "a group of its own": "set -m; sh -c '{0}' & {1}",
    "a session of a session": "(setsid sh -c 'setsid sh -c \"{0}\" &' &) ; {1}",
}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows what left a group")
@pytest.mark.parametrize(
    ("leaves", "ends"),
    # Where it has no environment it has the pipes: the output would not end before it does.
    [
        (how, end)
        for how in _LEAVES.values()
        for end in ("sleep 600", "echo 1")
        if end != "echo 1" or "env -i" not in how
    ],
)
def test_nothing_that_a_program_starts_outlives_its_call(tmp_path: Path, leaves: str, ends: str) -> None:
    """However it leaves the group, and however the call ends."""
    there = "echo $$ > new; mv new pid; exec sleep 600"
    if ends == "echo 1":  # the output ends with the program's
        there = f"exec <&- >&- 2>&-; {there}"
    began = f"while [ ! -f pid ]; do sleep 0.01; done; {ends}"
    text = leaves.format(there.replace("$$", "\\$\\$") if '"' in leaves else there, began)
    entry = {"kind": "command", "argv": ["/bin/sh", "-c", text], "timeout_seconds": 2 if ends != "echo 1" else 600}
    (result,) = _ask(tmp_path, entry, Call("x"))
    assert isinstance(result, Answered if ends == "echo 1" else Failure), result
    left = int((tmp_path / "pid").read_text())
    try:
        wait_until(lambda: not runs(left), "what left the group is killed", 30)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(left, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows what left a group")
def test_what_left_the_group_ends_with_the_process_that_calls(tmp_path: Path) -> None:
    """Killed, it cannot end it itself; another call's processes go on."""
    text = "setsid sh -c 'echo $$ > new; mv new pid; exec sleep 600' & wait"
    entry = {"kind": "command", "argv": ["/bin/sh", "-c", text], "timeout_seconds": 600}
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"t": entry}}))
    caller = subprocess.Popen(calling(tmp_path / "targets.yaml"), env=clean_environment())
    other = subprocess.Popen(["sleep", "600"], start_new_session=True, env={**os.environ, "EVALQ_CALL": "another"})
    try:
        wait_until((tmp_path / "pid").is_file, "the program runs")
        left = int((tmp_path / "pid").read_text())
        caller.kill()
        wait_until(lambda: not runs(left), "what left the group is killed", 60)
        assert runs(other.pid)
    finally:
        for process in (caller, other):
            process.kill()
            process.wait()


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    """The shell's word for it."""
    (result,) = _ask(tmp_path, {"kind": "command", "argv": ["./nothing-here"]}, Call("x"))
    assert isinstance(result, Failure)
    assert (result.kind, result.connected, "cannot be started" in result.reason) == ("server", False, True)


@pytest.mark.parametrize(
    ("program", "advice"),
    [
        ("./plain.sh", "make it executable: chmod +x {folder}/plain.sh"),
        ("plain.sh", "write ./plain.sh: programs here are not on PATH"),
        ("./no interpreter", "its first line names '/nope/python', which is not here"),
        ("./windows", "names '/bin/sh\\r', which is not here; its lines end as on Windows"),
        ("./folder", "./folder is a folder: name a program in it"),
        (".", ". is a folder"),
        ("./nothing-here", "there is no {folder}/nothing-here"),
        ("nothing-here", "no nothing-here is on PATH: install it"),
    ],
)
def test_a_program_that_cannot_start_comes_with_advice(tmp_path: Path, program: str, advice: str) -> None:
    """What is wrong with the file, and the command that mends it."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "plain.sh").write_text("#!/bin/sh\ncat\n")
    for name, first in (("no interpreter", "#!/nope/python"), ("windows", "#!/bin/sh\r")):
        (tmp_path / name).write_bytes(first.encode() + b"\ncat\n")
        (tmp_path / name).chmod(0o755)
    (result,) = _ask(tmp_path, {"kind": "command", "argv": [program]}, Call("x"))
    assert isinstance(result, Failure)
    assert advice.format(folder=tmp_path) in result.reason


@pytest.mark.parametrize(
    "written",
    [
        "def ask(prompt): return 'got ' + prompt",
        "def ask(call: str): return 'got ' + call",
        "async def ask(question, more=1): return 'got ' + question",
        "class Ask:\n    async def __call__(self, query): return 'got ' + query\nask = Ask()",
        "class Ask:\n    def __call__(self, message, *more): return 'got ' + message\nask = Ask()",
        "ask = lambda text: 'got ' + text",
        "def ask(call): return 'got ' + call['prompt']",
        "def ask(*calls): return 'got ' + calls[0]['prompt']",
        "def ask(prompt: dict): return 'got ' + prompt['prompt']",
    ],
)
def test_a_function_gets_the_text_or_the_call_as_it_is_written_for(tmp_path: Path, written: str) -> None:
    """Most agents take the text; a type decides before a name does."""
    (tmp_path / "agent.py").write_text(written)
    (result,) = _ask(tmp_path, {"kind": "python", "function": "agent:ask", "output": "text"}, Call("p"))
    assert isinstance(result, Answered), result
    assert result.text == "got p"


def test_a_python_function(tmp_path: Path) -> None:
    """Sync or async, plain data or text; what it raises is a failure, of the kind it chooses."""
    shutil.copy(functions.__file__, tmp_path / "agent.py")
    good, broke, limit = _ask(
        tmp_path, {"kind": "python", "function": "agent:sync_agent"}, Call("p"), Call("raise"), Call("limit")
    )
    assert isinstance(good, Answered)
    assert good.output == {"got": "p"}
    assert isinstance(broke, Failure)
    assert broke.kind == "server"
    assert re.fullmatch(r"ValueError: it broke \(in agent\.py:\d+, \w+\)", broke.reason), broke.reason
    assert isinstance(limit, Failure)
    assert (limit.kind, limit.retry_after_seconds) == ("rate_limit", 3)
    entry = {"kind": "python", "function": "agent:async_agent"}
    (fenced,) = _ask(tmp_path, entry, Call("p", repeat=7))
    (slow,) = _ask(tmp_path, {**entry, "timeout_seconds": 0.2}, Call("hang"))
    assert isinstance(fenced, Answered)
    assert fenced.output == [7]
    assert isinstance(slow, Failure)
    assert slow.kind == "timeout"
