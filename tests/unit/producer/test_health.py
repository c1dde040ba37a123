"""What a producer tells of the processes that call: who cannot and why, and which call takes long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evalq.producer.sweep.callers import Health
from evalq.workers.ledger.heartbeats import CallerFacts, Heartbeats, TargetFacts
from evalq.workers.ledger.sweep_model import SweepHeader
from tests.integration.harness import Server, running_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of this test's own."""
    with running_server(tmp_path) as started:
        yield started


def test_troubles_and_long_calls_are_reported_once(server: Server) -> None:
    """All that cannot call: the sweep waits; some: a warning each; well again: said, too; a lost server: nothing."""
    register = Heartbeats(server.client)

    def beat(host: str, trouble: str, age: float = 0.0) -> None:
        facts = CallerFacts(host, 1, "v", 8, 1, {"t": TargetFacts("c", trouble=trouble)}, {"r": ("C3", age)})
        register.beat_caller(host, facts, 60)

    message = Health(register, SweepHeader("r", "t", "v", 1, 1), poll_seconds=0.0)
    assert message.news() == []
    beat("a", "no key")
    beat("b", "refused")
    waiting = "waiting: no process can call 't' now: a: no key; b: refused; calls are held, none is lost"
    assert message.news() == [waiting]
    assert message.news() == []
    beat("b", "", 50.0)
    assert message.news() == [
        "'t' is called again",
        "warning: a does not call 't' now: no key",
        "oldest call in flight: case C3, for 50 s, on b",
    ]
    assert message.news() == []
    server.kill()
    assert message.news() == []
    server.start()
