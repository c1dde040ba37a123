"""Live sweeps that two producers want, and what a killed one had begun: real processes, counted by their target."""

from __future__ import annotations

import json
import os
import shlex
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.server import Agent, running_agent, write_golden
from tests.integration.harness import PATIENCE, Server, evalq, info, running_fleet, start_evalq, wait_until
from tests.integration.midway import killed_with_all
from tests.integration.test_sweeps import CASES, outputs, replays, write_targets

SWEEP = ("vs", "golden.json", "--target", "chat", "--format", "none")


@pytest.fixture
def service() -> Iterator[tuple[Agent, str]]:
    """A server that obeys."""
    with running_agent() as started:
        yield started


def _of_two_folders(top: Path, url: str, server: Server) -> tuple[str, ...]:
    """A sweep's command for the folders ``a`` and ``b``, which have the same golden set."""
    write_targets(top, url)
    for name in ("a", "b"):
        (top / name).mkdir()
        write_golden(top / name / "golden.json", CASES)
    return (*SWEEP, "--repeat", "30", "--once", "k", "--out", "run", "--broker", server.url)


def test_twin_commands_pay_once_and_both_end(tmp_path: Path, server: Server, service: tuple[Agent, str]) -> None:
    """The same --once from two folders at one moment, over one fleet: no call is made twice, and both end."""
    agent, url = service
    agent.latency = 0.05
    command = _of_two_folders(tmp_path, url, server)
    with running_fleet(server.url, tmp_path) as fleet:
        fleet.add(1, "--calls", "8", "--targets", "targets.yaml")
        twins = [start_evalq(*command, cwd=tmp_path / name) for name in ("a", "b")]
        codes = {name: twin.wait(150) for name, twin in zip(("a", "b"), twins, strict=True)}
    assert codes == {"a": 0, "b": 0}
    assert agent.calls.total() == 30 * len(CASES)
    assert len({(tmp_path / name / "run" / "report.json").read_bytes() for name in codes}) == 1
    (driver,) = (run for name in codes if (run := tmp_path / name / "run").exists() and "calls" in info(run))
    message = info(driver)["calls"]
    assert (message["attempts"], message["repaid"], message["lost"]) == (agent.calls.total(), 0, 0)
    assert len(outputs(driver)) == agent.calls.total()
    replays(driver.parent, driver)


def test_a_sweep_that_another_finished_is_resumed_to_its_report(
    tmp_path: Path, server: Server, service: tuple[Agent, str]
) -> None:
    """A producer dies, the same command elsewhere takes its sweep over and ends: the first folder's resume says so, and
    has the same report. Its own outputs were called again there, which was told, and stay in its log of calls."""
    agent, url = service
    agent.ready = lambda: agent.calls.total() <= 90
    command = _of_two_folders(tmp_path, url, server)
    with running_fleet(server.url, tmp_path) as fleet:
        fleet.add(1, "--calls", "8", "--targets", "targets.yaml")
        first = start_evalq(*command, cwd=tmp_path / "a")
        wait_until(lambda: _recorded(tmp_path / "a" / "run"), "the first has outputs")
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
        second = start_evalq(*command, cwd=tmp_path / "b")
        wait_until((tmp_path / "b" / "run" / "driver").exists, "the second drives")
        agent.ready = lambda: True
        said = second.communicate(timeout=PATIENCE)[1]
        assert (second.returncode, "is called again" in said) == (0, True), said
    again = evalq("resume", "run", "--broker", server.url, "--format", "none", cwd=tmp_path / "a")
    assert (again.returncode, "finished by another command" in again.stderr) == (0, True), again.stderr
    assert len({(tmp_path / name / "run" / "report.json").read_bytes() for name in ("a", "b")}) == 1
    assert info(tmp_path / "a" / "run")["state"] == "done"
    message = info(tmp_path / "b" / "run")["calls"]
    assert message["attempts"] == agent.calls.total()
    assert message["recorded"] + message["repaid"] + message["lost"] == agent.calls.total()


def test_who_waits_leaves_a_sweep_to_its_driver_when_the_server_forgot_it(
    tmp_path: Path, server: Server, service: tuple[Agent, str]
) -> None:
    """The server comes back empty: the driver tells it all again, though the other may ask first."""
    agent, url = service
    agent.ready = lambda: agent.calls.total() <= 90
    command = _of_two_folders(tmp_path, url, server)
    with running_fleet(server.url, tmp_path) as fleet:
        fleet.add(1, "--calls", "8", "--targets", "targets.yaml")
        first = start_evalq(*command, cwd=tmp_path / "a")
        wait_until(lambda: _recorded(tmp_path / "a" / "run"), "the first has outputs")
        # However late the driver tells it all again, the other is not to take it for gone.
        second = start_evalq(*command, cwd=tmp_path / "b", EVALQ_DRIVER_SECONDS="600")
        said = second.stderr
        assert said is not None
        wait_until(lambda: "waiting for its report" in said.readline(), "the second waits")
        os.kill(first.pid, signal.SIGSTOP)
        try:
            server.kill()
            server.start()
            wait_until(lambda: _asked(server) > 50, "the second has asked it many times")
        finally:
            os.kill(first.pid, signal.SIGCONT)
        agent.ready = lambda: True
        assert [process.wait(PATIENCE) for process in (first, second)] == [0, 0]
    assert "calls" in info(tmp_path / "a" / "run")
    assert agent.calls.total() <= 30 * len(CASES) + 8
    assert len({(tmp_path / name / "run" / "report.json").read_bytes() for name in ("a", "b")}) == 1


