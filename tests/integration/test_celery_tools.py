"""Celery's own commands beside a worker: what they show of it, and that a worker without the settings sends nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from evalq.workers.broker.message import Hint
from evalq.workers.broker.transport import make_tools_app
from evalq.workers.pool.celery_tools import ANSWERED, TaskTitles
from evalq.workers.settings import Settings
from tests.integration import rabbitmq
from tests.integration.harness import HAZARDS, Fleet, Server, clean_environment, evalq, start_evalq, wait_until
from tests.integration.midway import Held, hold

OPEN = {"EVALQ_CELERY_EVENTS": "true", "EVALQ_REMOTE_CONTROL": "read-only"}
SUITE = ("--suite", "nightly")


@contextmanager
def listening(broker: str) -> Iterator[list[dict[str, Any]]]:
    """The events that the server at ``broker`` passes on during a block."""
    found: list[dict[str, Any]] = []
    app: Any = make_tools_app(Settings(broker=broker))
    connection = app.connection_for_read()
    receiver = app.events.Receiver(connection, handlers={"*": found.append})
    thread = threading.Thread(target=receiver.capture, kwargs={"wakeup": False}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        receiver.should_stop = True
        thread.join()
        connection.close()
        app.close()


def _celery(broker: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "celery", "-A", "evalq.celery", *words]
    environment = clean_environment(EVALQ_BROKER=broker)
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def _of(kind: str, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == kind]


def test_workers_and_chunks_are_shown_by_name(server: Server, fleet: Fleet, tmp_path: Path) -> None:
    """`celery inspect active` shows the chunk at work; events show each chunk from its receipt to its end."""
    held: Held = hold(tmp_path, free=3, held=1)
    with listening(server.url) as events:
        fleet.add(2, "--root", str(tmp_path), **OPEN, PYTHONPATH=HAZARDS)
        wait_until(lambda: _of("worker-heartbeat", events), "a worker's heartbeat comes as an event")
        run = start_evalq(*held.command, *SUITE, "--broker", server.url, cwd=tmp_path, PYTHONPATH=HAZARDS)
        wait_until(lambda: len(_of("task-succeeded", events)) >= 3, "three chunks are done")
        shown = _celery(server.url, "inspect", "active", cwd=tmp_path)
        assert shown.returncode == 0, shown.stderr
        assert "'name': 'evalq hazards nightly'" in shown.stdout
        assert "'args': 'hazards nightly, chunk 4 of 4'" in shown.stdout
        held.let_go()
        assert run.wait() == 0
        wait_until(lambda: len(_of("task-succeeded", events)) >= 4, "the fourth is")
    received = _of("task-received", events)
    assert {event["args"].partition(" of ")[0] for event in received} == {
        f"hazards nightly, chunk {number}" for number in range(1, 5)
    }
    assert {event["name"] for event in received} == {"evalq hazards nightly"}
    assert len(_of("task-started", events)) == 4
    titles = {event["args"] for event in _of("task-succeeded", events)}
    assert "hazards nightly, chunk 4 of 4" in titles
    assert not _of("task-failed", events)
    assert _of("worker-online", events)[0]["hostname"].startswith("evalq@")


def test_each_command_that_reads_is_answered(server: Server, fleet: Fleet, tmp_path: Path) -> None:
    """And no other; what Celery would list of the connection, with its password, is left out."""
    server.client.config_set("requirepass", "secret")
    url = server.url.replace("//", "//:secret@")
    fleet.add(1, "--broker", url, **OPEN)
    app: Any = make_tools_app(Settings(broker=url))
    ask = app.control.inspect
    wait_until(lambda: ask(timeout=0.5).ping(), "it answers")
    (name,) = ask(limit=1).ping()
    replies = {command: getattr(ask(limit=1), command)()[name] for command in ANSWERED}
    assert replies["registered"] == ["evalq.evaluate"]
    assert replies["stats"]["pool"]["max-concurrency"] == 1
    assert replies["active"] == replies["reserved"] == []
    assert [queue["name"].rpartition(".")[0] for queue in replies["active_queues"]] == [
        "evalq.interactive",
        "evalq.bulk",
    ]
    assert "secret" not in str(replies)
    for command in ("conf", "report", "scheduled", "clock", "memsample"):
        assert "is refused" in getattr(ask(limit=1), command)()[name]["error"]
    for command in ("shutdown", "pool_restart", "pool_grow", "rate_limit", "revoke", "add_consumer", "enable_events"):
        (reply,) = app.control.broadcast(command, reply=True, limit=1, destination=[name])
        assert reply[name]["error"].startswith(f"{command} is refused: evalq's workers answer ping, active")
    assert fleet.processes[0].poll() is None
    app.close()


def test_celery_s_command_says_what_is_wrong(tmp_path: Path) -> None:
    """A worker that is started by mistake, and no broker: a line that says what to do."""
    started = _celery("redis://127.0.0.1:1", "worker", cwd=tmp_path)
    assert (started.returncode, started.stderr.strip()) == (
        1,
        "evalq.celery has no worker. Start one with: evalq worker --broker URL",
    )
    nowhere = _celery("", "inspect", "ping", cwd=tmp_path)
    assert nowhere.returncode == 2
    assert "name the broker of the workers in EVALQ_BROKER" in nowhere.stderr


def test_a_worker_without_the_settings_sends_nothing(server: Server, fleet: Fleet, tmp_path: Path) -> None:
    """No command of the server that only events and remote control use, over a whole run."""
    held: Held = hold(tmp_path, free=4, held=0)
    worker = fleet.add(1, "--root", str(tmp_path), PYTHONPATH=HAZARDS)
    done = evalq(*held.command, "--broker", server.url, cwd=tmp_path, PYTHONPATH=HAZARDS)
    assert done.returncode == 0, done.stderr
    worker.terminate()
    worker.wait()
    used = {name.removeprefix("cmdstat_").partition("|")[0] for name in server.client.info("commandstats")}
    assert "brpop" in used
    assert not used & {"publish", "subscribe", "psubscribe"}
    assert not server.client.keys("*kombu*")
    assert not server.client.keys("*pidbox*")


def test_titles_without_a_ledger(server: Server) -> None:
    """A run that the ledger does not know, and damaged names, give a plain title; a lost server is left alone."""
    now = [0.0]
    titles = TaskTitles(lambda: Settings(broker=server.url), clock=lambda: now[0])
    hint = Hint("r1", 2, 0)
    plain = ("evalq.evaluate", "chunk 3 of run r1")
    assert titles.of(hint) == plain
    meta = "evalq:run:{r1}:meta"
    server.client.hset(meta, mapping={"label": " vs \x1b[31mred", "chunks": 3})
    assert titles.of(hint) == plain
    server.client.hset(meta, mapping={"label": " vs nightly", "chunks": 3})
    assert titles.of(hint) == ("evalq vs nightly", "vs nightly, chunk 3")
    server.client.hset(meta, mapping={"chunks": 40, "seal": "{}"})
    assert titles.of(hint) == ("evalq vs nightly", "vs nightly, chunk 3"), "asked five times a second"
    now[0] += 2
    assert titles.of(hint) == ("evalq vs nightly", "vs nightly, chunk 3 of 40")
    server.kill()
    assert titles.of(hint) == ("evalq vs nightly", "vs nightly, chunk 3 of 40"), "it is remembered"
    assert titles.of(Hint("r2", 0, 0)) == ("evalq.evaluate", "chunk 1 of run r2")
    server.start()
    server.client.hset("evalq:run:{r2}:meta", mapping={"label": " vs new", "chunks": 1, "seal": "{}"})
    assert titles.of(Hint("r2", 0, 0))[1] == "chunk 1 of run r2", "not asked for some seconds"
    now[0] += 20
    assert titles.of(Hint("r2", 0, 0))[1] == "vs new, chunk 1 of 1"


def test_the_same_on_rabbitmq(server: Server, tmp_path: Path) -> None:
    """Exchanges and queues have Celery's names there, too."""
    if why := rabbitmq.unavailable():
        pytest.skip(why)
    node = rabbitmq.Rabbit()
    node.start()
    fleet = Fleet(node.url, tmp_path)
    try:
        node.wait()
        held: Held = hold(tmp_path, free=1, held=1)
        with listening(node.url) as events:
            fleet.add(2, "--ledger", server.url, **OPEN, PYTHONPATH=HAZARDS)
            place = ("--broker", node.url, "--ledger", server.url)
            run = start_evalq(*held.command, *SUITE, *place, cwd=tmp_path, PYTHONPATH=HAZARDS)
            wait_until(lambda: _of("task-succeeded", events), "a chunk is done")
            shown = _celery(node.url, "inspect", "active", cwd=tmp_path)
            assert "'args': 'hazards nightly, chunk 2 of 2'" in shown.stdout, shown.stderr
            refused = _celery(node.url, "control", "shutdown", cwd=tmp_path)
            assert "shutdown is refused" in refused.stdout
            held.let_go()
            assert run.wait() == 0
    finally:
        fleet.close()
        node.end()
