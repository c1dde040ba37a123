"""One agent behind each kind of target: equal verdicts on what it did, and its cost as the server counts it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.agents import providers
from tests.agents.providers import Says
from tests.agents.server import Agent, running_agent
from tests.integration.harness import evalq, info

PRICE = {
    "prompt_per_million": 2.0, "cached_per_million": 0.2, "completion_per_million": 8.0, "per_call": 0.0001,
}  # fmt: skip
CASES = {"few": 2_000, "some": 20_000, "many": 60_000}
"""{case: its prompt tokens, of which nine in ten come from a cache}."""
COMPLETION = 500
CALLS = 20
CHECKS: list[dict[str, Any]] = [
    {"calls-tool": "search", "min": 19, "max": 19},
    {"calls-tool": "search", "arguments": {"page": 3}, "name": "third page"},
    {"tool-sequence": ["search", "search"], "order": "prefix"},
    {"tool-args": "search", "schema": {"required": ["query", "page"]}},
    {"tool-args": "search", "arguments": {"page": 7}, "which": 7, "name": "place"},
    {"tool-args": "book", "arguments": {"price": 9.5}, "tolerance": 0.01, "name": "price"},
    {"no-repeat": True},
    {"forbidden-tools": ["book"]},
    {"finish": "tool_calls"},
    {"max-tokens": 20_500},
    {"max-tokens": COMPLETION - 1, "of": "completion", "name": "completion"},
    {"max-cost": 0.0162},
]


def calls_of_tools(case: str) -> list[dict[str, Any]]:
    """Twenty calls, other ones for each case."""
    searches = [
        {"name": "search", "arguments": {"query": case, "page": page % (18 if case == "many" else 19)}}
        for page in range(CALLS - 1)
    ]
    return [*searches, {"name": "book", "arguments": {"price": 9.504 if case == "few" else 9.6}}]


def true_cost(case: str) -> float:
    """What the server counts for a call."""
    prompt = CASES[case]
    cached = prompt * 9 // 10
    return (2.0 * (prompt - cached) + 0.2 * cached + 8.0 * COMPLETION) / 1e6 + 0.0001


def completion(case: str) -> dict[str, Any]:
    """A reply of chat completions."""
    calls = [
        {"id": f"c{at}", "type": "function", "function": {**call, "arguments": json.dumps(call["arguments"])}}
        for at, call in enumerate(calls_of_tools(case))
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    usage = {
        "prompt_tokens": CASES[case],
        "completion_tokens": COMPLETION,
        "prompt_tokens_details": {"cached_tokens": CASES[case] * 9 // 10},
        "completion_tokens_details": {"reasoning_tokens": COMPLETION // 2},
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return {"id": "c", "object": "chat.completion", "model": "m-1", "choices": [choice], "usage": usage}


def envelope(case: str) -> dict[str, Any]:
    """The same as an envelope."""
    reply = completion(case)
    return {"messages": [reply["choices"][0]["message"]], "finish": "tool_calls", "usage": reply["usage"]}


def case_in(body: Any) -> str:
    """The case of a request: the prompt is its name, wherever its API has it."""
    sent = json.dumps(body)
    return next(case for case in CASES if f'"{case}"' in sent)


def says(case: str) -> Says:
    """The same for the servers of other APIs."""
    cached = CASES[case] * 9 // 10
    calls = tuple((call["name"], call["arguments"]) for call in calls_of_tools(case))
    return Says(text=None, calls=calls, fresh=CASES[case] - cached, cached=cached, output=COMPLETION)


PROGRAM = """
import json
import sys
import urllib.request


def ask(prompt):
    body = json.dumps({"prompt": prompt}).encode()
    with urllib.request.urlopen(urllib.request.Request(URL, body)) as reply:
        return json.loads(reply.read())


def whole(prompt):
    import evalq

    return evalq.Answer(**ask(prompt))


def spoken(prompt):
    import evalq

    given = ask(prompt)
    yield from given.pop("messages")
    yield evalq.Answer(**given)


if __name__ == "__main__":
    print(json.dumps(ask(json.load(sys.stdin)["prompt"])))
