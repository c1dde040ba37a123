"""What evalq changes in kombu's Redis transport."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kombu
import pytest

from evalq.workers.broker.transport import make_app
from evalq.workers.settings import Settings
from tests.integration.harness import running_server


def _connection(url: str) -> Any:
    return make_app(Settings(broker=url)).connection_for_write()


@pytest.mark.parametrize("answer", ["ack", "reject", "requeue"])
def test_a_lost_acknowledgement_gives_its_room_back(tmp_path: Path, answer: str) -> None:
    """A channel that may have one message takes the next one, though the server died before the first was answered."""
    messaging: Any = kombu  # untyped
    with running_server(tmp_path) as server, _connection(server.url) as connection:
        channel = connection.channel()
        channel.basic_qos(0, 1, False)
        queue = messaging.Queue("q", channel=channel)
        queue.declare()
        messaging.Producer(channel).publish({}, routing_key="q")
        message = queue.get()
        assert not channel.qos.can_consume()
        server.kill()
        with pytest.raises(connection.connection_errors):
            getattr(message, answer)()
        assert channel.qos.can_consume()
        server.start()


def test_a_client_is_made_once_for_a_pool_of_connections(tmp_path: Path) -> None:
    """Each message and each acknowledgement asks for one; after a loss, when kombu makes a new pool, it is another."""
    messaging: Any = kombu  # untyped
    with running_server(tmp_path) as server, _connection(server.url) as connection:
        channel = connection.channel()
        queue = messaging.Queue("q", channel=channel)
        queue.declare()
        with channel.conn_or_acquire() as first, channel.conn_or_acquire() as second:
            assert first is second
        assert channel.client is not first, "that one waits for messages on a connection of its own"
        channel._disconnect_pools()
        messaging.Producer(channel).publish({"n": 1}, routing_key="q")
        with channel.conn_or_acquire() as later:
            assert later is not first
            assert later.connection_pool is channel.pool
        assert queue.get().payload == {"n": 1}
