"""The calls that a process has of a sweep, over a real server and a real agent."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.model.calls import Prompt
from evalq.evalcore.version import code_version
from evalq.workers.callers.in_flight import InFlightCalls
from evalq.workers.callers.lanes import Lanes
from evalq.workers.callers.target_sessions import TargetSessions
from evalq.workers.ledger.sweep_model import SweepHeader
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.settings import Settings
from evalq.workers.targets import load_targets
from tests.agents.server import Agent, running_agent
from tests.integration.harness import PATIENCE, Server, running_server, wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of this test's own."""
    with running_server(tmp_path) as started:
        yield started


def test_a_call_that_is_being_made_is_not_made_twice(server: Server, tmp_path: Path) -> None:
    """A ledger that came back empty hands out again what this process has in flight: one call, and one record."""
    calls = SweepLedger(server.client, Settings(broker=server.url))
    header = SweepHeader("r", "t", code_version(), 1, 1)

    async def taken_twice(file: Path) -> None:
        async with TargetSessions(load_targets(file), server.client) as sessions:
            units = InFlightCalls(header, "p", await sessions.open("t"), calls, Lanes(5), asyncio.Event())
            units.prompts[0] = Prompt("c", "a", "q")
            for _ in range(2):
                server.client.flushall()
                calls.open(header)
                calls.offer("r", [units.prompts[0]])
                assert calls.claim("r", "p", 5, 600) == ("open", [0], [])
                units.start([0])
            await units.wait()
            await units.close()

    with running_agent() as (agent, url):
        file = tmp_path / "targets.yaml"
        file.write_text(json.dumps({"targets": {"t": {"kind": "openai", "base_url": url, "model": "m"}}}))
        asyncio.run(taken_twice(file))
        assert sum(agent.calls.values()) == 1
    look = calls.poll("r")
    assert look is not None
    assert (look.recorded, look.repaid, look.busy) == (1, 0, 0)


def test_the_call_that_was_begun_first_is_known(server: Server, tmp_path: Path) -> None:
    """By its case and the seconds since, while it is in flight and no longer."""
    calls = SweepLedger(server.client, Settings(broker=server.url))
    header = SweepHeader("r", "t", code_version(), 2, 1)
    calls.open(header)
    calls.offer("r", [Prompt(name, "a", "q") for name in ("first", "second")])
    assert calls.claim("r", "p", 5, 600)[1] == [0, 1]

    async def seen(agent: Agent, file: Path) -> None:
        async with TargetSessions(load_targets(file), server.client) as sessions:
            units = InFlightCalls(header, "p", await sessions.open("t"), calls, Lanes(5), asyncio.Event())
            assert units.oldest is None
            units.prompts.update({0: Prompt("first", "a", "q"), 1: Prompt("second", "a", "q")})
            for call in (0, 1):
                units.start([call])
                await asyncio.sleep(0)
            await asyncio.to_thread(wait_until, lambda: agent.busiest == 2, "both are in flight")
            assert units.oldest is not None
            case, seconds = units.oldest
            assert (case, 0 < seconds < PATIENCE) == ("first", True)
            agent.ready = lambda: True
            await units.wait()
            assert units.oldest is None
            await units.close()

    with running_agent() as (agent, url):
        agent.ready = lambda: False
        file = tmp_path / "targets.yaml"
        file.write_text(json.dumps({"targets": {"t": {"kind": "openai", "base_url": url, "model": "m"}}}))
        asyncio.run(seen(agent, file))


class SlowAnswers(SweepLedger):
    """A ledger whose server records at once and answers late: when it may."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.client, Settings(broker=server.url))
        self.recorded, self.may_answer = threading.Event(), threading.Event()

    def commit(self, *args: Any) -> int:
        """Record, and wait."""
        fresh = super().commit(*args)
        self.recorded.set()
        assert self.may_answer.wait(PATIENCE)
        return fresh


def test_a_process_that_leaves_while_it_records_counts_its_answers_once(server: Server, tmp_path: Path) -> None:
    """The record that is under way ends, and is not made again: neither attempts nor outputs are told twice."""
    calls = SlowAnswers(server)
    header = SweepHeader("r", "t", code_version(), 1, 1)
    calls.open(header)
    calls.offer("r", [Prompt("c", "a", "q")])

    async def leaves(file: Path) -> None:
        async with TargetSessions(load_targets(file), server.client) as sessions:
            units = InFlightCalls(header, "p", await sessions.open("t"), calls, Lanes(5), asyncio.Event())
            units.prompts[0] = Prompt("c", "a", "q")
            units.start(calls.claim("r", "p", 5, 600)[1])
            await asyncio.to_thread(calls.recorded.wait, PATIENCE)
            closing = asyncio.create_task(units.close())
            await asyncio.sleep(0)
            calls.may_answer.set()
            await closing

    with running_agent() as (_, url):
        file = tmp_path / "targets.yaml"
        file.write_text(json.dumps({"targets": {"t": {"kind": "openai", "base_url": url, "model": "m"}}}))
        asyncio.run(leaves(file))
    look = calls.poll("r")
    assert look is not None
    assert (look.started, look.recorded, look.repaid, look.lost, look.busy) == (1, 1, 0, 0, 0)
