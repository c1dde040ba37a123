"""RabbitMQ's own limits: a chunk longer than its `consumer_timeout`, and queues with arguments."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.version import code_version
from evalq.workers.settings import load_settings
from tests.integration import rabbitmq
from tests.integration.harness import (
    HAZARDS,
    PATIENCE,
    Server,
    committed,
    running_fleet,
    same_answer,
    start_evalq,
    wait_until,
)
from tests.integration.midway import hold
from tests.portions import some

TIMED_OUT = "takes longer than the broker's consumer_timeout"
QUORUM = "x-queue-type=quorum"


@pytest.fixture(scope="module")
def rabbit() -> Iterator[rabbitmq.Rabbit]:
    """A node that gives a message half a second, and looks at it four times in that."""
    if why := rabbitmq.unavailable():
        pytest.skip(why)
    node = rabbitmq.Rabbit("-rabbit consumer_timeout 500 -rabbit channel_tick_interval 125")
    node.start()
    try:
        node.wait()
        yield node
    finally:
        node.end()


@pytest.mark.parametrize(
    "arguments", some(["", QUORUM], of=2), ids=lambda arguments: "quorum" if arguments else "classic"
)
def test_a_chunk_longer_than_the_consumer_timeout(
    rabbit: rabbitmq.Rabbit, server: Server, tmp_path: Path, arguments: str
) -> None:
    """The same worker goes on: it finishes that chunk, which is computed once, and all others; same bytes."""
    held = hold(tmp_path, free=20, held=4)
    place = ("--broker", rabbit.url, "--ledger", server.url)
    # Queues of one name and other arguments there may not be.
    settings = {"PYTHONPATH": HAZARDS, "EVALQ_QUEUE_ARGUMENTS": arguments}
    if arguments:
        rabbit.delete_queues("evalq.")
    before = rabbit.declared()
    log = tmp_path / "log"
    with running_fleet(rabbit.url, tmp_path, **settings) as fleet, log.open("wb") as stream:
        worker = fleet.add(2, "--ledger", server.url, stderr=stream)
        run = start_evalq(*held.command, *place, "--out", tmp_path / "run", cwd=tmp_path, **settings)
        wait_until(lambda: committed(server, tmp_path / "run") >= held.free, "the others are done")
        wait_until(lambda: TIMED_OUT in log.read_text(), "the broker took the messages back")
        held.let_go()
        _, said = run.communicate(timeout=PATIENCE)
        assert run.returncode == 0, said
        during = rabbit.declared()
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=PATIENCE) == 0
    same_answer(held.calm(), tmp_path / "run")
    added = [line.split("\t") for line in during - before]
    assert added
    assert all(words[1].startswith("evalq.") for words in added), f"none of these is evalq's: {added}"
    made = [words for words in added if words[0] == "queue" and words[1].startswith("evalq.bulk.")]
    assert ["quorum" in "".join(words) for words in made] == [bool(arguments)]


def test_other_arguments_than_the_queue_has_are_an_error(
    rabbit: rabbitmq.Rabbit, server: Server, data: Path, tmp_path: Path
) -> None:
    """No lost connection that is made again for ever: the worker ends, and says which argument differs."""
    rabbit.delete_queues("evalq.")
    log, queue = tmp_path / "log", f"evalq.bulk.{code_version()}"
    with running_fleet(rabbit.url, data) as fleet, log.open("wb") as stream:
        fleet.add(1, "--ledger", server.url, EVALQ_QUEUE_ARGUMENTS="x-max-priority=3")
        wait_until(lambda: rabbit.has_queue(queue), "the queue is there", pause=1)
        other = fleet.add(1, "--ledger", server.url, stderr=stream, EVALQ_QUEUE_ARGUMENTS="x-max-priority=4")
        assert other.wait(timeout=PATIENCE) == 3
    assert "inequivalent arg" in log.read_text()
    rabbit.delete_queues("evalq.")


def test_arguments_have_the_types_that_rabbitmq_wants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a variable or a file, numbers are numbers; what is no argument is refused."""
    (tmp_path / "s.yaml").write_text(
        "queue_arguments: {x-queue-type: quorum, x-consumer-timeout: 7200000, x-odd: true}"
    )
    wanted = {"x-queue-type": "quorum", "x-consumer-timeout": 7_200_000, "x-odd": True}
    assert load_settings(tmp_path / "s.yaml").queue_options == wanted
    monkeypatch.setenv("EVALQ_QUEUE_ARGUMENTS", "x-queue-type=quorum, x-consumer-timeout=7200000,x-odd=true")
    assert load_settings().queue_options == wanted
    for wrong in ("quorum", "type=quorum", "x-a=1,x-a=2", "x-a="):
        monkeypatch.setenv("EVALQ_QUEUE_ARGUMENTS", wrong)
        with pytest.raises(ConfigError, match="queue_arguments"):
            load_settings()
