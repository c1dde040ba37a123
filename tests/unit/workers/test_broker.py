"""A broker that is away is reported as such, whatever was asked of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from evalq.evalcore.errors import BrokerUnreachable
from evalq.workers.broker.message import Hint, read_hint, rewritten
from evalq.workers.broker.publisher import Broker
from evalq.workers.settings import Settings
from tests.integration.harness import Server, running_server
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
    assert f"the broker at amqp://guest:***@127.0.0.1:{port}/%2F does not answer" in str(raised.value)
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


def test_a_hint_is_what_celery_would_have_sent(server: Server) -> None:
    """In the same queue, in the same order, and the same to a worker once it is read strictly."""
    broker = Broker(Settings(broker=server.url))
    broker.publish("ours", "run", 3, range(300))
    broker._send("celery", {f"run/{seq}/3/ab": Hint("run", seq, 3) for seq in range(300)})
    broker.close()
    ours, celery = (server.client.lrange(queue, 0, -1) for queue in ("ours", "celery"))
    assert [read_hint(item)[1] for item in ours] == [read_hint(item)[1] for item in celery]
    assert [read_hint(item)[1].seq for item in reversed(ours)] == list(range(300)), "the oldest is taken first"
    mine, theirs = json.loads(rewritten(ours[0], "q")), json.loads(rewritten(celery[0], "q"))
    for message in (mine, theirs):
        assert message["headers"].pop("id").startswith("run/299/3/")
        del message["headers"]["root_id"], message["properties"]["correlation_id"]
        del message["properties"]["delivery_tag"]
    assert mine == theirs
    plain, real = json.loads(ours[0]), json.loads(celery[0])
    assert plain.keys() <= real.keys()
    assert plain["properties"].keys() <= real["properties"].keys()
    assert plain["properties"]["delivery_info"] == real["properties"]["delivery_info"] | {"routing_key": "ours"}