"""
Target = Callable[[str], Mapping[str, Any]]
KINDS: dict[str, Target] = {
    "openai": lambda url: {"kind": "openai", "base_url": url, "model": "m"},
    "responses": lambda url: {"kind": "responses", "base_url": url, "model": "m"},
    "anthropic": lambda url: {"kind": "anthropic", "base_url": url, "model": "m"},
    "gemini": lambda url: {"kind": "gemini", "base_url": url, "model": "m"},
    "http": lambda url: {
        "kind": "http", "url": f"{url}/agent", "body": {"prompt": "{prompt}"}, "output": "envelope",
    },
    "command": lambda url: {
        "kind": "command", "argv": [sys.executable, "-I", "agent.py"], "output": "envelope",
    },
    "python": lambda url: {"kind": "python", "function": "agent:whole"},
    "messages": lambda url: {"kind": "python", "function": "agent:spoken"},
}  # fmt: skip
"""{name: the target, by the address of the server}: a further kind is a line here, and its wire in `_WIRES`."""


_WIRES: dict[str, Callable[[str], Any]] = {
    "/chat/completions": completion,
    "/responses": lambda case: providers.response(says(case)),
    "/messages": lambda case: providers.message(says(case)),
    ":generateContent": lambda case: providers.content(says(case)),
    "/agent": envelope,
}


def served(path: str, body: Any) -> Any:
    """The server's reply on the wire of a kind."""
    return next(reply for end, reply in _WIRES.items() if path.endswith(end))(case_in(body))


@pytest.fixture
def server() -> Iterator[tuple[Agent, str, list[str]]]:
    """The agent, its address, and the case of each call that it answered."""
    with running_agent() as (agent, url):
        cases: list[str] = []

        def reply(path: str, body: Any) -> Any:
            cases.append(case_in(body))
            return served(path, body)

        agent.reply = reply
        yield agent, url, cases


def write(folder: Path, url: str, target: Mapping[str, Any]) -> None:
    """The cases, the agent's program and the targets file."""
    listed = [{"id": case, "input": case, "checks": CHECKS} for case in CASES]
    (folder / "cases.yaml").write_text(json.dumps({"cases": listed}))
    (folder / "agent.py").write_text(f"URL = {url + '/agent'!r}\n{PROGRAM}")
    shared = {"price": PRICE, "max_concurrency": 1, "retries": {"server": {"times": 0}}}
    (folder / "targets.yaml").write_text(json.dumps({"targets": {"agent": {**target, **shared}}}))


def verdicts(run: Path) -> dict[str, Any]:
    """{case: the verdicts of its checks}; all repeats of a case have the same."""
    found: dict[str, Any] = {}
    for line in map(json.loads, (run / "records.jsonl").read_text().splitlines()):
        checks = {each["name"]: (each["passed"], each.get("error", "")) for each in line["checks"]}
        assert found.setdefault(line["id"], checks) == checks
    return found


WANTED = {
    "few": [True, True, True, True, False, True, True, False, True, True, False, True],
    "some": [True, True, True, True, False, False, True, False, True, True, False, True],
    "many": [True, True, True, True, False, False, False, False, True, False, False, False],
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_gives_the_same_verdicts_and_the_cost_that_the_server_counts(
    kind: str, server: tuple[Agent, str, list[str]], tmp_path: Path
) -> None:
    """Cached tokens have their own price; a budget ends within one call of what the server counted."""
    _, url, cases = server
    write(tmp_path, url, KINDS[kind](url))
    budget = 2.5 * sum(map(true_cost, CASES))
    done = evalq("checks", "cases.yaml", "--target", "agent", "--targets", "targets.yaml", "--repeat", "4",
                 "--max-cost", str(budget), "--calls", "1", "--out", "run", "--format", "none",
                 cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    counted = sum(map(true_cost, cases))
    calls = info(tmp_path / "run")["calls"]
    assert calls["ended"] == "spent"
    assert calls["cost"] == pytest.approx(counted, rel=0.01)
    dearest = max(map(true_cost, CASES))
    assert budget - dearest <= counted <= budget + dearest
    assert {case: [passed for passed, _ in found.values()] for case, found in verdicts(tmp_path / "run").items()} == {
        case: WANTED[case] for case in dict.fromkeys(cases)
    }
    # The same answers as recorded outputs.
    shutil.copy(tmp_path / "run" / "outputs.jsonl", tmp_path / "recorded.jsonl")
    done = evalq(
        "checks", "cases.yaml", "--outputs", "recorded.jsonl", "--out", "again", "--format", "none", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert verdicts(tmp_path / "again") == verdicts(tmp_path / "run")


def test_outputs_that_others_recorded_have_these_verdicts(tmp_path: Path) -> None:
    """A file in the form of an envelope, which states its cost."""
    write(tmp_path, "", {"kind": "command", "argv": ["cat"]})
    lines = [{"case": case, **envelope(case), "cost": true_cost(case)} for case in CASES]
    (tmp_path / "outputs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = evalq("checks", "cases.yaml", "--outputs", "outputs.jsonl", "--out", "run", "--format", "none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = verdicts(tmp_path / "run")
    assert {case: [passed for passed, _ in checks.values()] for case, checks in found.items()} == WANTED
