"""Conversations with a simulated user: who says what, what each call costs, and what a fault of the user means."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.providers import Says, completion
from tests.agents.server import Agent, marker_in, running_agent
from tests.integration.harness import Server, evalq, wait_until
from tests.integration.test_lost_calls import calling, finish
from tests.integration.test_tools import CHECKS, DEFINITION, lines, sweep_killed_thrice
from tests.integration.test_tools import model as agent_model

THREE = "Ask for the weather in {city}, then in Daegu, then in Jeju."


def customer(data: Any) -> Says:
    """Asks for one city of its goal after the other, and then stops."""
    role, said = data["messages"][0]["content"], [m for m in data["messages"] if m["role"] == "assistant"]
    cities = re.findall(r"weather in (\S+?),? then in (\S+?),? then in (\S+?)\.", role)[0]
    if len(said) == len(cities):
        return Says(text="Thank you. ###STOP###", fresh=5)
    return Says(text=f"How is the weather in {cities[len(said)]}?", fresh=5)


def model(path: str, data: Any) -> dict[str, Any]:
    return completion(customer(data)) if data["model"] == "customer" else agent_model(path, data)


@pytest.fixture
def service() -> Iterator[tuple[Agent, str]]:
    with running_agent() as (agent, url):
        agent.reply = model
        yield agent, url


def write(folder: Path, url: str, cases: list[dict[str, Any]], user: dict[str, Any] | None = None, **more: Any) -> None:
    price = {"prompt_per_million": 1e6, "completion_per_million": 0}
    shared = {"kind": "openai", "base_url": url, "price": price}
    chat = {**shared, "model": "agent", "user": "customer", **more}
    chat["tools"] = {"definitions": [DEFINITION], "answered_by": "canned"}
    simulator = {**shared, "model": "customer", **(user or {})}
    (folder / "targets.yaml").write_text(json.dumps({"targets": {"chat": chat, "customer": simulator}}))
    (folder / "cases.json").write_text(json.dumps({"cases": cases}))


def case(name: str, city: str = "Oslo", *checks: dict[str, Any], **user: Any) -> dict[str, Any]:
    given = {"goal": THREE.format(city=city), **user}
    return {
        "id": name,
        "user": given,
        "tool_results": {"weather": f"rain {city}"},
        "checks": list(checks) or [{"contains": "I hear"}],
    }


def calls(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run/run.json").read_bytes())["calls"]
    return found


def said(line: dict[str, Any], role: str) -> list[str]:
    return [message["content"] for message in line["messages"] if message["role"] == role and message["content"]]


def test_a_user_speaks_until_it_stops(service: tuple[Agent, str], tmp_path: Path) -> None:
    agent, url = service
    checks: list[dict[str, Any]] = [{"contains": "I hear: rain Oslo"}, {"max-turns": 6}, {"max-cost": 120}]
    write(tmp_path, url, [case("a", "Oslo", *checks, persona="In a hurry.")])
    ended = evalq(*CHECKS, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    line = lines(tmp_path)["a"]
    asked = [f"How is the weather in {city}?" for city in ("Oslo", "Daegu", "Jeju")]
    assert said(line, "user") == [*asked, "Thank you."]
    assert [call["arguments"]["city"] for call in line["tool_calls"]] == ["Oslo", "Daegu", "Jeju"]
    assert (line["output"], line["turns"], line["finish"]) == ("I hear: rain Oslo", 6, "stop")
    assert [attempt.get("by", "agent") for attempt in line["attempts"]] == ["user", "agent", "agent"] * 3 + ["user"]
    assert [attempt["cost"] for attempt in line["attempts"]] == [5.0, 20.0, 20.0] * 3 + [5.0]
    assert (line["user"]["target"], "fault" in line["user"]) == ("customer", False)
    # The user sees what the agent said, and neither its tools nor what evalq told it.
    seen = [request["body"] for request in agent.requests if request["body"]["model"] == "customer"]
    assert "In a hurry." in seen[-1]["messages"][0]["content"]
    roles = [message["role"] for message in seen[-1]["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user", "assistant", "user"]
    assert "tools" not in seen[-1]
    known = calls(tmp_path)
    assert (known["attempts"], known["cost"], known["lost"]) == (10, 140.0, 0)
    assert known["users"] == {f"customer ({line['user']['config']}), served by model-2026-01-02 (fp_1)": 1}
    results = json.loads((tmp_path / "run/report.json").read_bytes())["results"]
    # What the agent cost: 120.
    assert (results["outputs"]["passed"], results["cost"]["max"]) == (1, 120.0)
    page = (tmp_path / "run/report.html").read_text()
    assert "Simulated user" in page


def test_an_input_is_what_the_user_says_first_and_max_turns_is_the_end(
    service: tuple[Agent, str], tmp_path: Path
) -> None:
    _, url = service
    opened = {**case("a", "Oslo", {"finish": "max_turns"}, max_turns=2), "input": "How is the weather in Mokpo?"}
    chat = [{"role": "system", "content": "Be kind."}]
    write(tmp_path, url, [opened, {**case("b", "Oslo", {"finish": "stop"}), "input": chat}])
    ended = evalq(*CHECKS, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    found = lines(tmp_path)
    assert said(found["a"], "user") == ["How is the weather in Mokpo?", "How is the weather in Daegu?"]
    assert (found["a"]["turns"], len(found["a"]["attempts"])) == (4, 5)
    assert found["b"]["messages"][:2] == [*chat, {"role": "user", "content": "How is the weather in Oslo?"}]


FAULTS: list[tuple[str, Says | int, str]] = [
    ("nothing", Says(text=" "), "user: bad_output: it said nothing"),
    ("tools", Says(text="Hm.", calls=(("buy", {}),)), "user: bad_output: it called tools (buy)"),
    ("refusal", Says(text="I cannot.", finish="content_filter"), "user: refused: "),
    ("cut", Says(text="How is the wea", finish="length"), "user: bad_output: its message was cut off"),
    ("stop", Says(text="###STOP###"), "user: bad_output: it said ###STOP### before the agent said anything"),
]


@pytest.mark.parametrize(("name", "says", "error"), FAULTS, ids=[name for name, _, _ in FAULTS])
def test_a_fault_of_the_user_is_not_the_agents(
    service: tuple[Agent, str], tmp_path: Path, name: str, says: Says, error: str
) -> None:
    agent, url = service

    def reply(path: str, data: Any) -> dict[str, Any]:
        first = all(message["role"] != "assistant" for message in data["messages"])
        at_once = name == "stop" or len(data["messages"]) > 3
        if data["model"] == "customer" and "Ulsan" in data["messages"][0]["content"] and first == (name == "stop"):
            return completion(says) if at_once else model(path, data)
        return model(path, data)

    agent.reply = reply
    write(tmp_path, url, [case("bad", "Ulsan"), case("good", "Oslo")])
    ended = evalq(*CHECKS, "--output", "junit.xml", cwd=tmp_path)
    # As for any call that nobody answered: `evalq retry --errors` makes it again.
    assert (ended.returncode, "1 call was never answered (1 lost by the simulated user)" in ended.stderr) == (
        3,
        True,
    ), ended.stderr
    found = lines(tmp_path)
    assert found["bad"]["error"].startswith(error)
    assert found["bad"]["user"]["fault"] == error.split(": ")[1]
    assert "output" not in found["bad"]
    assert found["bad"]["attempts"][-1]["kind"] == error.split(": ")[1]
    if name != "stop":
        assert said(found["bad"], "assistant") == ["I hear: rain Ulsan"]
    assert found["good"]["output"] == "I hear: rain Oslo"
    report = json.loads((tmp_path / "run/report.json").read_bytes())
    assert report["results"]["outputs"] == {"total": 2, "passed": 1, "failed": 0, "errors": 1, "lost_by_user": 1}
    (simulator,) = report["results"]["users"]["simulators"]
    assert (simulator["user"], simulator["faults"]) == ("customer", {error.split(": ")[1]: 1})
    assert simulator["served"] == ["model-2026-01-02 (fp_1)"]
    reason = f"lost by the simulated user: {error.removeprefix('user: ')}"
    assert reason in (tmp_path / "junit.xml").read_text()
    assert reason in (tmp_path / "run/records.jsonl").read_text()
    assert "Lost by users" in (tmp_path / "run/report.html").read_text()
    # Again, and this time it keeps to its part.
    agent.reply = model
    again = evalq("retry", "run", "--errors", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert lines(tmp_path)["bad"]["output"] == "I hear: rain Ulsan"


def test_compare_names_a_replaced_user(service: tuple[Agent, str], tmp_path: Path) -> None:
    _, url = service
    for name, more in (("before", {}), ("now", {"options": {"temperature": 0.5}})):
        write(tmp_path, url, [case("a")], more)
        assert evalq(*CHECKS, cwd=tmp_path).returncode == 0
        (tmp_path / "run").rename(tmp_path / name)
    ended = evalq("compare", "before", "now", cwd=tmp_path)
    digests = [next(iter(info["calls"]["users"])) for info in (
        json.loads((tmp_path / name / "run.json").read_bytes()) for name in ("before", "now"))]  # fmt: skip
    assert f"Another target simulated the user: {digests[1]} now, {digests[0]} before." in ended.stdout.replace(
        "\\", ""
    )
    assert digests[0] != digests[1]


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGINT])
def test_no_call_of_either_is_paid_twice_beyond_those_in_flight(
    service: tuple[Agent, str], tmp_path: Path, kind: signal.Signals
) -> None:
    agent, url = service
    write(tmp_path, url, [case(f"c{n}", f"Oslo{n}") for n in range(6)])
    needed, lanes = 6 * 10, 6
    agent.reply_seconds = 0.02
    sweep_killed_thrice(agent, tmp_path, kind, needed)
    in_flight = 3 * lanes if kind == signal.SIGKILL else 0
    assert needed <= len(agent.requests) <= needed + in_flight
    for name, line in lines(tmp_path).items():
        assert len(said(line, "user")) == 4
        assert (line["turns"], len(line["attempts"])) == (6, 10)
        assert line["output"] == f"I hear: rain Oslo{name.removeprefix('c')}"
    known = calls(tmp_path)
    assert (known["recorded"], known["errors"], known["attempts"] - known["lost"]) == (6, 0, needed)
    assert known["lost"] <= in_flight


def test_a_fleet_gives_the_same_conversations_after_two_kills(
    service: tuple[Agent, str], tmp_path: Path, server: Server
) -> None:
    agent, url = service
    write(tmp_path, url, [case(f"c{n}", f"Oslo{n}") for n in range(6)])
    assert evalq(*CHECKS, cwd=tmp_path).returncode == 0
    alone = lines(tmp_path)
    report = json.loads((tmp_path / "run/report.json").read_bytes())["results"]
    (tmp_path / "run").rename(tmp_path / "alone")
    begun = evalq(*CHECKS[:4], "--detach", "--out", "run", cwd=tmp_path, EVALQ_BROKER=server.url)
    assert begun.returncode == 0, begun.stderr
    before = len(agent.requests)
    agent.reply_seconds = 0.05
    for goal in (17, 40):
        with calling(tmp_path, server, 6):
            wait_until(lambda: len(agent.requests) - before >= goal, "conversations are under way")  # noqa: B023 - before the next round
    message = finish(tmp_path, server)
    needed = 6 * 10
    assert needed <= len(agent.requests) - before <= needed + message["lost"]
    assert message["lost"] <= 2 * 6
    timed = ("seconds", "attempts", "tool_calls", "trace")
    for name, line in lines(tmp_path).items():
        assert {key: value for key, value in line.items() if key not in timed} == {
            key: value for key, value in alone[name].items() if key not in timed
        }
        assert [attempt.get("by") for attempt in line["attempts"]] == [a.get("by") for a in alone[name]["attempts"]]
    again = json.loads((tmp_path / "run/report.json").read_bytes())["results"]
    assert again["by_case"] == report["by_case"]


@pytest.mark.parametrize("more", [("--max-calls", "15"), ("--max-cost", "200")], ids=" ".join)
def test_budgets_count_the_users_calls(service: tuple[Agent, str], tmp_path: Path, more: tuple[str, ...]) -> None:
    """A conversation takes ten calls and costs 140: none begins that the budget may not pay."""
    agent, url = service
    write(tmp_path, url, [case(f"c{n}", "Oslo") for n in range(9)])
    evalq(*CHECKS, *more, "--calls", "1", cwd=tmp_path)
    assert calls(tmp_path)["ended"] == "spent"
    assert 10 <= len(agent.requests) <= 16


@pytest.mark.parametrize("fleet", [False, True], ids=["alone", "fleet"])
def test_cases_with_a_user_need_a_target_that_names_one(
    service: tuple[Agent, str], tmp_path: Path, fleet: bool
) -> None:
    agent, url = service
    write(tmp_path, url, [case("a")], user=None)
    entries = json.loads((tmp_path / "targets.yaml").read_text())["targets"]
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"chat": {**entries["chat"], "user": None}}}))
    ended = evalq(*CHECKS, *(("--workers", "1") if fleet else ()), cwd=tmp_path)
    assert ended.returncode == 2
    assert "cases have a simulated user, and target 'chat' names none: add `user: TARGET` to it" in ended.stderr
    assert not agent.requests
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"kind": "openai"}, "targets.chat.user: there is no target 'customer' in this file (known: chat)"),
        ({"user": "chat"}, "targets.chat.user: 'customer' has a user of its own"),
        ({"output": "json"}, "targets.chat.user: 'customer' has `output: json`"),
        ({"tools": {"definitions": [DEFINITION]}}, "targets.chat.user: 'customer' has tools"),
    ],
)
def test_wrong_users_are_named_by_their_place(tmp_path: Path, entry: dict[str, Any], message: str) -> None:
    write(tmp_path, "http://127.0.0.1:1/v1", [case("a")], entry)
    if entry == {"kind": "openai"}:
        entries = json.loads((tmp_path / "targets.yaml").read_text())["targets"]
        (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"chat": entries["chat"]}}))
    ended = evalq(*CHECKS, cwd=tmp_path)
    assert ended.returncode == 2
    assert message in ended.stderr


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"goal": "x", "steps": 3}, "user.steps: unknown key (known here: persona, goal, stop, max_turns)"),
        ({"max_turns": 3}, "user: must say whom the simulated user plays"),
        ({"goal": "x", "max_turns": 0}, "user.max_turns: must be a whole number from 1 to 1000"),
        ({"goal": "x", "max_turns": True}, "user.max_turns: must be a whole number"),
        ({"goal": "x", "stop": " "}, "user.stop: must be a text, found an empty one"),
        ({"goal": ["x"]}, "user.goal: must be a text, found a list"),
        ([], "user: must be the goal as a text, or a mapping"),
        ({"goal": "{{nobody}}"}, "{{nobody}} is not a variable"),
    ],
)
def test_wrong_cases_are_named_by_their_place(tmp_path: Path, user: Any, message: str) -> None:
    write(tmp_path, "http://127.0.0.1:1/v1", [{**case("a"), "user": user}])
    ended = evalq(*CHECKS, cwd=tmp_path)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert "cases.json:" in ended.stderr


def test_a_judge_sees_the_conversation_and_loses_what_the_user_spoils(
    service: tuple[Agent, str], tmp_path: Path
) -> None:
    """One judge is asked about the user of each conversation, and people's labels correct what it finds."""
    agent, url = service
    asked: list[str] = []

    def reply(path: str, data: Any) -> dict[str, Any]:
        if data["model"] != "referee":
            return model(path, data)
        prompt = data["messages"][-1]["content"]
        asked.append(prompt)
        verdict = {"marker": marker_in(prompt), "pass": "rain Ulsan" not in prompt, "reason": "It never says Ulsan."}
        return completion(Says(text=json.dumps(verdict)))

    agent.reply = reply
    rubric = {"rubric": "The user never says Ulsan.", "about": "user", "name": "kept to its part"}
    checks: list[dict[str, Any]] = [{"contains": "I hear"}, rubric]
    write(tmp_path, url, [case("a", "Oslo", *checks), case("b", "Ulsan", *checks)])
    entries = json.loads((tmp_path / "targets.yaml").read_text())["targets"]
    referee = {**entries["customer"], "model": "referee"}
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {**entries, "referee": referee}}))
    ended = evalq(*CHECKS, "--judge", "referee", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert len(asked) == 2
    assert all("How is the weather in Daegu?" in prompt and "I hear: rain" in prompt for prompt in asked)
    results = json.loads((tmp_path / "run/report.json").read_bytes())["results"]
    assert results["outputs"] == {"total": 2, "passed": 1, "failed": 0, "errors": 1, "lost_by_user": 1}
    assert results["users"]["simulators"][0]["faults"] == {"check": 1}
    # People see it otherwise: both users kept to their parts.
    labels = "case,check,passed\na,kept to its part,true\nb,kept to its part,true\n"
    (tmp_path / "labels.csv").write_text(labels)
    again = ("checks", "cases.json", "--outputs", "run/judged.jsonl", "--labels", "labels.csv", "--out", "labelled")
    ended = evalq(*again, "-q", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    corrected = json.loads((tmp_path / "labelled/report.json").read_bytes())["results"]["users"]["corrected"]
    assert (corrected["labels"], corrected["pass_rate"], corrected["high"]) == (2, 1.0, 1.0)


def test_an_estimate_says_how_often_users_speak(service: tuple[Agent, str], tmp_path: Path) -> None:
    agent, url = service
    write(tmp_path, url, [case("a", max_turns=4), case("b")])
    ended = evalq(*CHECKS[:-3], "--repeat", "3", "--dry-run", cwd=tmp_path)
    assert "simulated users speak at most 42 times in 6 of them" in ended.stdout
    assert not agent.requests


def test_turns_and_a_user_contradict_each_other(tmp_path: Path) -> None:
    write(tmp_path, "http://127.0.0.1:1/v1", [{**case("a"), "turns": ["And now?"]}])
    ended = evalq(*CHECKS, cwd=tmp_path)
    assert (ended.returncode, "cases[0].turns: give `user`" in ended.stderr) == (2, True)


def test_conversations_that_the_user_loses_are_no_go_and_blame_nobody_else(
    service: tuple[Agent, str], tmp_path: Path
) -> None:
    """Against a run that answered all: a gate that does not look at what is missing would call it as good."""
    agent, url = service
    agent.reply = model
    write(tmp_path, url, [case(f"c{n}", "Oslo") for n in range(12)])
    (tmp_path / "policy.yaml").write_text("gates: [{metric: checks.pass_rate, max_drop: 0.5}]\n")
    assert evalq(*CHECKS[:-1], "base", cwd=tmp_path).returncode == 0

    def silent(path: str, data: Any) -> dict[str, Any]:
        return completion(Says(text="")) if data["model"] == "customer" else model(path, data)

    agent.reply = silent
    assert evalq(*CHECKS, cwd=tmp_path).returncode == 3
    decided = evalq("gate", "run", "--baseline", "base", "--policy", "policy.yaml", cwd=tmp_path)
    assert decided.returncode == 3, decided.stdout
    assert decided.stdout.startswith("# INCONCLUSIVE")
    assert "The server, the network, a worker or the simulated user lost 12 of 12 answers" in decided.stdout
