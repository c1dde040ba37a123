"""What evalq changes in kombu's Redis transport."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kombu
import pytest

from evalq.workers.broker.transport import Transport
from tests.integration.harness import running_server


@pytest.mark.parametrize("answer", ["ack", "reject", "requeue"])
def test_a_lost_acknowledgement_gives_its_room_back(tmp_path: Path, answer: str) -> None:
    """A channel that may have one message takes the next one, though the server died before the first was answered."""
    messaging: Any = kombu  # untyped
    with running_server(tmp_path) as server, messaging.Connection(server.url, transport=Transport) as connection:
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
