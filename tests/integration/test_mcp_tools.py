"""Live answers whose tools are those of an MCP server, which is a real one, as a process."""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.providers import Says, completion
from tests.agents.server import Agent, running_agent
from tests.integration.harness import Server, evalq, start_evalq, wait_until
from tests.integration.test_lost_calls import calling, finish
from tests.integration.test_tools import CHECKS, DEFINITION, case, lines, model
from tests.processes import runs

AGENTS = Path(__file__).parents[1] / "agents"
REAL = [sys.executable, str(AGENTS / "mcp_tools.py"), "log.txt"]
OLD = [sys.executable, "-S", str(AGENTS / "old_mcp.py")]


@pytest.fixture
def service() -> Iterator[tuple[Agent, str]]:
    with running_agent() as (agent, url):
        agent.reply = model
        yield agent, url


def write(folder: Path, url: str, tools: dict[str, Any], cases: list[dict[str, Any]]) -> None:
    entry = {"kind": "openai", "base_url": url, "model": "m", "tools": tools}
    (folder / "targets.yaml").write_text(json.dumps({"targets": {"chat": entry}}))
    (folder / "cases.json").write_text(json.dumps({"cases": cases}))


def logged(folder: Path, what: str) -> list[list[str]]:
    path = folder / "log.txt"
    words = map(str.split, path.read_text().splitlines() if path.exists() else ())
    return [each[1:] for each in words if each[0] == what]


