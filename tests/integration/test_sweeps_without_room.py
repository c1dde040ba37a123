"""Sweeps whose disk fills up: what was paid for and could not be kept is counted, and budgets hold over it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agents.server import Agent, running_agent, write_golden
from tests.doors.test_disk import ROOT, mounted, plain, remount
from tests.integration.harness import Server, evalq, info, running_fleet, running_server
from tests.integration.test_sweeps import CASES, write_targets

LONG = "x" * 3000


def swept(folder: Path, disk: Path, *more: str, **environment: str) -> tuple[int, str]:
    """A sweep into the small disk; (exit code, standard error)."""
    words = ("vs", "golden.json", "--target", "chat", "--targets", "targets.yaml", "--repeat", "100", "--calls", "40")
    done = evalq(*words, *more, "--out", disk / "run", "--format", "none", cwd=folder, **environment)  # type: ignore[arg-type]  # no key is `seconds`
    return done.returncode, done.stderr


def answering(agent: Agent) -> None:
    """Long answers: 600 of them need more than a small disk has."""
    agent.answer = lambda prompt: json.dumps({"long": LONG})
    agent.keep_requests = False


@ROOT
@pytest.mark.parametrize("kib", [300, 500])
def test_what_a_full_disk_lost_is_counted_and_no_budget_is_exceeded(tmp_path: Path, kib: int) -> None:
    """With a server of the command's own, which goes with it: each call that is paid again counts as lost, attempts are
    those that the agent served, and they never exceed --max-calls, however often the disk fills.
    """
    write_golden(tmp_path / "golden.json", CASES)
    with mounted(tmp_path / "disk", f"size={kib}k") as disk, running_agent() as (agent, url):
        answering(agent)
        write_targets(tmp_path, url)
        code, said = swept(tmp_path, disk, "--max-calls", "500")
        assert code == 3, said
        assert "No space left on device" in said
        plain(said)
        first = agent.calls.total()
        remount(disk, f"size={kib + 300}k")
        done = evalq("resume", disk / "run", "--targets", "targets.yaml", "--format", "none", cwd=tmp_path)
        assert done.returncode == 3, done.stderr
        assert first <= agent.calls.total() <= 500
        remount(disk, "size=40m")
        done = evalq("resume", disk / "run", "--targets", "targets.yaml", "--format", "none", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert agent.calls.total() <= 500
        facts = info(disk / "run")["calls"]
        # The last calls of each command may have been cut with their connection, after the agent had begun them.
        assert facts["attempts"] >= agent.calls.total()
        assert facts["lost"] >= agent.calls.total() - facts["recorded"] > 0
        assert facts["lost"] <= facts["attempts"] - facts["recorded"]


@ROOT
def test_a_server_of_its_own_keeps_what_a_full_disk_could_not(tmp_path: Path) -> None:
    """Where the server outlives the command, a resume takes the outputs from there: nothing is paid twice."""
    write_golden(tmp_path / "golden.json", CASES)
    with (
        running_server(tmp_path) as server,
        running_fleet(server.url, tmp_path) as fleet,
        mounted(tmp_path / "disk", "size=900k") as disk,
        running_agent() as (agent, url),
    ):
        fleet.add(1)
        answering(agent)
        write_targets(tmp_path, url)
        code, said = swept(tmp_path, disk, EVALQ_BROKER=server.url)
        assert code == 3, said
        remount(disk, "size=40m")
        where = ("--broker", server.url, "--targets", "targets.yaml", "--calls", "40")
        done = evalq("resume", disk / "run", *where, "--format", "none", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert agent.calls.total() == 600
        assert info(disk / "run")["calls"]["lost"] == 0


@ROOT
def test_a_disk_without_room_for_the_last_count_makes_no_call(tmp_path: Path) -> None:
    """The room is taken before the first call, so that no paid call can be one that nothing counts."""
    write_golden(tmp_path / "golden.json", CASES)
    with mounted(tmp_path / "disk", "size=72k") as disk, running_agent() as (agent, url):
        answering(agent)
        write_targets(tmp_path, url)
        code, said = swept(tmp_path, disk)
        assert code == 3, said
        assert "No space left on device" in said
        assert agent.calls.total() == 0


def test_no_reserve_is_left(tmp_path: Path, server: Server) -> None:
    """A sweep that is done leaves no file of it."""
    write_golden(tmp_path / "golden.json", {"one": {"share": 1.0}})
    with running_agent() as (_, url):
        write_targets(tmp_path, url)
        done = evalq(
            "vs", "golden.json", "--target", "chat", "--targets", "targets.yaml", "--repeat", "2", "--out", "run",
            cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert not list((tmp_path / "run").rglob("*.reserve"))
