"""A suite's matrix over a real server: each combination asks with its own settings, and answers are never confused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.agents.server import Agent, running_agent
from tests.integration.harness import Fleet, Server, evalq, info, running_fleet, running_server, serves, wait_until

CASES = {"cases": [{"id": f"c{n}", "input": f"say {n}", "checks": [{"contains": "yes"}]} for n in range(3)]}
SUITE: dict[str, Any] = {
    "suite": "nightly",
    "runs": [
        {
            "evaluator": "checks",
            "name": "sup",
            "cases": "cases.yaml",
            "repeat": 2,
            "matrix": {
                "target": ["chat"],
                "temperature": [0, 0.5],
                "prompt": {"plain": "{input}", "kind": {"template": "Please {input}", "system": "Be kind."}},
                "exclude": [{"temperature": 0.5, "prompt": "kind"}],
            },
        }
    ],
}


@pytest.fixture
def service() -> Iterator[tuple[Agent, str]]:
    with running_agent() as started:
        started[0].answer = lambda prompt: "yes" if prompt.startswith("Please") else "no"
        yield started


@pytest.fixture
def here(tmp_path: Path, service: tuple[Agent, str]) -> Path:
    """A folder with cases, a suite of three combinations, and a targets file that lets temperature be chosen."""
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(CASES))
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(SUITE, sort_keys=False))
    chat = {"kind": "openai", "base_url": service[1], "model": "m", "output": "text"}
    chat["variable"] = {"temperature": {"min": 0, "max": 1}}  # type: ignore[assignment]  # a target's entry
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"chat": chat}}))
    return tmp_path


def _outputs(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "outputs.jsonl").read_text().splitlines()]


def test_each_combination_asks_with_its_own_settings(here: Path, service: tuple[Agent, str]) -> None:
    """What is sent, what is recorded and what is shown at the end; answers are reused by settings and prompts alone."""
    agent, _ = service
    done = evalq("run", "suite.yaml", "--targets", "targets.yaml", "--out", "runs", cwd=here)
    assert done.returncode == 0, done.stderr
    bodies = [request["body"] for request in agent.requests]
    sent = [(body["temperature"], [message["content"] for message in body["messages"]]) for body in bodies]
    assert len(sent) == 18
    assert {(heat, len(said)) for heat, said in sent} == {(0, 1), (0, 2), (0.5, 1)}
    assert all(said[0] == "Be kind." and said[1].startswith("Please say") for _, said in sent if len(said) == 2)
    folders = sorted((here / "runs").iterdir())
    names = ["sup-target-chat-temperature-0-prompt-kind", "sup-target-chat-temperature-0-prompt-plain"]
    assert [folder.name for folder in folders] == [*names, "sup-target-chat-temperature-0.5-prompt-plain"]
    kind, plain, hot = ({(line["config"], line["prompt"], line["target"]) for line in _outputs(f)} for f in folders)
    assert len({config for config, _, _ in kind | plain}) == 1
    assert {config for config, _, _ in hot}.isdisjoint({config for config, _, _ in plain})
    assert {prompt for _, prompt, _ in kind}.isdisjoint({prompt for _, prompt, _ in plain})
    assert {target for _, _, target in hot} == {"chat[temperature=0.5]"}
    assert info(folders[0])["name"] == "sup[target=chat,temperature=0,prompt=kind]"
    table = done.stdout[done.stdout.index("# sup\n") :].rstrip().splitlines()
    assert len(table) == 7, table
    assert table[2].startswith("| target | temperature | prompt | pass\\_rate (95 %) |")
    assert any(line.startswith("| chat | 0 | kind | 1 (0.") for line in table)
    assert any(line.startswith("| chat | 0.5 | plain | 0 (0 to 0.") for line in table)
    # The whole once more, of what was recorded: each combination finds its own answers, and nobody is called.
    suite = json.loads(json.dumps(SUITE))
    suite["runs"][0]["reuse"] = [f"runs/{folder.name}" for folder in folders]
    (here / "again.yaml").write_text(yaml.safe_dump(suite, sort_keys=False))
    again = evalq("run", "again.yaml", "--targets", "targets.yaml", "--out", "more", "--format", "json", cwd=here)
    assert (again.returncode, len(agent.requests)) == (0, 18), again.stderr
    rows = json.loads(again.stdout)["matrices"]["sup"]
    assert [(row["outputs"], row["reused"]) for row in rows] == [(6, 6)] * 3
    assert {row["measures"]["pass_rate"]["mean"] for row in rows} == {0.0, 1.0}


def test_a_run_of_a_suite_knows_who_was_called(here: Path) -> None:
    """It is extended, as one that a command of its own began, without its targets file being named again."""
    suite = yaml.safe_load((here / "suite.yaml").read_text())
    del suite["runs"][0]["matrix"], suite["runs"][0]["name"]
    suite["runs"][0]["target"] = "chat"
    (here / "suite.yaml").write_text(yaml.safe_dump(suite))
    done = evalq("run", "suite.yaml", "--targets", "targets.yaml", "--out", "runs", "--format", "none", cwd=here)
    assert done.returncode == 0, done.stderr
    done = evalq("extend", "runs/checks", "--repeat", "3", "--out", "more", "--format", "none", cwd=here)
    assert done.returncode == 0, done.stderr
    assert len(_outputs(here / "more")) == 9


def test_a_fleets_own_file_decides_what_may_be_chosen(here: Path, service: tuple[Agent, str]) -> None:
    """A suite that asks a fleet for more than its targets file lists is refused with the reason, before any call; an
    extension keeps choices and words.
    """
    agent, _ = service
    with running_server(here) as server, running_fleet(server.url, here) as fleet:
        _serving(fleet, server)
        for axis, reason in (
            ({"temperature": [2]}, "temperature is a number from 0 to 1, and 2 is not"),
            ({"base_url": ["evil"]}, "callers cannot override base_url"),
        ):
            run = {**SUITE["runs"][0], "matrix": {"target": ["chat"], **axis}}
            (here / "bad.yaml").write_text(yaml.safe_dump({"runs": [run]}))
            done = evalq("run", "bad.yaml", "--out", "bad", "--broker", server.url, cwd=here)
            assert (done.returncode, reason in done.stderr) == (2, True), done.stderr
        assert not agent.requests
        assert not list((here / "bad").glob("*"))
        suite = {**SUITE["runs"][0], "matrix": {**SUITE["runs"][0]["matrix"], "temperature": [0.50], "exclude": []}}
        (here / "good.yaml").write_text(yaml.safe_dump({"runs": [suite]}, sort_keys=False))
        done = evalq("run", "good.yaml", "--out", "good", "--broker", server.url, "--format", "none", cwd=here)
        assert (done.returncode, len(agent.requests)) == (0, 12), done.stderr
        kind = here / "good" / "sup-target-chat-temperature-0.5-prompt-kind"
        done = evalq("extend", kind, "--repeat", "3", "--out", "more", "--broker", server.url, cwd=here)
        assert (done.returncode, len(agent.requests)) == (0, 15), done.stderr
    assert all(request["body"]["temperature"] == 0.5 for request in agent.requests)
    assert next(m["content"] for m in agent.requests[-1]["body"]["messages"]) == "Be kind."


def _serving(fleet: Fleet, server: Server) -> None:
    fleet.add(1, "--calls", "4", "--targets", "targets.yaml")
    wait_until(lambda: serves(server), "it serves")
