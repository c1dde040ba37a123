"""Parts of a suite at once (`parallel:`): their calls go together, and everything else is as if they came in turn."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.agents.server import Agent, running_agent
from tests.integration.harness import evalq, info, running_fleet, running_server, start_evalq, wait_until

TARGETS = ("one", "two", "three")
RUN = ("run", "suite.yaml", "--out", "runs")
HERE = ("--targets", "targets.yaml")


@pytest.fixture
def service() -> Iterator[tuple[Agent, str]]:
    """A server that echoes."""
    with running_agent() as (agent, url):
        agent.answer = lambda prompt: f"You asked: {prompt}"
        yield agent, url


def write(folder: Path, url: str, parallel: int, **targets: dict[str, Any]) -> None:
    """A matrix of three targets, one call at once each, and then a run of recorded outputs."""
    cases = [{"id": f"c{n}", "input": f"say {n}", "checks": [{"contains": f"say {n % 2}"}]} for n in range(3)]
    (folder / "cases.yaml").write_text(yaml.safe_dump({"cases": cases}))
    (folder / "told.jsonl").write_text(
        "".join(json.dumps({"case": f"c{n}", "output": "say 1"}) + "\n" for n in range(3))
    )
    runs = [
        {"evaluator": "checks", "name": "sup", "cases": "cases.yaml", "matrix": {"target": list(TARGETS)}},
        {"evaluator": "checks", "name": "told", "cases": "cases.yaml", "outputs": "told.jsonl"},
    ]
    (folder / "suite.yaml").write_text(yaml.safe_dump({"suite": "s", "parallel": parallel, "runs": runs}))
    entry = {"kind": "openai", "base_url": url, "model": "m", "output": "text", "max_concurrency": 1}
    entries = {name: entry | targets.get(name, {}) for name in TARGETS}
    (folder / "targets.yaml").write_text(json.dumps({"targets": entries}))


def reports(folder: Path) -> dict[str, str]:
    """{name of a run's folder: its report, without what each run has of its own}."""
    return {path.name: shown((path / "report.md").read_text()) for path in sorted((folder / "runs").iterdir())}


def shown(text: str) -> str:
    """What a command shows, without times and ids."""
    return re.sub(r"\d{4}-\d{4}-\w{6}|[0-9a-f]{8,}|\d+\.\d+|\d{4}-\d\d-\d\d.\d\d:\d\d(:\d\d)?\S*", "#", text)


@pytest.mark.parametrize("fleet", [False, True])
def test_calls_of_three_targets_are_made_at_once_and_all_else_is_equal(
    fleet: bool, service: tuple[Agent, str], tmp_path: Path
) -> None:
    """All three call before any is answered. Reports, folders and output are those of one after another."""
    agent, url = service
    one, other = tmp_path / "in-turn", tmp_path / "at-once"
    for folder, parallel in ((one, 1), (other, 3)):
        folder.mkdir()
        write(folder, url, parallel)
    in_turn = evalq(*RUN, *HERE, cwd=one)
    assert in_turn.returncode == 0, in_turn.stderr
    agent.busiest, agent.ready = 0, lambda: False
    if fleet:
        with running_server(tmp_path) as server, running_fleet(server.url, other) as workers:
            workers.add(1, "--calls", "8", "--targets", "targets.yaml")
            at_once = _ends(agent, start_evalq(*RUN, cwd=other, EVALQ_BROKER=server.url))
    else:
        at_once = _ends(agent, start_evalq(*RUN, *HERE, cwd=other))
    assert agent.busiest == 3
    assert shown(at_once) == shown(in_turn.stdout)
    assert reports(other) == reports(one)


def _ends(agent: Agent, process: Any) -> str:
    wait_until(lambda: agent.at_once == 3 or process.poll() is not None, "all three call")
    agent.ready = lambda: True
    out, said = process.communicate()
    assert process.returncode == 0, said
    return str(out)


def test_no_more_than_so_many_call_at_once(service: tuple[Agent, str], tmp_path: Path) -> None:
    """The third target is called when one of the others has no call left."""
    agent, url = service
    agent.latency = 0.02
    write(tmp_path, url, 2)
    done = evalq(*RUN, *HERE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert agent.busiest == 2
    assert agent.calls.total() == 9


def test_one_that_fails_leaves_the_others_their_reports(service: tuple[Agent, str], tmp_path: Path) -> None:
    """Exit code and message are those of one after another."""
    agent, url = service
    write(tmp_path, url, 3, two={"base_url": "http://127.0.0.1:9/v1"})
    done = evalq(*RUN, *HERE, cwd=tmp_path)
    assert done.returncode == 3
    assert len([line for line in done.stderr.splitlines() if line.startswith("evalq: checks: ")]) == 1, done.stderr
    states = {path.name: info(path)["state"] for path in (tmp_path / "runs").iterdir()}
    assert sorted(states.values()) == ["done", "done", "done", "stopped"]
    assert states["sup-target-two"] == "stopped"
    assert agent.calls.total() == 6


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all_and_each_can_be_resumed(number: int, service: tuple[Agent, str], tmp_path: Path) -> None:
    """Each says how, and pays again at most for the call that was in flight."""
    agent, url = service
    write(tmp_path, url, 3)
    agent.most = 3  # answers; then the rest hangs
    process = start_evalq(*RUN, *HERE, cwd=tmp_path)
    wait_until(lambda: agent.at_once == 3 and len(agent.log) == 3, "three calls hang")
    os.kill(process.pid, number)
    os.kill(process.pid, number)  # do not wait for them
    _, said = process.communicate()
    assert process.returncode == 130, said
    agent.most = 0
    folders = sorted((tmp_path / "runs").iterdir())
    assert [folder.name for folder in folders] == [f"sup-target-{name}" for name in sorted(TARGETS)]
    for folder in folders:
        assert f"evalq resume {folder.relative_to(tmp_path)}" in said
        done = evalq("resume", folder, *HERE, "--format", "none", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert info(folder)["calls"]["recorded"] == 3
    assert agent.calls.total() <= 9 + 3
