"""Sweeps that are gone on with: what others recorded or still record for them is never thrown away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agents.server import running_agent, write_golden
from tests.integration.harness import Server, evalq, info, running_fleet, start_evalq, wait_until
from tests.integration.test_sweeps import CASES, outputs, replays, sweep, write_targets
from workers.register import Register


def recorded(server: Server) -> int:
    """Outputs in the ledger of the only sweep."""
    keys = list(server.client.scan_iter("evalq:sweep:*:recorded"))
    return int(server.client.scard(keys[0])) if keys else 0


def called_by(server: Server) -> set[str]:
    """Targets that somebody calls."""
    return {name for caller in Register(server.client).callers().values() for name in caller.targets}


def test_what_a_fleet_recorded_is_collected_without_it(tmp_path: Path, server: Server) -> None:
    """The fleet of a detached sweep may be gone, or call others by now: what it paid for is there."""
    write_golden(tmp_path / "golden.json", CASES)
    (tmp_path / "other.yaml").write_text(json.dumps({"targets": {"other": {"kind": "command", "argv": ["cat"]}}}))
    with running_agent() as (agent, url):
        write_targets(tmp_path, url)
        with running_fleet(server.url, tmp_path) as fleet:
            fleet.add(0, "--calls", "10", "--targets", "targets.yaml")
            done = sweep(tmp_path, "--repeat", "5", "--out", "run", "--detach", EVALQ_BROKER=server.url)
            assert done.returncode == 0, done.stderr
            wait_until(lambda: recorded(server) == 30, "all is recorded")
        with running_fleet(server.url, tmp_path) as fleet:
            fleet.add(1, "--calls", "10", "--targets", "other.yaml")
            wait_until(lambda: called_by(server) == {"other"}, "only the other fleet is there")
            done = evalq("watch", "run", "--format", "none", cwd=tmp_path, EVALQ_BROKER=server.url)
        assert done.returncode == 0, done.stderr
        assert sum(agent.calls.values()) == 30
    replays(tmp_path, tmp_path / "run")


def test_a_command_that_cannot_go_on_leaves_the_folder_to_the_one_that_does(tmp_path: Path) -> None:
    """A second resume is refused, also while nothing is recorded yet; the first one's folder stays."""
    write_golden(tmp_path / "golden.json", {"one": {"share": 1.0}})
    with running_agent() as (agent, url):
        agent.latency = 5.0
        write_targets(tmp_path, url)
        args = (
            "vs",
            "golden.json",
            "--target",
            "chat",
            "--targets",
            "targets.yaml",
            "--format",
            "none",
            "--out",
            "run",
        )
        producer = start_evalq(*args, cwd=tmp_path)
        wait_until(lambda: agent.at_once, "the call is in flight")
        second = evalq("resume", "run", "--targets", "targets.yaml", cwd=tmp_path)
        assert (second.returncode, "another evalq process is driving" in second.stderr) == (2, True), second.stderr
        assert producer.wait(60) == 0
    assert len(outputs(tmp_path / "run")) == 1
    assert info(tmp_path / "run")["state"] == "done"


@pytest.mark.parametrize(
    ("entry", "said"),
    [({"kind": "openai", "modle": "m"}, "modle: unknown key"), ({"kind": "soap"}, "targets.chat.kind: must be one of")],
)
def test_a_wrong_targets_file_is_told_once(tmp_path: Path, server: Server, entry: dict[str, Any], said: str) -> None:
    """By a command that calls from here, which leaves no folder, and by a worker, before either starts anything."""
    write_golden(tmp_path / "golden.json", CASES)
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"chat": entry}}))
    started = ("--broker", server.url, "--calls", "5", "--targets", "targets.yaml")
    for done in (
        sweep(tmp_path, "--out", "run"),
        evalq("worker", "--concurrency", "1", *started, cwd=tmp_path, seconds=20),
        evalq("worker", "--concurrency", "0", *started, cwd=tmp_path, seconds=20),
    ):
        assert done.returncode == 2, done.stderr
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_what_cannot_be_detached_leaves_no_folder(tmp_path: Path, server: Server) -> None:
    """It is refused before anything is written."""
    write_golden(tmp_path / "golden.json", CASES)
    for option in (("--stop", "when-decided"), ("--cache", "cache.sqlite")):
        done = sweep(tmp_path, "--out", "run", "--detach", *option, EVALQ_BROKER=server.url)
        assert (done.returncode, "neither --stop nor --cache" in done.stderr) == (2, True), done.stderr
        assert not (tmp_path / "run").exists()
