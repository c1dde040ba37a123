"""Answers that take several calls of the model: tools that are answered, and turns that the user says."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.providers import Says, completion
from tests.agents.server import Agent, running_agent
from tests.integration.harness import Server, evalq, start_evalq, wait_until
from tests.integration.test_lost_calls import calling, finish

DEFINITION = {
    "name": "weather",
    "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CHECKS = ("checks", "cases.json", "--target", "chat", "--targets", "targets.yaml", "--quiet", "--out", "run")
TOOL = """
def weather(call):
    if call["arguments"]["city"] == "Atlantis":
        raise LookupError("no such city")
    return {"sky": "sunny", "city": call["arguments"]["city"], "case": call["case"]}
"""


def sweep_killed_thrice(agent: Agent, folder: Path, kind: signal.Signals, needed: int) -> None:
    """Run the sweep of ``folder``, which needs so many calls, to its end; ``kind`` ends it at three random places."""
    seed = random.randrange(1 << 30)
    print("seed", seed)  # noqa: T201 - pytest shows it where the test fails
    chosen = random.Random(seed)
    process = start_evalq(*CHECKS, cwd=folder)
    for part in (1, 2, 3):
        goal = part * needed // 5 + chosen.randrange(6)

        def reached(goal: int = goal, process: Any = process) -> bool:
            return len(agent.requests) >= goal or process.poll() is not None

        wait_until(reached, "calls are made")
        process.send_signal(kind)
        process.wait(60)
        process = start_evalq("resume", "run", cwd=folder)
    assert process.wait(120) == 0


def model(path: str, data: Any) -> dict[str, Any]:
    """Asks for the weather of the last city that the user names, and says what the tool gave; after an error, it asks
    for Seoul.
    """
    last = data["messages"][-1]
    if last["role"] == "user":
        city = last["content"].rstrip("?").rsplit(" ", 1)[-1]
        return completion(Says(text=None, calls=(("weather", {"city": city}),)))
    assert last["role"] == "tool"
    if last["content"].startswith("error"):
        return completion(Says(text=None, calls=(("weather", {"city": "Seoul"}),)))
    return completion(Says(text=f"I hear: {last['content']}"))


@pytest.fixture
def service() -> Iterator[tuple[Agent, str]]:
    with running_agent() as (agent, url):
        agent.reply = model
        yield agent, url


def write(folder: Path, url: str, answered_by: Any, cases: list[dict[str, Any]], **more: Any) -> None:
    tools = {"definitions": [DEFINITION], "answered_by": answered_by, **more}
    price = {"prompt_per_million": 1e6, "completion_per_million": 0}
    entry = {"kind": "openai", "base_url": url, "model": "m", "tools": tools, "price": price}
    (folder / "targets.yaml").write_text(json.dumps({"targets": {"chat": entry}}))
    (folder / "cases.json").write_text(json.dumps({"cases": cases}))
    (folder / "tool.py").write_text(TOOL)


def case(name: str, city: str, *checks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": name, "input": f"How is the weather in {city}?", "checks": list(checks), **more}


def lines(folder: Path) -> dict[str, Any]:
    return {line["case"]: line for line in map(json.loads, (folder / "run/outputs.jsonl").read_text().splitlines())}


def test_canned_results_answer_and_the_conversation_is_kept(service: tuple[Agent, str], tmp_path: Path) -> None:
    agent, url = service
    results = [{"name": "weather", "arguments": {"city": "Oslo"}, "result": "snow"}]
    checks: list[dict[str, Any]] = [
        {"contains": "I hear: snow"},
        {"calls-tool": "weather", "arguments": {"city": "Oslo"}},
    ]
    write(tmp_path, url, "canned", [case("a", "Oslo", *checks, tool_results=results)])
    ended = evalq(*CHECKS, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    line = lines(tmp_path)["a"]
    assert line["output"] == "I hear: snow"
    assert [message["role"] for message in line["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert [(call["name"], call["result"]) for call in line["tool_calls"]] == [("weather", "snow")]
    assert (line["turns"], line["finish"], len(line["attempts"])) == (2, "stop", 2)
    assert [attempt["cost"] for attempt in line["attempts"]] == [20.0, 20.0]
    assert "1 of 1 outputs passed" in ended.stdout + ended.stderr or ended.returncode == 0
    # The second request repeats the first, with the call and its result.
    sent = agent.requests[-1]["body"]
    assert sent["tools"] == [{"type": "function", "function": DEFINITION}]
    assert sent["messages"][1]["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city":"Oslo"}'}
    assert sent["messages"][2] == {"role": "tool", "tool_call_id": "call_0", "content": "snow"}


def test_a_function_answers_and_its_error_is_the_models_to_mend(service: tuple[Agent, str], tmp_path: Path) -> None:
    """The same over a ledger, with the same outputs."""
    _, url = service
    tool = {"kind": "python", "function": "tool:weather"}
    checks: list[dict[str, Any]] = [{"contains": "sunny"}, {"recovers": True}]
    write(tmp_path, url, tool, [case("a", "Atlantis", *checks), case("b", "Busan", {"contains": "Busan"})])
    assert evalq(*CHECKS, cwd=tmp_path).returncode == 0
    alone = lines(tmp_path)
    first, second = alone["a"]["tool_calls"]
    assert "LookupError: no such city" in first["error"]
    assert second["result"] == {"sky": "sunny", "city": "Seoul", "case": "a"}
    (tmp_path / "run").rename(tmp_path / "alone")
    ended = evalq(*CHECKS, "--workers", "1", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    for name, line in lines(tmp_path).items():
        for key in ("output", "messages", "turns", "finish"):
            assert line[key] == alone[name][key]
        strip = [{key: value for key, value in call.items() if key != "seconds"} for call in line["tool_calls"]]
        assert strip == [
            {key: value for key, value in call.items() if key != "seconds"} for call in alone[name]["tool_calls"]
        ]


def test_the_user_says_more_in_later_turns(service: tuple[Agent, str], tmp_path: Path) -> None:
    _, url = service
    results = {"weather": "rain"}
    turns = ["And in Daegu?", "And in Jeju?"]
    write(tmp_path, url, "canned", [case("a", "Oslo", {"max-turns": 6}, turns=turns, tool_results=results)])
    assert evalq(*CHECKS, cwd=tmp_path).returncode == 0
    line = lines(tmp_path)["a"]
    assert [call["arguments"]["city"] for call in line["tool_calls"]] == ["Oslo", "Daegu", "Jeju"]
    said = [message["content"] for message in line["messages"] if message["role"] == "user"]
    assert said == ["How is the weather in Oslo?", *turns]
    assert (line["turns"], len(line["attempts"])) == (6, 6)


def test_a_model_that_goes_on_calling_is_bounded(service: tuple[Agent, str], tmp_path: Path) -> None:
    agent, url = service
    agent.reply = lambda path, data: completion(Says(text=None, calls=(("weather", {"city": "Oslo"}),)))
    checks = [{"finish": "max_turns"}]
    write(tmp_path, url, "canned", [case("a", "Oslo", *checks, tool_results={"weather": "x"})], max_turns=3)
    assert evalq(*CHECKS, cwd=tmp_path).returncode == 0
    line = lines(tmp_path)["a"]
    assert (line["output"], line["finish"], line["turns"], len(agent.requests)) == (None, "max_turns", 3, 3)


def test_a_call_that_nobody_answers_is_the_answer(service: tuple[Agent, str], tmp_path: Path) -> None:
    agent, url = service
    write(tmp_path, url, "stop", [case("a", "Oslo", {"calls-tool": "weather"}, {"finish": "tool_calls"})])
    assert evalq(*CHECKS, cwd=tmp_path).returncode == 0
    line = lines(tmp_path)["a"]
    assert (line["output"], len(agent.requests), "messages" in line) == (None, 1, False)


@pytest.mark.parametrize("more", [("--max-calls", "5"), ("--max-cost", "100")], ids=" ".join)
def test_each_call_of_the_model_is_one_of_the_budget(
    service: tuple[Agent, str], tmp_path: Path, more: tuple[str, ...]
) -> None:
    """A conversation takes two calls of 20 each: at most one call more than the budget has is made."""
    agent, url = service
    cases = [case(f"c{n}", "Oslo", {"contains": "I hear"}, tool_results={"weather": "x"}) for n in range(9)]
    write(tmp_path, url, "canned", cases)
    ended = evalq(*CHECKS, *more, cwd=tmp_path)
    assert json.loads((tmp_path / "run/run.json").read_bytes())["calls"]["ended"] == "spent", ended.stderr
    assert 4 <= len(agent.requests) <= 6


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGINT])
def test_no_turn_is_paid_twice_beyond_those_in_flight(
    service: tuple[Agent, str], tmp_path: Path, kind: signal.Signals
) -> None:
    """Killed three times at random places, the conversations go on where they were, and end as if nothing had been."""
    agent, url = service
    turns = ["And in Daegu?", "And in Jeju?", "And in Busan?"]
    cases = [
        case(f"c{n}", f"Oslo{n}", {"max-turns": 8}, turns=turns, tool_results={"weather": f"rain{n}"}) for n in range(6)
    ]
    write(tmp_path, url, "canned", cases)
    needed, lanes = 6 * 8, 6
    agent.reply_seconds = 0.02
    sweep_killed_thrice(agent, tmp_path, kind, needed)
    # A call in flight when the process died is made again, and nothing else is.
    in_flight = 3 * lanes if kind == signal.SIGKILL else 0
    assert needed <= len(agent.requests) <= needed + in_flight
    for name, line in lines(tmp_path).items():
        n = name.removeprefix("c")
        assert [call["arguments"]["city"] for call in line["tool_calls"]] == [f"Oslo{n}", "Daegu", "Jeju", "Busan"]
        assert (line["turns"], len(line["attempts"]), line["output"]) == (8, 8, f"I hear: rain{n}")
    calls = json.loads((tmp_path / "run/run.json").read_bytes())["calls"]
    assert (calls["recorded"], calls["errors"], calls["attempts"] - calls["lost"]) == (6, 0, needed)
    assert calls["lost"] <= in_flight


def test_a_conversation_that_cannot_be_read_begins_anew(service: tuple[Agent, str], tmp_path: Path) -> None:
    """Kept by another version, say: the run goes on, and its attempts are all that were made."""
    agent, url = service
    cases = [case("a", "Oslo", {"max-turns": 4}, turns=["And in Jeju?"], tool_results={"weather": "rain"})]
    write(tmp_path, url, "canned", cases)
    agent.reply_seconds = 0.3
    process = start_evalq(*CHECKS, cwd=tmp_path)
    wait_until(lambda: len(agent.requests) >= 3, "two answers are kept")
    process.send_signal(signal.SIGINT)
    process.wait(60)
    (log,) = tmp_path.glob("run/**/calls.jsonl")
    log.write_bytes(log.read_bytes().replace(b'"state":[', b'"state":["another",'))
    before = len(agent.requests)
    agent.reply_seconds = 0.0
    assert evalq("resume", "run", cwd=tmp_path).returncode == 0
    line = lines(tmp_path)["a"]
    assert (len(agent.requests) - before, len(line["attempts"]), line["turns"]) == (4, 4, 4)
    calls = json.loads((tmp_path / "run/run.json").read_bytes())["calls"]
    assert (calls["attempts"], calls["lost"]) == (before + 4, 0)


def test_a_killed_process_of_the_fleet_leaves_its_conversations_to_others(
    service: tuple[Agent, str], tmp_path: Path, server: Server
) -> None:
    """Two processes in turn are killed in the middle: the next one goes on, and only calls in flight are lost."""
    agent, url = service
    turns = ["And in Daegu?", "And in Jeju?", "And in Busan?"]
    cases = [
        case(f"c{n}", f"Oslo{n}", {"max-turns": 8}, turns=turns, tool_results={"weather": f"rain{n}"}) for n in range(6)
    ]
    write(tmp_path, url, "canned", cases)
    begun = evalq(*CHECKS[:4], "--detach", "--out", "run", cwd=tmp_path, EVALQ_BROKER=server.url)
    assert begun.returncode == 0, begun.stderr
    agent.reply_seconds = 0.05
    for goal in (14, 30):
        with calling(tmp_path, server, 6):
            wait_until(lambda: len(agent.requests) >= goal, "conversations are under way")  # noqa: B023 - before the next round
    message = finish(tmp_path, server)
    needed = 6 * 8
    assert message["recorded"] == 6
    # A call that had begun when its process died may not have reached the model, and counts as lost all the same.
    assert needed <= len(agent.requests) <= needed + message["lost"]
    assert message["attempts"] == needed + message["lost"]
    assert message["lost"] <= 2 * 6
    for name, line in lines(tmp_path).items():
        n = name.removeprefix("c")
        assert [call["arguments"]["city"] for call in line["tool_calls"]] == [f"Oslo{n}", "Daegu", "Jeju", "Busan"]
        assert (line["turns"], len(line["attempts"]), line["output"]) == (8, 8, f"I hear: rain{n}")


@pytest.mark.parametrize(
    ("tools", "place"),
    [
        ({"definitions": []}, "tools.definitions"),
        ({"definitions": [{"name": "a b"}]}, "tools.definitions.0.name"),
        ({"definitions": [DEFINITION], "answered_by": "me"}, "tools.answered_by"),
        ({"definitions": [DEFINITION], "answered_by": {"kind": "openai"}}, "must be one of python, command, http"),
        ({"definitions": [DEFINITION], "answered_by": {"kind": "python"}}, "function"),
        ({"definitions": [DEFINITION], "max_turns": 0}, "tools.max_turns"),
    ],
)
def test_wrong_tools_are_named_by_their_place(tmp_path: Path, tools: Any, place: str) -> None:
    write(tmp_path, "http://127.0.0.1:1/v1", "stop", [case("a", "Oslo", {"contains": "x"})])
    entry = {"kind": "openai", "base_url": "http://127.0.0.1:1/v1", "model": "m", "tools": tools}
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"chat": entry}}))
    ended = evalq(*CHECKS, cwd=tmp_path)
    assert ended.returncode == 2
    assert place in ended.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"turns": "And?"}, "turns: must be a list of texts"),
        ({"turns": ["And?", ""]}, "turns[1]: must be a text that the user says, found an empty text"),
        ({"turns": [3]}, "turns[0]"),
        ({"tool_results": "x"}, "tool_results: must be {tool: result}"),
        ({"tool_results": [{"name": "w"}]}, "tool_results[0]: must have a result or an error"),
        ({"tool_results": [{"name": "w", "result": 1, "error": "x"}]}, "tool_results[0]: must have a result or an"),
        ({"tool_results": [{"tool": "w", "result": 1}]}, "tool_results[0]: tool: unknown key"),
        ({"tool_results": [{"name": "w", "arguments": [], "result": 1}]}, "tool_results[0]: arguments"),
    ],
)
def test_wrong_turns_and_results_are_named_by_their_place(tmp_path: Path, more: Any, place: str) -> None:
    write(tmp_path, "http://127.0.0.1:1/v1", "canned", [case("a", "Oslo", {"contains": "x"}, **more)])
    ended = evalq(*CHECKS, cwd=tmp_path)
    assert ended.returncode == 2
    assert place in ended.stderr
    assert "cases.json:" in ended.stderr


AGENTS = """
def text(prompt):
    return "I say: " + prompt


