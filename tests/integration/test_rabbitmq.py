"""RabbitMQ as the broker, with the ledger in Redis: two settings, the same answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evalq.evalcore.version import code_version
from tests.integration import rabbitmq
from tests.integration.conftest import Calm
from tests.integration.harness import Server, evalq, running_fleet, same_answer, wait_until
from tests.integration.scraping import running_exporter

pytestmark = pytest.mark.skipif(bool(rabbitmq.unavailable()), reason=rabbitmq.unavailable())


@pytest.fixture(scope="module")
def rabbit() -> Iterator[str]:
    """The URL of a node of this module's own."""
    node = rabbitmq.Rabbit()
    node.start()
    try:
        node.wait()
        yield node.url
    finally:
        node.end()


def test_rabbitmq_gives_the_same_bytes(rabbit: str, server: Server, data: Path, calm: Calm, tmp_path: Path) -> None:
    """8,000 rows in 32 messages over RabbitMQ, the ledger in Redis, and the bytes of the inline run."""
    with running_fleet(rabbit, data) as fleet:
        fleet.add(2, "--ledger", server.url)
        args = ("planagent", "mid.csv", "--broker", rabbit, "--ledger", server.url, "--chunk-size", "250")
        done = evalq(*args, "--out", tmp_path / "run", "--format", "none", cwd=data)
        assert done.returncode == 0, done.stderr
    same_answer(calm("mid.csv"), tmp_path / "run")
    assert not server.client.keys("*kombu*"), "Redis held the ledger only"


def test_queues_on_rabbitmq_are_seen_beside_the_ledger(rabbit: str, server: Server, data: Path, tmp_path: Path) -> None:
    """The exporter and status read messages from the broker and all else from the ledger, in either's absence too."""
    place = ("--broker", rabbit, "--ledger", server.url)
    args = ("planagent", "small.csv", *place, "--chunk-size", "100", "--out", tmp_path / "run", "--detach")
    assert evalq(*args, cwd=data, EVALQ_WINDOW="7").returncode == 0
    assert "7 waiting, 0 workers" in evalq("status", *place, cwd=tmp_path).stdout
    queue = f"evalq.bulk.{code_version()}"
    with running_exporter(rabbit, tmp_path, "--ledger", server.url) as exporter:
        assert exporter.value("evalq_queue_messages", queue=queue) == 7
        assert exporter.value("evalq_chunks", state="published") == 7
        assert exporter.value("evalq_unacked_messages") is None
    assert evalq("cancel", tmp_path / "run", *place, cwd=tmp_path).returncode == 0
    with running_fleet(rabbit, data) as fleet:  # it drops the messages of the cancelled run
        fleet.add(1, "--ledger", server.url)
        wait_until(lambda: " 0 waiting" in evalq("doctor", *place, cwd=tmp_path).stdout, "the queue is empty")


def test_rabbitmq_alone_is_refused(rabbit: str, data: Path, tmp_path: Path) -> None:
    """Without --ledger the error says what to add."""
    done = evalq("planagent", "small.csv", "--broker", rabbit, "--out", tmp_path / "run", cwd=data)
    assert done.returncode == 2
    assert "--ledger" in done.stderr
