"""Processes that call and have to end: what is in flight stays theirs, and is paid for once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.server import Agent, running_agent, write_golden
from tests.integration.harness import PATIENCE, Server, clean_environment, evalq, running_fleet, wait_until
from tests.integration.test_sweeps import write_targets

LEASE = 7
"""Seconds. It lasts over the five for which a busy machine may let a process wait."""
OF_SHORT_LEASE = f"""
from evalq.workers.callers.main import main
from evalq.workers.settings import Timings
raise SystemExit(main(Timings(call_lease={LEASE})))
"""


@pytest.fixture
def service() -> Iterator[tuple[Agent, str]]:
    """A server that obeys."""
    with running_agent() as started:
        yield started


def test_calls_of_a_process_that_drains_for_long_are_not_made_by_another(
    tmp_path: Path, server: Server, service: tuple[Agent, str]
) -> None:
    """SIGTERM with four calls in flight that last longer than a lease: all are made once, the rest elsewhere."""
    agent, url = service
    agent.ready = lambda: False
    write_golden(tmp_path / "golden.json", {f"C{number}": {"share": 1.0} for number in range(4)})
    write_targets(tmp_path, url)
    settings = {"EVALQ_BROKER": server.url, "EVALQ_TARGETS": str(tmp_path / "targets.yaml")}

    def calling(calls: int) -> subprocess.Popen[bytes]:
        environment = clean_environment(**settings, EVALQ_CALLS=str(calls), EVALQ_SOFT_SHUTDOWN_SECONDS="100")
        return subprocess.Popen([sys.executable, "-c", OF_SHORT_LEASE], env=environment, cwd=tmp_path)

    run = ("vs", "golden.json", "--target", "chat", "--repeat", "2", "--detach", "--out", "run")
    done = evalq(*run, cwd=tmp_path, EVALQ_BROKER=server.url)
    assert done.returncode == 0, done.stderr
    callers = [calling(4)]
    try:
        wait_until(lambda: agent.at_once == 4, "calls are in flight")
        callers[0].terminate()
        callers.append(calling(20))
        wait_until(lambda: agent.at_once == 8, "another process makes the rest, and has room for more")
        began = server.client.time()[0]
        wait_until(lambda: server.client.time()[0] > began + LEASE, "each lease that was there then has passed")
        agent.ready = lambda: True
        assert callers[0].wait(PATIENCE) == 0
        with running_fleet(server.url, tmp_path) as fleet:
            fleet.add(1)
            done = evalq("watch", "run", "--format", "none", cwd=tmp_path, EVALQ_BROKER=server.url)
        assert done.returncode == 0, done.stderr
        assert sum(agent.calls.values()) == 8
    finally:
        for caller in callers:
            caller.kill()
            caller.wait()