@pytest.mark.parametrize("planned", [True, False], ids=["planned", "not yet planned"])
def test_who_has_paid_for_outputs_evaluates_them_whatever_the_server_has(
    tmp_path: Path, server: Server, service: tuple[Agent, str], planned: bool
) -> None:
    """A producer dies with all its outputs, the server loses all, and the same command elsewhere does it all anew: the
    first folder's resume, which no command took any more, evaluates what it has, and pays nothing."""
    agent, url = service
    command = (*_of_two_folders(tmp_path, url, server), "--chunk-size", "1")
    run = tmp_path / "a" / "run"
    with running_fleet(server.url, tmp_path) as fleet:
        fleet.add(0, "--calls", "8", "--targets", "targets.yaml")
        first = start_evalq(*command, cwd=tmp_path / "a")
        wait_until(lambda: _plans(run), "it has outputs and a plan, which nobody computes")
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
        if not planned:  # as one is that was killed a moment earlier
            (run / "manifest.jsonl").write_bytes((run / "manifest.jsonl").read_bytes().splitlines(keepends=True)[0])
        server.client.flushall()
        fleet.add(1)
        second = evalq(*command, cwd=tmp_path / "b")
        assert second.returncode == 0, second.stderr
        paid = agent.calls.total()
        again = evalq("resume", "run", "--broker", server.url, "--format", "none", cwd=tmp_path / "a")
    assert (again.returncode, agent.calls.total()) == (0, paid), again.stderr
    assert len(outputs(run)) == info(run)["calls"]["attempts"] == 30 * len(CASES)
    replays(run.parent, run)


def _plans(run: Path) -> bool:
    path = run / "manifest.jsonl"
    return path.exists() and b'"chunk":' in path.read_bytes()


def _asked(server: Server) -> int:
    """How many scripts the server has run since it was started."""
    return int(server.client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0))


def _recorded(run: Path) -> bool:
    path = run / "calls.jsonl"
    return path.exists() and path.read_bytes().count(b'{"call"') > 10


def _begun(run: Path) -> int:
    """How many calls the folder knows to have been begun."""
    path = run / "calls.jsonl"
    lines = path.read_bytes().splitlines() if path.exists() else []
    known = [int(json.loads(line)["begun"]) for line in lines if line.startswith(b'{"begun"')]
    return known[-1] if known else 0


def test_what_a_killed_command_had_in_flight_counts_against_its_budget(
    tmp_path: Path, service: tuple[Agent, str]
) -> None:
    """SIGKILL with its own server and its own calls in flight: they may have been paid, so they were."""
    agent, url = service
    agent.ready = lambda: agent.calls.total() <= 12
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url)
    here = ("--targets", "targets.yaml", "--calls", "4")
    producer = start_evalq(*SWEEP, "--repeat", "20", "--max-calls", "24", "--out", "run", *here, cwd=tmp_path)
    wait_until(lambda: agent.at_once == 4 and _begun(tmp_path / "run") == agent.calls.total() > 12, "all is noted")
    killed_with_all(producer)
    paid = agent.calls.total()
    agent.ready = lambda: True
    done = evalq("resume", "run", "--format", "none", *here, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert agent.calls.total() == 24
    message = info(tmp_path / "run")["calls"]
    assert (message["attempts"], message["lost"], message["recorded"]) == (24, 4, 20)
    assert paid < 24
    assert Counter(line["case"] for line in outputs(tmp_path / "run")).total() == 20


def _hint(said: str) -> list[str]:
    """The command that an error names."""
    return shlex.split(said.rpartition("evalq ")[2].partition(" (")[0])


def test_what_a_fleet_calls_is_neither_called_again_nor_ended_without_its_server(
    tmp_path: Path, server: Server, service: tuple[Agent, str]
) -> None:
    """Of a sweep that was left to a fleet the folder knows nothing: what it is asked names the server, and is refused
    without it, with the command that does it."""
    agent, url = service
    cancelled = threading.Event()
    agent.ready = cancelled.is_set
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url)
    with running_fleet(server.url, tmp_path) as fleet:
        fleet.add(1, "--calls", "8", "--targets", "targets.yaml")
        for name in ("resumed", "cancelled"):
            command = (*SWEEP, "--repeat", "20", "--out", name, "--broker", server.url, "--detach")
            assert evalq(*command, cwd=tmp_path).returncode == 0
        here = ("resume", "resumed", "--targets", "targets.yaml", "--format", "none")
        hints = {}
        for wrong in (("pause", "cancelled"), ("cancel", "cancelled"), here):
            refused = evalq(*wrong, cwd=tmp_path)
            assert (refused.returncode, server.url in refused.stderr) == (2, True), refused.stderr
            hints[wrong[0]] = _hint(refused.stderr)
        assert evalq(*hints["cancel"], cwd=tmp_path).returncode == 0
        cancelled.set()
        done = evalq(*hints["resume"], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert info(tmp_path / "cancelled")["state"] == "cancelled"
    assert len(outputs(tmp_path / "resumed")) == 20 * len(CASES)
    assert agent.calls.total() <= 20 * len(CASES) + 8, "the cancelled one's are made no more"
    assert info(tmp_path / "resumed")["calls"]["repaid"] == 0
    replays(tmp_path, tmp_path / "resumed")
