"""The broker's door: whatever lies in a worker's queue, it lives on, says so in a line, and real runs are unharmed."""

from __future__ import annotations

import base64
import json
from functools import partial
from pathlib import Path

from evalq.workers.names import TRANSPORT
from tests.doors.intruder import QUEUE, LoggedWorker, logged_worker, real_message, refused_items, stripped_items
from tests.integration.harness import PATIENCE, Server, evalq, info, same_answer, start_evalq, wait_until

DROPPED = "a message that evalq did not write was dropped"


def _idle(server: Server) -> bool:
    """Whether nothing is queued or out, and a worker waits for more: what it had taken, it is done with."""
    waits = any("b" in client["flags"] and client["cmd"] == "brpop" for client in server.client.client_list())
    return waits and not server.client.llen(QUEUE) and not server.client.hlen(TRANSPORT.unacked)


def test_each_bad_item_is_one_line_and_no_more(server: Server, data: Path, calm: Path, tmp_path: Path) -> None:
    """Every kind of bad item, before a run: one line each, the same process lives, small, and the run is equal."""
    message = real_message(server)
    with logged_worker(server, data, tmp_path / "log") as worker:
        before = worker.memory_kib()
        for number, (name, item) in enumerate(refused_items(message).items(), start=1):
            server.client.lpush(QUEUE, item)
            wait_until(lambda: _idle(server) or not worker.alive, f"the worker is done with {name}")
            wait_until(partial(_told, worker, number), f"{name} is in the log")
            assert worker.alive, f"{name} ended the worker:\n" + "\n".join(worker.lines[-20:])
        assert all(DROPPED in line for line in worker.lines)
        assert len(worker.lines) == len(refused_items(message))
        assert max(map(len, worker.lines)) < 500, "a line, not the item"
        wait_until(lambda: worker.memory_kib() < before + 50_000, "what was dropped is given back")
        done = evalq("planagent", "rows.csv", "--broker", server.url, "--out", tmp_path / "run", cwd=data)
        assert done.returncode == 0, done.stderr
    same_answer(calm, tmp_path / "run")


def test_an_envelope_that_asks_for_more_gets_no_more(server: Server, data: Path, tmp_path: Path) -> None:
    """Waiting times, packings, limits and tags of a sender's choice are left away: a hint, done with at once."""
    items = stripped_items(real_message(server))
    with logged_worker(server, data, tmp_path / "log") as worker:
        for name, item in items.items():
            server.client.lpush(QUEUE, item)
            wait_until(lambda: _idle(server) or not worker.alive, f"the worker is done with {name}")
            assert worker.alive, f"{name} ended the worker:\n" + "\n".join(worker.lines[-20:])
        assert worker.lines == []
    assert not server.client.keys("evil*")


def test_a_run_among_garbage(server: Server, data: Path, calm: Path, tmp_path: Path) -> None:
    """Bad items between the real ones, a wrong epoch and chunks that are none of the run's: the same bytes."""
    message = real_message(server)
    bad = [
        item for item in [*refused_items(message).values(), *stripped_items(message).values()] if len(item) < 1 << 20
    ]
    args = ("planagent", "rows.csv", "--broker", server.url, "--chunk-size", "50", "--out", tmp_path / "run")
    producer = start_evalq(*args, "--format", "none", cwd=data, EVALQ_WINDOW="4")
    wait_until(lambda: server.client.llen(QUEUE) >= 4, "the run is published as far as its window")
    run = info(tmp_path / "run")["run"]
    forged = [[run, 3, 99], [run, 10**6, 1], [run, 0, 1], [run, 3, 0]]
    for hint in forged:
        body = base64.b64encode(json.dumps([hint, {}, {}]).encode()).decode()
        server.client.lpush(QUEUE, json.dumps({**message, "body": body}).encode())
    for item in bad:
        server.client.lpush(QUEUE, item)
    with logged_worker(server, data, tmp_path / "log") as worker:
        _, said = producer.communicate(timeout=PATIENCE)
        assert producer.returncode == 0, said
        wait_until(lambda: _idle(server), "all of it is consumed")
        assert worker.alive
    same_answer(calm, tmp_path / "run")


def test_garbage_does_not_stop_the_producer(server: Server, data: Path, calm: Path, tmp_path: Path) -> None:
    """A producer looks through the queue for its own lost messages; what it cannot read there it passes over."""
    message = real_message(server)
    bad = [item for item in refused_items(message).values() if len(item) < 1 << 20]
    args = ("planagent", "rows.csv", "--broker", server.url, "--chunk-size", "500", "--out", tmp_path / "run")
    for item in bad:
        server.client.lpush(QUEUE, item)
    producer = start_evalq(*args, "--format", "none", cwd=data, EVALQ_POLL_SECONDS="0.05", EVALQ_GRACE_SECONDS="0.05")
    wait_until(lambda: server.client.llen(QUEUE) >= len(bad) + 6, "the run is published")
    looked = wait_until(lambda: _lookups(server), "it looks")
    wait_until(lambda: _lookups(server) > looked + 3 or producer.poll() is not None, "it looks again and again")
    with logged_worker(server, data, tmp_path / "log"):
        _, said = producer.communicate(timeout=PATIENCE)
    assert producer.returncode == 0, said
    same_answer(calm, tmp_path / "run")


def _told(worker: LoggedWorker, lines: int) -> bool:
    return len(worker.lines) >= lines or not worker.alive


def _lookups(server: Server) -> int:
    stats = server.client.info("commandstats").get("cmdstat_lrange", {})
    return int(stats.get("calls", 0))


def test_forged_messages_among_the_unacknowledged(server: Server, data: Path, tmp_path: Path) -> None:
    """What is put where kombu keeps messages that are out is forgotten, and does not keep others from coming back."""
    message = real_message(server)
    forged = {"a": b"\xff", "b": b"[1]", "c": b"[" * 10_000, "d": b"x" * (50 << 20), "e": b'[5,"",null]', "f": b"null"}
    elsewhere = {
        "g": json.dumps([message, "", "celery"]),
        "h": json.dumps([message, "ex", QUEUE]),
    }
    forged |= {tag: record.encode() for tag, record in elsewhere.items()}
    server.client.hset(TRANSPORT.unacked, mapping={**forged, "z": json.dumps([message, "", QUEUE])})
    server.client.zadd(TRANSPORT.unacked_index, dict.fromkeys([*forged, "z", "without a message"], 1.0))
    with logged_worker(server, data, tmp_path / "log") as worker:
        left = (server.client.hlen, TRANSPORT.unacked), (server.client.zcard, TRANSPORT.unacked_index)
        wait_until(lambda: not any(count(key) for count, key in left), "all gone")
        assert worker.alive
        output = ("unacknowledged message that evalq did not write", "Could not restore message")  # kombu's own: "e"

        def lines() -> int:
            return sum(any(words in line for words in output) for line in worker.lines)

        wait_until(lambda: lines() >= len(forged), "each is in the log")
        assert lines() == len(forged)
        assert not server.client.exists("celery"), "nothing goes to another application's queue"
