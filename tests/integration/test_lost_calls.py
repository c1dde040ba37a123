"""What dies with processes that call: `lost` is what its target saw begin, and no budget pays for anything else."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from evalq.workers.ledger.keys import SweepKeys
from tests.agents.server import Agent, running_agent, write_golden
from tests.integration.harness import Server, clean_environment, evalq, info, running_fleet, wait_until
from tests.integration.test_sweeps import outputs, write_targets
from tests.portions import some

LEASE = 7.0
"""Seconds. It lasts over the five for which a busy machine may let a process wait."""
OF_SHORT_LEASE = f"""
from evalq.workers.callers.main import main
from evalq.workers.settings import Timings
raise SystemExit(main(Timings(call_lease={LEASE})))
"""
AT_ONCE = 3


@pytest.fixture
def service() -> Iterator[tuple[Agent, str]]:
    """A server that obeys."""
    with running_agent() as started:
        yield started


@contextlib.contextmanager
def calling(folder: Path, server: Server, calls: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that calls for the length of a block, and is killed at its end: SIGKILL."""
    environment = clean_environment(
        EVALQ_BROKER=server.url, EVALQ_TARGETS=str(folder / "targets.yaml"), EVALQ_CALLS=str(calls)
    )
    process = subprocess.Popen([sys.executable, "-c", OF_SHORT_LEASE], env=environment, cwd=folder)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def held(server: Server, folder: Path) -> int:
    """Calls that the ledger has given to somebody."""
    return int(server.client.hlen(SweepKeys.of(info(folder)["run"]).held))


def seen(agent: Agent, least: int) -> bool:
    """Whether its target has seen so many calls begin."""
    return agent.calls.total() >= least


def detach(folder: Path, server: Server, repeats: int, *budget: str) -> None:
    """Leave a sweep of five cases to the fleet."""
    write_golden(folder / "golden.json", {f"C{number}": {"share": 1.0} for number in range(5)})
    run = ("vs", "golden.json", "--target", "chat", "--repeat", str(repeats), "--detach", "--out", "run", *budget)
    done = evalq(*run, cwd=folder, EVALQ_BROKER=server.url)
    assert done.returncode == 0, done.stderr


def finish(folder: Path, server: Server) -> dict[str, int]:
    """Have a fleet do the rest; what the run tells of its calls."""
    with running_fleet(server.url, folder) as fleet:
        fleet.add(1, "--calls", "20", "--targets", "targets.yaml")
        done = evalq("watch", "run", "--format", "none", cwd=folder, EVALQ_BROKER=server.url)
    assert done.returncode == 0, done.stderr
    message: dict[str, int] = info(folder / "run")["calls"]
    return message


@pytest.mark.parametrize("budget", some([0, 40], of=2))
def test_what_had_not_begun_is_not_lost_with_a_killed_process(
    tmp_path: Path, server: Server, service: tuple[Agent, str], budget: int
) -> None:
    """Two processes in turn hold 20 calls, of which their target takes three at once, and are killed: six are lost, and
    a budget of calls has room for all others.
    """
    agent, url = service
    agent.ready = lambda: False
    write_targets(tmp_path, url, max_concurrency=AT_ONCE)
    detach(tmp_path, server, 10, *(("--max-calls", str(budget)) if budget else ()))
    for begun in (AT_ONCE, 2 * AT_ONCE):
        with calling(tmp_path, server, 20):
            wait_until(partial(seen, agent, begun), "as many as may be are in flight")
            wait_until(lambda: held(server, tmp_path / "run") >= 20, "many more are held")
    agent.ready = lambda: True
    message = finish(tmp_path, server)
    assert message["lost"] == 2 * AT_ONCE == agent.calls.total() - message["recorded"]
    assert message["attempts"] == agent.calls.total() == (budget or 50 + 2 * AT_ONCE)
    assert len(outputs(tmp_path / "run")) == message["recorded"]


def test_attempts_that_wait_to_be_made_again_are_lost_and_their_next_ones_are_not(
    tmp_path: Path, server: Server, service: tuple[Agent, str]
) -> None:
    """Each call has failed once and rests before its next attempt, which is granted and never made."""
    agent, url = service
    failing = {"do": "raw", "status": 500, "body": "{}", "times": 1}
    write_targets(tmp_path, url, retries={"server": {"times": 2, "wait_seconds": 3600}})
    cases = [
        {"id": f"C{n}", "input": json.dumps({**failing, "n": n}), "checks": [{"max-latency": 600}]} for n in range(12)
    ]
    (tmp_path / "checks.json").write_text(json.dumps({"cases": cases}))
    run = (
        "checks",
        "checks.json",
        "--target",
        "chat",
        "--repeat",
        "1",
        "--detach",
        "--out",
        "run",
        "--max-calls",
        "24",
    )
    done = evalq(*run, cwd=tmp_path, EVALQ_BROKER=server.url)
    assert done.returncode == 0, done.stderr
    keys = SweepKeys.of(info(tmp_path / "run")["run"])
    with calling(tmp_path, server, 20):
        wait_until(lambda: server.client.hlen(keys.retries) == 12, "all are granted another attempt")
    assert agent.calls.total() == 12
    message = finish(tmp_path, server)
    assert (message["lost"], message["recorded"], message["attempts"]) == (12, 12, 24)
    assert agent.calls.total() == 24


def test_what_a_killed_process_reported_to_nobody_is_lost_at_any_moment(
    tmp_path: Path, server: Server, service: tuple[Agent, str]
) -> None:
    """Killed wherever it is, at full speed: what is told covers what was paid, and no budget is exceeded."""
    agent, url = service
    agent.latency = 0.02
    write_targets(tmp_path, url, max_concurrency=8)
    detach(tmp_path, server, 60, "--max-calls", "250")
    for paid in (20, 60, 110):
        with calling(tmp_path, server, 40):
            wait_until(partial(seen, agent, paid), "it calls")
    message = finish(tmp_path, server)
    assert agent.calls.total() <= message["attempts"] == 250
    assert agent.calls.total() - message["recorded"] - message["repaid"] <= message["lost"] <= 3 * 8


def test_a_budget_that_was_lost_with_a_killed_process_ends_who_watches(
    tmp_path: Path, server: Server, service: tuple[Agent, str]
) -> None:
    """There is no output, and nobody will make a report: that is reported, and a larger budget makes the calls."""
    agent, url = service
    agent.ready = lambda: False
    write_targets(tmp_path, url, max_concurrency=AT_ONCE)
    detach(tmp_path, server, 1, "--max-calls", str(AT_ONCE))
    with calling(tmp_path, server, 20):
        wait_until(partial(seen, agent, AT_ONCE), "the whole budget is in flight")
    agent.ready = lambda: True
    with running_fleet(server.url, tmp_path) as fleet:
        fleet.add(1, "--calls", "20", "--targets", "targets.yaml")
        done = evalq("watch", "run", "--format", "none", cwd=tmp_path, EVALQ_BROKER=server.url)
        assert (done.returncode, "the budget" in done.stderr) == (5, True), done.stderr
        assert agent.calls.total() == AT_ONCE
        more = ("resume", "run", "--max-calls", "10", "--format", "none")
        done = evalq(*more, cwd=tmp_path, EVALQ_BROKER=server.url)
        assert done.returncode == 0, done.stderr
    message = info(tmp_path / "run")["calls"]
    assert (message["recorded"], message["lost"], message["attempts"]) == (5, AT_ONCE, 5 + AT_ONCE)
