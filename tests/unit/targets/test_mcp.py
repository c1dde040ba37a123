"""MCP servers whose tools a model gets: a real server of the official package, as a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.errors import ConfigError
from evalq.workers.targets import Answered, Failure
from evalq.workers.targets.providers import mcp_server
from evalq.workers.targets.providers.mcp_server import McpServer, McpTools
from tests.integration.harness import wait_until
from tests.processes import runs

AGENTS = Path(__file__).parents[2] / "agents"
SERVER = AGENTS / "mcp_tools.py"


def old(*tools: str) -> tuple[str, ...]:
    """The program of a server with these tools that starts at once."""
    return sys.executable, "-S", str(AGENTS / "old_mcp.py"), *tools


Use = Callable[..., Awaitable[str]]


def server(*, argv: tuple[str, ...] = (sys.executable, str(SERVER), "log"), **more: Any) -> McpServer:
    return McpServer(kind="mcp", argv=argv, **more)


def using(folder: Path, work: Callable[[McpTools, Use], Awaitable[None]], **more: Any) -> None:
    """Do ``work`` with the tools of an open server; ``use`` gives a result, or its error behind a `!`."""

    async def go() -> None:
        tools = McpTools(server(**more), folder, {"SHOP": "s", "SECRET": "x", **os.environ})

        async def use(name: str, **arguments: Any) -> str:
            result = await tools.use(name, arguments, {"evalq/case": "a"})
            assert isinstance(result, Answered | Failure)
            return result.text if isinstance(result, Answered) else f"!{result.reason}"

        try:
            await tools.open()
            await work(tools, use)
        finally:
            await tools.close()

    asyncio.run(go())


def started(folder: Path) -> list[int]:
    words = [line.split() for line in (folder / "log").read_text().splitlines()]
    return [int(each[1]) for each in words if each[0] == "started"]


def test_the_server_says_what_its_tools_are_and_answers_their_calls(tmp_path: Path) -> None:
    """Results and errors, by one process, which is gone in the end. It gets no variable that `env` does not name.

    What is too long fails alone: other calls in flight are answered.
    """

    async def work(tools: McpTools, use: Use) -> None:
        defined = {tool["name"]: tool for tool in tools.definitions}
        assert defined["weather"]["description"] == "The weather of a city"
        assert defined["weather"]["parameters"]["required"] == ["city"]
        assert json.loads(await use("weather", city="Oslo")) == {"sky": "sunny", "city": "Oslo"}
        assert "Error executing tool weather" in await use("weather", city="Atlantis")
        assert (await use("weather")).startswith("!")
        assert (await use("nope")).startswith("!Unknown tool")
        assert await use("picture") == "[image, image/png, 56 characters of base64]"
        names = (await use("environment")).split()
        assert "SHOP" in names
        assert not {"SECRET", "EVALQ_BROKER"} & {*names}
        waited = await asyncio.gather(*(use("say", text=f"t{n}") for n in range(20)))
        assert waited == [f"t{n}" for n in range(20)]
        for times in (6000, 3_000_000):
            said, other = await asyncio.gather(use("say", text="x", times=times), use("say", text="short"))
            assert [said, other] == ["!the result is longer than max_bytes, 5000", "short"]
        assert await use("say", text="x", times=5000) == "x" * 5000

    using(tmp_path, work, env=("SHOP",), max_bytes=5000)
    (process,) = started(tmp_path)
    assert not runs(process)


def test_a_server_that_dies_is_started_again(tmp_path: Path) -> None:
    """Calls in flight have failed, and say why; none is made again."""

    async def work(_: McpTools, use: Use) -> None:
        died, other = await asyncio.gather(use("die_once"), use("wait", seconds=30))
        for said in (died, other):
            assert said.startswith("!during the call the MCP server ended with exit code 3")
            assert "the disk is full" in said
        assert {*await asyncio.gather(use("die_once"), use("die_once"))} == {"alive"}

    using(tmp_path, work)
    first, second = started(tmp_path)
    assert not runs(first)
    assert not runs(second)
    assert (tmp_path / "log").read_text().count("wait") <= 1


def test_a_server_of_the_first_protocol_is_spoken_to(tmp_path: Path) -> None:
    """Its tools come in pages; `only` chooses some, and `prefix` is no part of the names that the server gets.

    A call that takes too long fails alone.
    """

    async def work(tools: McpTools, use: Use) -> None:
        assert [tool["name"] for tool in tools.definitions] == ["shop_find", "shop_buy", "shop_silent"]
        # Not each API takes an object without properties.
        assert tools.definitions[0]["parameters"] == {"type": "object", "properties": {}}
        called = json.loads(await use("shop_buy", what="cup"))
        assert (called["name"], called["arguments"]) == ("buy", {"what": "cup"})
        assert called["_meta"]["evalq/case"] == "a"
        late, other = await asyncio.gather(use("shop_silent"), use("shop_find"), return_exceptions=True)
        assert isinstance(late, TimeoutError)
        assert '"find"' in str(other)

    more: dict[str, Any] = {"only": ("silent", "buy", "find"), "prefix": "shop_", "timeout_seconds": 0.5}
    using(tmp_path, work, argv=old("find", "sell", "buy", "silent"), **more)


def test_a_server_that_does_not_listen_is_ended_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the end of its input nor a signal ends it, nor a child that has left its group."""
    monkeypatch.setattr(mcp_server, "_GRACE_SECONDS", 0.2)
    (tmp_path / "stays.py").write_text(f"""
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
open("pids", "w").write(f"{{os.getpid()}} {{child.pid}}")
exec(open({old()[-1]!r}).read())
time.sleep(600)
""")

    async def work(_: McpTools, use: Use) -> None:
        assert "hi" in await use("say", text="hi")

    using(tmp_path, work, argv=(sys.executable, "stays.py", "say"))
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        wait_until(lambda: not runs(pid), "it has ended")  # noqa: B023 - before the next round


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"argv": ("./nothing",)}, r"the MCP server ./nothing cannot be started: .*there is no .*nothing: check"),
        ({"argv": (sys.executable, "-c", "raise SystemExit('no key')")}, "ended with exit code 1: no key"),
        (
            {"argv": (sys.executable, "-c", "print('hello')")},
            "ended with exit code 0; its standard output has what is no message: 'hello'",
        ),
        ({"argv": old("weather", "say"), "only": ("weather", "snow")}, "has no tool 'snow'; it has: weather, say"),
        ({"argv": (sys.executable, "-c", "input(); print('{}' * 3_000_000)")}, "longer than max_bytes, 1048576"),
    ],
)
def test_a_server_that_cannot_be_used_says_why(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    async def nothing(_: McpTools, use: Use) -> None:
        raise AssertionError

    with pytest.raises(ConfigError, match=said):
        using(tmp_path, nothing, **more)


def test_a_server_that_stays_silent_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_server, "_START_SECONDS", 0.3)
    monkeypatch.setattr(mcp_server, "_GRACE_SECONDS", 0.1)

    async def nothing(_: McpTools, use: Use) -> None:
        raise AssertionError

    with pytest.raises(ConfigError, match=r"did not list its tools within 0\.3 s"):
        using(tmp_path, nothing, argv=("sleep", "600"))


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)

    async def nothing(_: McpTools, use: Use) -> None:
        raise AssertionError

    with pytest.raises(ConfigError, match=r"needs the package mcp, version 2: pip install 'evalq\[mcp\]'"):
        using(tmp_path, nothing)