def test_a_server_answers_beside_canned_results(service: tuple[Agent, str], tmp_path: Path) -> None:
    """Over a ledger and without one; the model gets the server's own definitions, and reads its errors."""
    agent, url = service

    def both(path: str, data: Any) -> dict[str, Any]:
        if data["messages"][-1]["content"] == "What does a cup cost?":
            calls: tuple[tuple[str, dict[str, Any]], ...] = (
                ("price", {"of": "cup"}),
                ("weather", {"city": "Oslo"}),
                ("snow", {}),
            )
            return completion(Says(text=None, calls=calls))
        return model(path, data)

    agent.reply = both
    price = {"name": "price", "description": "of a thing"}
    tools = {"definitions": [price], "answered_by": [{"kind": "mcp", "argv": REAL, "only": ["weather"]}, "canned"]}
    write(
        tmp_path, url, tools,
        [
            case("a", "Atlantis", {"recovers": True}, {"contains": "Seoul"}),
            {"id": "b", "input": "What does a cup cost?", "tool_results": {"price": 7}, "checks": [{"max-turns": 3}]},
        ],
    )  # fmt: skip
    for more in ((), ("--workers", "1")):
        ended = evalq(*CHECKS, *more, cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
        found = lines(tmp_path)
        failed, called = found["a"]["tool_calls"]
        assert "Error executing tool weather" in failed["error"]
        assert called["result"] == {"sky": "sunny", "city": "Seoul"}
        results = [(each["name"], each.get("result"), each.get("error")) for each in found["b"]["tool_calls"][:3]]
        assert results == [
            ("price", 7, None),
            ("weather", {"sky": "sunny", "city": "Oslo"}, None),
            ("snow", None, "there is no tool 'snow'"),
        ]
        (tmp_path / "run").rename(tmp_path / f"run{len(more)}")
    sent = [tool["function"] for tool in agent.requests[-1]["body"]["tools"]]
    assert [tool["name"] for tool in sent] == ["price", "weather"]
    assert sent[1]["parameters"]["required"] == ["city"]
    # One process for each caller, whatever the number of conversations; none stays.
    processes = [int(pid) for (pid,) in logged(tmp_path, "started")]
    assert len(processes) == 2
    for pid in processes:
        wait_until(lambda: not runs(pid), "the server has ended")  # noqa: B023 - before the next round


@pytest.mark.parametrize(
    ("kind", "argv"), [(signal.SIGKILL, REAL), (signal.SIGTERM, [*OLD, "weather"])], ids=["killed", "asked"]
)
def test_a_kill_has_no_tool_called_again_whose_result_is_known(
    service: tuple[Agent, str], tmp_path: Path, kind: signal.Signals, argv: list[str]
) -> None:
    """Each conversation calls a tool five times. The server ends with the process that started it."""
    agent, url = service
    agent.reply_seconds = 0.05
    turns = [f"And in day{n}?" for n in range(4)]
    cases = [
        case(f"c{n}", f"day{n}x", {"max-turns": 10}, turns=[f"{each[:-1]}of{n}?" for each in turns]) for n in "abc"
    ]
    write(tmp_path, url, {"answered_by": {"kind": "mcp", "argv": argv, "only": ["weather"]}}, cases)
    process = start_evalq(*CHECKS, cwd=tmp_path)
    wait_until(lambda: len(logged(tmp_path, "weather")) >= 7, "tools are called")
    process.send_signal(kind)
    process.wait(60)
    (pid,) = (int(pid) for (pid,) in logged(tmp_path, "started"))
    wait_until(lambda: not runs(pid), "the server has ended")
    agent.reply_seconds = 0.0
    resumed = evalq("resume", "run", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    times = Counter(city for city, _ in logged(tmp_path, "weather"))
    assert len(times) == 15
    # A call of a tool in flight at the kill is made again, one a conversation; after the signal that asks, none is.
    assert sum(times.values()) - 15 <= (3 if kind == signal.SIGKILL else 0)
    for line in lines(tmp_path).values():
        assert (line["turns"], len(line["attempts"]), len(line["tool_calls"])) == (10, 10, 5)


def test_a_killed_process_of_the_fleet_leaves_results_to_others(
    service: tuple[Agent, str], tmp_path: Path, server: Server
) -> None:
    """And no server."""
    agent, url = service
    agent.reply_seconds = 0.05
    cases = [case(f"c{n}", f"c{n}", {"max-turns": 6}, turns=[f"And in {n}x?", f"And in {n}y?"]) for n in range(4)]
    write(tmp_path, url, {"answered_by": {"kind": "mcp", "argv": [*OLD, "weather"]}}, cases)
    begun = evalq(*CHECKS[:4], "--detach", "--out", "run", cwd=tmp_path, EVALQ_BROKER=server.url)
    assert begun.returncode == 0, begun.stderr
    with calling(tmp_path, server, 4):
        wait_until(lambda: len(logged(tmp_path, "weather")) >= 5, "tools are called")
    assert finish(tmp_path, server)["recorded"] == 4
    times = Counter(city for city, _ in logged(tmp_path, "weather"))
    assert len(times) == 12
    assert sum(times.values()) - 12 <= 4
    for (pid,) in logged(tmp_path, "started"):
        wait_until(lambda: not runs(int(pid)), "the server has ended")  # noqa: B023 - before the next round


def test_a_tool_that_nobody_answers_ends_the_answer_beside_a_server(service: tuple[Agent, str], tmp_path: Path) -> None:
    agent, url = service
    agent.reply = lambda path, data: completion(
        Says(text=None, calls=(("submit", {}),) if data["messages"][-1]["role"] == "tool" else (("find", {"a": 1}),))
    )
    tools = {"definitions": [{"name": "submit"}], "answered_by": [{"kind": "mcp", "argv": [*OLD, "find"]}, "stop"]}
    write(tmp_path, url, tools, [case("a", "Oslo", {"finish": "tool_calls"}, {"tool-sequence": ["find", "submit"]})])
    ended = evalq(*CHECKS, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert len(agent.requests) == 2


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ({"answered_by": {"kind": "mcp"}}, "argv: Field required"),
        ({"answered_by": {"kind": "mcp", "argv": OLD, "url": "x"}}, "url: unknown key"),
        ({"answered_by": []}, "names nobody"),
        ({"answered_by": "mcp"}, "'mcp' where one of these is wanted: stop, canned, an entry such as {kind: mcp"),
        ({"answered_by": [["stop"]]}, "['stop'] where one of these is wanted"),
        ({"answered_by": ["canned", "stop"], "definitions": [DEFINITION]}, "has 2 that answer `definitions`"),
        ({"answered_by": [{"kind": "mcp", "argv": OLD}, "canned"]}, "tools.definitions"),
        ({"answered_by": {"kind": "mcp", "argv": OLD}, "definitions": [DEFINITION]}, "nobody answers these"),
        ({"answered_by": "canned", "definitions": [DEFINITION, DEFINITION]}, "weather is defined twice"),
        ({"answered_by": {"kind": "mcp", "argv": OLD}}, "lists no tools"),
        ({"answered_by": {"kind": "mcp", "argv": [*OLD, *(f"t{n}" for n in range(101))]}}, "more than 100 pages"),
        ({"answered_by": {"kind": "mcp", "argv": [*OLD, "a b"]}}, "a tool whose name no model takes: 'a b'"),
        (
            {"answered_by": [{"kind": "mcp", "argv": [*OLD, "find"]}, {"kind": "mcp", "argv": [*OLD, "find"]}]},
            "has the name of another one; choose tools with `only`, or give the server's names a `prefix`",
        ),
        ({"answered_by": {"kind": "mcp", "argv": ["no-such-server"]}}, "no no-such-server is on PATH: install it"),
    ],
)  # fmt: skip
def test_wrong_servers_are_named(tmp_path: Path, tools: dict[str, Any], said: str) -> None:
    write(tmp_path, "http://127.0.0.1:1/v1", tools, [case("a", "Oslo", {"contains": "x"})])
    ended = evalq(*CHECKS, cwd=tmp_path)
    assert ended.returncode == 2, ended.stderr
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