def chat(call):
    said = [message["content"] for message in call.get("messages", [{"content": call["prompt"]}])]
    return f"{len(said)}: {said[-1]}"
"""


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"kind": "python", "function": "agents:chat"}, "3: And now?"),
        ({"kind": "python", "function": "agents:text"}, "have it take one dict, and read `messages`"),
        ({"kind": "http", "body": {"q": "{prompt}"}}, "the target's body has no {messages}"),
    ],
    ids=["a dict", "a text", "no place"],
)
def test_an_agent_that_would_not_see_the_conversation_is_refused(
    service: tuple[Agent, str], tmp_path: Path, entry: dict[str, Any], said: str
) -> None:
    agent, url = service
    write(tmp_path, url, "stop", [case("a", "Oslo", {"contains": "And now?"}, turns=["And now?"])])
    (tmp_path / "agents.py").write_text(AGENTS)
    more = {"url": url} if entry["kind"] == "http" else {}
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"chat": {**entry, **more}}}))
    evalq(*CHECKS, cwd=tmp_path)
    line = lines(tmp_path)["a"]
    assert said in (line.get("output") or line["error"])
    assert not agent.requests


THREADS = '''
"""An agent with tools of its own: one keeps the thread, as a graph with a checkpointer; one gets it with each turn."""

import json

from evalq import Answer

KEPT = {}


def turn(said, number):
    call = {"type": "ai", "content": "", "tool_calls": [{"name": "find", "args": {"at": said}, "id": f"c{number}"}]}
    result = {"type": "tool", "content": f"rain {number}", "tool_call_id": f"c{number}"}
    last = {"type": "ai", "content": f"rain {number} at {said}", "usage_metadata": {"input_tokens": 9}}
    return [{**call, "usage_metadata": {"input_tokens": 7}}, result, last]


def keeps(call):
    """It is asked by the last message alone."""
    said = call["messages"][-1]["content"] if "messages" in call else call["prompt"]
    thread = KEPT.setdefault(call["traceparent"], [])
    thread += [{"role": "user", "content": said}, *turn(said, len(thread))]
    return Answer(messages=list(thread))


def gets(call):
    thread = list(call.get("messages") or [{"role": "user", "content": call["prompt"]}])
    for message in thread:
        for each in message.get("tool_calls") or ():
            assert json.loads(each["function"]["arguments"]) and "usage" not in message
    return Answer(messages=[*thread, *turn(thread[-1]["content"], len(thread) - 1)])
'''


@pytest.mark.parametrize("function", ["keeps", "gets"])
def test_an_agent_with_tools_of_its_own_is_heard_over_turns(tmp_path: Path, function: str) -> None:
    """Each message, call, result and token counts once, in the turn in which it came; and it reads its own calls."""
    checks: list[dict[str, Any]] = [{"tool-sequence": ["find", "find", "find"]}, {"no-repeat": True}]
    write(tmp_path, "http://127.0.0.1:1", "stop", [case("a", "Oslo", *checks, turns=["in Daegu", "in Jeju"])])
    (tmp_path / "agents.py").write_text(THREADS)
    target = {"kind": "python", "function": f"agents:{function}"}
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"chat": target}}))
    ended = evalq(*CHECKS, cwd=tmp_path)
    line = lines(tmp_path)["a"]
    assert ended.returncode == 0, (ended.stderr, line.get("error"))
    assert [message["role"] for message in line["messages"]] == ["user", "assistant", "tool", "assistant"] * 3
    assert [call["arguments"]["at"] for call in line["tool_calls"]][1:] == ["in Daegu", "in Jeju"]
    assert [call["result"] for call in line["tool_calls"]] == ["rain 0", "rain 4", "rain 8"]
    assert line["output"] == "rain 8 at in Jeju"
    assert [attempt["prompt_tokens"] for attempt in line["attempts"]] == [16, 16, 16]
