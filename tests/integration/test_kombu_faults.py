"""Faults of kombu's own Redis transport that evalq overrides: each test says what should be, and fails on stock kombu.

They are strict: a kombu that mends one makes its test pass, which fails here. Then report which release it was in
docs/decisions/0007-a-transport-of-our-own.md, and drop the override once no line that evalq installs beside needs it.
`tests/integration/test_transport.py` and `tests/doors/test_messages.py` hold the same for evalq's transport.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kombu
import pytest

from tests.integration.harness import Server, running_server

_messaging: Any = kombu  # untyped


@pytest.fixture
def connection(server: Server) -> Iterator[Any]:
    """kombu's own, as every Celery application has it."""
    with _messaging.Connection(server.url, transport_options={"socket_timeout": 5}) as made:
        yield made


def _queue(connection: Any) -> Any:
    queue = _messaging.Queue("q", channel=connection.channel())
    queue.declare()
    return queue


def _receive(connection: Any, queue: Any) -> list[Any]:
    """What a consumer gets in a second. A Celery worker survives errors of the connection, and no others."""
    got: list[Any] = []
    consumer = _messaging.Consumer(queue.channel, [queue], callbacks=[lambda body, message: got.append(body)])
    with consumer, contextlib.suppress(TimeoutError):
        while not got:
            connection.drain_events(timeout=1)
    return got


@pytest.mark.parametrize("item", [b"\xff", b"17", b"[" * 200_000], ids=["no text", "a number", "deep brackets"])
@pytest.mark.xfail(reason="an item that is no message ends the worker's main process", strict=True)
def test_a_consumer_survives_an_item_that_is_no_message(server: Server, connection: Any, item: bytes) -> None:
    """`Channel._brpop_read` decodes whatever it gets, outside any handler: the error ends a worker's event loop."""
    queue = _queue(connection)
    _messaging.Producer(queue.channel).publish({"n": 1}, routing_key="q")
    server.client.rpush("q", item)
    assert _receive(connection, queue) == [{"n": 1}]


@pytest.mark.parametrize("answer", ["ack", "reject", "requeue"])
@pytest.mark.xfail(reason="a message whose acknowledgement failed takes its slot for ever", strict=True)
def test_a_failed_acknowledgement_gives_its_slot_back(tmp_path: Path, answer: str) -> None:
    """`QoS.ack` counts the message as answered only after the server has been reached."""
    with running_server(tmp_path) as server, _messaging.Connection(server.url) as connection:
        queue = _queue(connection)
        queue.channel.basic_qos(0, 1, False)
        _messaging.Producer(queue.channel).publish({}, routing_key="q")
        message = queue.get()
        server.kill()
        with contextlib.suppress(*connection.connection_errors):
            getattr(message, answer)()
        slot = queue.channel.qos.can_consume()
        server.start()
        assert slot


@pytest.mark.xfail(reason="a full server ends the worker: its refusal is no error of the connection", strict=True)
def test_a_refusal_by_a_full_server_is_an_error_that_a_worker_survives(server: Server, connection: Any) -> None:
    """A worker reconnects after errors in ``connection_errors``; `QoS.append` raises another one for OOM."""
    queue = _queue(connection)
    _messaging.Producer(queue.channel).publish({"n": 1}, routing_key="q")
    server.client.config_set("maxmemory", "1")
    with contextlib.suppress(*connection.connection_errors):
        _receive(connection, queue)


@pytest.mark.parametrize("record", [b"\xff", b"[1]", b'[{}, "", null]'], ids=["no text", "a list", "no queue"])
@pytest.mark.xfail(reason="kombu tries for ever to read an unreadable unacknowledged message", strict=True)
def test_an_unreadable_unacknowledged_message_is_given_up(server: Server, connection: Any, record: bytes) -> None:
    """`QoS.restore_by_tag` raises before it removes the tag, so others that are due wait behind it at each look."""
    channel = _queue(connection).channel
    server.client.hset("unacked", "old", record)
    server.client.zadd("unacked_index", {"old": 1.0})
    for _ in range(3):
        with contextlib.suppress(Exception):
            channel.qos.restore_visible(interval=1)
    assert not server.client.zcard("unacked_index")
