"""Sweeps whose target cannot be called, by one process or by all: they wait with words, and end with a reason."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.server import Agent, running_agent, write_golden
from tests.integration.harness import PATIENCE, Fleet, Server, evalq, info, running_fleet, start_evalq, wait_until
from tests.integration.test_sweeps import CASES, outputs, write_targets


@pytest.fixture
def service() -> Iterator[tuple[Agent, str]]:
    """A server that obeys."""
    with running_agent() as started:
        yield started


@pytest.fixture
def callers(server: Server, tmp_path: Path) -> Iterator[Fleet]:
    """Processes that call, and one that evaluates."""
    with running_fleet(server.url, tmp_path) as fleet:
        yield fleet


def test_a_dead_server_holds_the_calls_and_ends_the_sweep(tmp_path: Path, service: tuple[Agent, str]) -> None:
    """It is called by those in flight and a few probes, not by every call in turn; the sweep says so, ends with the
    reason, and once the server is back it resumes: each call is answered, and none is an error.
    """
    agent, url = service
    agent.dead = lambda: True
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url, retries={})
    args = ("vs", "golden.json", "--target", "chat", "--targets", "targets.yaml", "--calls", "20", "--repeat", "20")
    done = evalq(*args, "--max-calls", "120", "--out", "run", "--format", "none", cwd=tmp_path, EVALQ_DOWN_SECONDS="6")
    assert done.returncode == 3, done.stderr
    assert "waiting: 'chat' does not answer: " in done.stderr
    assert "the calls stopped at chat: it does not answer: " in done.stderr
    assert "the connection was cut" in done.stderr
    assert "evalq resume" in done.stderr
    assert agent.cut <= 20 + 10 + 5, "calls in flight, each once and the first few again, and probes"
    assert outputs(tmp_path / "run") == []
    agent.dead = lambda: False
    done = evalq("resume", "run", "--targets", "targets.yaml", "--format", "none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(outputs(tmp_path / "run")) == 120
    assert info(tmp_path / "run")["calls"]["errors"] == 0


def test_a_server_that_comes_back_is_called_on(tmp_path: Path, service: tuple[Agent, str]) -> None:
    """A probe finds out within seconds: no call bears what the server did, and nobody has to do anything."""
    agent, url = service
    message = threading.Event()
    agent.dead = lambda: not message.is_set()
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url, retries={})
    args = ("vs", "golden.json", "--target", "chat", "--targets", "targets.yaml", "--repeat", "10", "--out", "run")
    running = start_evalq(*args, "--format", "none", cwd=tmp_path)
    assert running.stderr is not None
    assert any("waiting: 'chat' does not answer: " in line for line in running.stderr)
    assert agent.cut >= 10, "it takes so many to be sure"
    message.set()
    _, said = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, said
    assert info(tmp_path / "run")["calls"]["errors"] == 0
    assert len(outputs(tmp_path / "run")) == 60
    assert set(agent.calls.values()) == {10}


def test_one_process_without_the_key_takes_no_call(
    tmp_path: Path, server: Server, callers: Fleet, service: tuple[Agent, str]
) -> None:
    """It says so with its host, and another that has the key makes all of them; without that one the sweep ends by
    itself, with the host and what is missing there.
    """
    _, url = service
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url, api_key_env="MY_KEY")
    options = ("--calls", "20", "--targets", "targets.yaml")
    callers.add(0, *options)
    callers.add(1)
    args = ("vs", "golden.json", "--target", "chat", "--repeat", "10", "--format", "none", "--broker", server.url)
    alone = evalq(*args, "--out", "alone", cwd=tmp_path)
    assert alone.returncode == 3, alone.stderr
    missing = "target chat: the environment has no MY_KEY, which api_key_env names"
    assert "waiting: no process can call 'chat' now: " in alone.stderr
    assert missing in alone.stderr.splitlines()[-1]
    callers.add(0, *options, MY_KEY="k" * 20)
    both = evalq(*args, "--out", "both", cwd=tmp_path)
    assert both.returncode == 0, both.stderr
    assert len(outputs(tmp_path / "both")) == 60
    resumed = evalq("resume", "alone", "--format", "none", "--broker", server.url, cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr


def test_a_slow_pace_holds_no_slot(tmp_path: Path, service: tuple[Agent, str], server: Server, callers: Fleet) -> None:
    """Sweeps of a target that is called once a minute leave the slots of a process to those of a fast target."""
    agent, url = service
    write_golden(tmp_path / "golden.json", CASES)
    chat = {"kind": "openai", "base_url": url, "model": "m"}
    targets = {"chat": chat, **{f"slow{n}": {**chat, "model": f"m{n}", "requests_per_minute": 1} for n in range(3)}}
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": targets}))
    callers.add(1, "--calls", "3", "--targets", "targets.yaml")
    paced = []
    try:
        for name in ("slow0", "slow1", "slow2"):
            words = ("vs", "golden.json", "--target", name, "--repeat", "5", "--out", name, "--format", "none")
            paced.append(start_evalq(*words, cwd=tmp_path, EVALQ_BROKER=server.url))
        models = [f"m{n}" for n in range(3)]

        def called(of: list[str]) -> list[str]:
            return [each["body"]["model"] for each in agent.requests if each["body"]["model"] in of]

        wait_until(lambda: set(called(models)) == set(models), "each slow target was called")
        words = ("vs", "golden.json", "--target", "chat", "--repeat", "10", "--out", "fast", "--format", "none")
        done = evalq(*words, cwd=tmp_path, EVALQ_BROKER=server.url)
        assert done.returncode == 0, done.stderr
        assert len(called(["m"])) == 60
        assert len(called(models)) < 3 * 30
    finally:
        for process in paced:
            process.kill()
            process.wait()
