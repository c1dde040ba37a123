"""What users' programs and functions do at worst: each is one failed call, and nothing of it stays behind."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evalq.workers.targets import Answered, Call, Caller, Failure, load_targets
from tests.agents import functions
from tests.integration.harness import clean_environment, wait_until
from tests.processes import runs

FUNCTIONS = Path(functions.__file__)
KEY = "sk-" + "0123456789" * 4


def write_target(folder: Path, entry: dict[str, Any]) -> Path:
    """A targets file with one target, `t`, and the module `agent` beside it."""
    shutil.copy(FUNCTIONS, folder / "agent.py")
    path = folder / "targets.yaml"
    path.write_text(json.dumps({"targets": {"t": entry}}))
    return path


def ask(folder: Path, entry: dict[str, Any], prompt: str = "p") -> Answered | Failure:
    """The result of one call."""
    named = load_targets(write_target(folder, entry))["t"]

    async def once() -> Answered | Failure:
        async with Caller(named, {"KEY": KEY, "PATH": os.environ["PATH"]}) as caller:
            return await caller.call(Call(prompt))

    return asyncio.run(once())


@pytest.mark.parametrize(
    ("function", "kind", "said"),
    [
        ("exits", "server", "SystemExit: no p"),
        ("exits_async", "server", "SystemExit: no p"),
        ("gives_up", "server", "CancelledError: given up"),
        ("says_half_a_pair", "server", "ValueError: a\ufffdb"),
        ("much", "bad_output", "longer than max_bytes, 4096"),
    ],
)
def test_whatever_a_function_does_is_one_failed_call(tmp_path: Path, function: str, kind: str, said: str) -> None:
    """It neither ends the process that makes all calls, nor leaves one without an outcome."""
    result = ask(tmp_path, {"kind": "python", "function": f"agent:{function}", "max_bytes": 4096})
    assert isinstance(result, Failure)
    assert (result.kind, said in result.reason) == (kind, True), result.reason
    json.dumps([result.reason, result.text], ensure_ascii=False).encode()


def test_an_answer_can_be_written(tmp_path: Path) -> None:
    """A lone surrogate becomes the replacement character: the answer is recorded like any other."""
    for output, text in (("json", '"a\ufffdb"'), ("text", '"a\ufffdb"')):
        entry = {"kind": "python", "function": "agent:half_a_pair", "output": output}
        result = ask(tmp_path, entry)
        assert isinstance(result, Answered)
        assert result.text == text


def test_a_prompt_that_cannot_be_sent_is_one_failed_call(tmp_path: Path) -> None:
    """Whatever a way to a target raises is reported as a failure."""
    result = ask(tmp_path, {"kind": "command", "argv": ["cat"]}, "a\ud800b")
    assert isinstance(result, Failure)
    assert "the call failed: UnicodeEncodeError" in result.reason


def test_an_object_that_is_called_asynchronously(tmp_path: Path) -> None:
    """An agent in a class needs no wrapper."""
    result = ask(tmp_path, {"kind": "python", "function": "agent:agent"})
    assert isinstance(result, Answered)
    assert result.output == [0]


CALLER = """
import asyncio, sys
from evalq.workers.targets import Call, Caller, load_targets

async def once():
    async with Caller(load_targets(sys.argv[1])["t"]) as caller:
        print(WHAT, flush=True)

asyncio.run(once())
"""


def calling(targets: Path, what: str = '(await caller.call(Call("x"))).kind') -> list[str]:
    """A process that makes one call and prints ``what`` came of it."""
    return [sys.executable, "-P", "-c", CALLER.replace("WHAT", what), str(targets)]


def test_a_function_that_blocks_does_not_keep_the_process(tmp_path: Path) -> None:
    """A call that takes too long is given up, and the process may end all the same."""
    targets = write_target(
        tmp_path, {"kind": "python", "function": "agent:blocks", "timeout_seconds": 0.2, "retries": {}}
    )
    done = subprocess.run(
        calling(targets), env=clean_environment(), capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "timeout\n"


def test_programs_end_with_the_process_that_calls_them(tmp_path: Path) -> None:
    """Killed, it cannot end them itself: an agent that runs for ever would go on for ever."""
    text = "import os, time; open('pid', 'w').write(str(os.getpid())); os.rename('pid', 'there'); time.sleep(600)"
    targets = write_target(tmp_path, {"kind": "command", "argv": [sys.executable, "-c", text]})
    caller = subprocess.Popen(calling(targets), env=clean_environment())
    try:
        wait_until((tmp_path / "there").is_file, "the program runs")
    finally:
        caller.send_signal(signal.SIGKILL)
        caller.wait()
    program = int((tmp_path / "there").read_text())
    wait_until(lambda: not runs(program), "the program has ended")


def test_a_program_has_no_child_that_it_did_not_start(tmp_path: Path) -> None:
    """One that waits for its children must not wait for evalq's."""
    text = "import os, sys; os.close(0)\ntry: os.wait()\nexcept ChildProcessError: print('[]')"
    result = ask(tmp_path, {"kind": "command", "argv": [sys.executable, "-c", text], "timeout_seconds": 20})
    assert isinstance(result, Answered), result


@pytest.mark.parametrize("before", [*range(140, 200, 7)])
def test_no_part_of_a_key_is_reported_where_a_text_is_cut(tmp_path: Path, before: int) -> None:
    """What a program says is cut to its end: not within the key."""
    text = f"import os, sys; sys.exit('x ' + os.environ['KEY'] + ' ' + {before} * 'y')"
    entry = {"kind": "command", "argv": [sys.executable, "-c", text], "api_key_env": "KEY"}
    result = ask(tmp_path, entry)
    assert isinstance(result, Failure)
    assert before * "y" in result.reason
    assert not any(KEY[at : at + 6] in result.reason for at in range(len(KEY) - 5)), result.reason


@pytest.mark.parametrize(
    "left", ["sleep 300 &", "setsid sleep 300 &", "sleep 300 >&2 &", "(sleep 0.3; printf ' late') &"]
)
def test_what_a_program_leaves_behind_does_not_keep_its_answer(tmp_path: Path, left: str) -> None:
    """A child with the program's pipes would keep them open for as long as it runs; what it writes soon, counts."""
    script = f"printf early; {left}"
    result = ask(tmp_path, {"kind": "command", "argv": ["sh", "-c", script], "output": "text", "timeout_seconds": 60})
    assert isinstance(result, Answered), result
    assert result.text == ("early late" if "late" in left else "early")
    assert result.latency_seconds < 30
