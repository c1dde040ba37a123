"""A broker that is away is told as such, whatever was asked of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from evalq.evalcore.errors import BrokerUnreachable
from evalq.workers.broker.publisher import Broker
from evalq.workers.settings import Settings
from tests.integration.harness import running_server
from tests.integration.ports import free_port
from tests.unit.workers.states import STATES


@pytest.mark.parametrize(
    "ask",
    [
        lambda broker: broker.waiting("queue", "run"),
        lambda broker: broker.lengths(["queue"]),
        lambda broker: broker.publish("queue", "run", 1, [0]),
    ],
    ids=["waiting", "lengths", "publish"],
)
def test_rabbitmq_that_is_away_is_unreachable(ask: Callable[[Broker], object]) -> None:
    """In looking for suspect chunks as in publishing: its address without the password, and nothing of files."""
    port = free_port()
    broker = Broker(Settings(broker=f"amqp://guest:secret@127.0.0.1:{port}//", connect_seconds=1))
    began = time.monotonic()
    with pytest.raises(BrokerUnreachable) as raised:
        ask(broker)
    assert time.monotonic() - began < 10
    assert f"the broker at amqp://guest:***@127.0.0.1:{port}// does not answer" in str(raised.value)
    broker.close()


def test_a_server_that_fails_a_batch_is_waited_for(tmp_path: Path) -> None:
    """Full, read-only or gone while hints are published: unreachable for now, with what is the matter, not refused."""
    with running_server(tmp_path) as server:
        broker = Broker(Settings(broker=server.url, connect_seconds=1))
        broker.publish("queue", "run", 1, [0])
        for code in ("OOM", "READONLY"):
            with STATES[code](server), pytest.raises(BrokerUnreachable, match=f"\\({code}\\)"):
                broker.publish("queue", "run", 1, [1, 2])
        broker.publish("queue", "run", 1, [1, 2])
        server.kill()
        with pytest.raises(BrokerUnreachable, match="does not answer"):
            broker.publish("queue", "run", 1, [3])
        broker.close()
