"""Somebody else's Celery application beside evalq, on one database or one virtual host, while workers are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kombu
import pytest

from evalq.workers.broker.transport import Channel
from tests.integration import rabbitmq
from tests.integration.harness import (
    HAZARDS,
    PATIENCE,
    Fleet,
    Server,
    committed,
    evalq,
    running_fleet,
    same_answer,
    start_evalq,
    wait_until,
)
from tests.integration.midway import Held, hold
from tests.integration.neighbours import Shop, age, foreign, put_foreign_keys, running_shop

LATER = 20
"""Messages that the shop's worker has at hand for all of the test, and did not acknowledge."""
EACH = 40
"""Tasks that the shop is sent at each step."""
KILLS = 3


def test_a_celery_application_on_the_same_database(server: Server, tmp_path: Path) -> None:
    """Database 0, Celery's defaults: each of its messages is run once, in order, and none of its keys is changed."""
    put_foreign_keys(server.client)
    with running_shop(server.url, tmp_path) as shop:
        shop.send_later(LATER)
        wait_until(lambda: server.client.hlen("unacked") == LATER, "the shop's worker has its later messages")
        age(server, 400)  # older than evalq lets a message of its own be, younger than Celery's hour
        before = foreign(server.client)
        assert len([key for key in before if b"unacked" in key]) == 2
        with running_fleet(server.url, tmp_path, PYTHONPATH=HAZARDS) as fleet:
            _run_under_kills(server, fleet, shop, tmp_path, "--broker", server.url)
            _looks_for_old_messages(server)
        assert _pruned(server, tmp_path)
        shop.wait()
        wait_until(lambda: server.client.hlen("unacked") <= LATER, "its tasks are acknowledged")
        assert foreign(server.client) == before
        assert shop.done == list(range(shop.sent)), "each once, in the order in which they were sent"
        shop.close()
        assert server.client.llen("celery") == LATER, "its own worker gives back all that it had"
        assert len(shop.done) == shop.sent


@pytest.fixture
def rabbit() -> Iterator[rabbitmq.Rabbit]:
    """A node of this test's own."""
    if why := rabbitmq.unavailable():
        pytest.skip(why)
    node = rabbitmq.Rabbit()
    node.start()
    try:
        node.wait()
        yield node
    finally:
        node.end()


def test_a_celery_application_on_the_same_virtual_host(rabbit: rabbitmq.Rabbit, server: Server, tmp_path: Path) -> None:
    """Each of its messages is run once, in order; queues and exchanges are as they were; evalq's have its name."""
    with running_shop(rabbit.url, tmp_path) as shop:
        shop.send_later(LATER)
        wait_until(
            lambda: rabbit.unacknowledged("celery") == LATER, "the shop's worker has its later messages", pause=1
        )
        before = rabbit.declared()
        with running_fleet(rabbit.url, tmp_path, PYTHONPATH=HAZARDS) as fleet:
            place = ("--broker", rabbit.url, "--ledger", server.url)
            _run_under_kills(server, fleet, shop, tmp_path, *place)
            during = rabbit.declared()
        shop.wait()
        assert before <= during
        added = {line for line in during - before if not line.split("\t")[1].startswith("evalq.")}
        assert not added, f"none of these is evalq's: {added}"
        assert shop.done == list(range(shop.sent)), "each once, in the order in which they were sent"
        shop.close()
        messaging: Any = kombu  # untyped
        with messaging.Connection(rabbit.url) as connection:
            left = connection.channel().queue_declare("celery", passive=True)
        assert left.message_count == LATER, "its own worker gives back all that it had"
        assert len(shop.done) == shop.sent


def _run_under_kills(server: Server, fleet: Fleet, shop: Shop, folder: Path, *place: str) -> None:
    """A run of evalq whose workers are killed while the shop is at work; it gives the bytes of a calm one."""
    held: Held = hold(folder, free=60, held=12)
    options = place[2:]
    fleet.add(2, *options)
    run = start_evalq(*held.command, *place, "--out", folder / "run", cwd=folder, PYTHONPATH=HAZARDS)
    wait_until(lambda: committed(server, folder / "run") >= 5, "some chunks are committed")
    for _ in range(KILLS):
        shop.send(EACH)
        fleet.kill_at_work(server)
        fleet.add(2, *options)
    held.let_go()
    shop.send(EACH)
    assert run.wait(timeout=PATIENCE) == 0
    same_answer(held.calm(), folder / "run")


def _pruned(server: Server, folder: Path) -> bool:
    done = evalq("prune", "--all", "--older-than", "0", "--broker", server.url, cwd=folder)
    return done.returncode == 0


def _looks_for_old_messages(server: Server) -> None:
    """A worker of evalq puts back what dead ones had, all that it takes for that, at least once."""
    server.client.hset(Channel.unacked_key, "old", b"[1]")
    server.client.zadd(Channel.unacked_index_key, {"old": 1.0})
    wait_until(lambda: server.client.zscore(Channel.unacked_index_key, "old") is None, "it has looked")
