"""A broker that is away is told as such, whatever was asked of it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from evalcore.errors import BrokerUnreachable
from tests.integration.ports import free_port
from workers.broker import Broker
from workers.settings import Settings


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
