"""Celery's side doors are shut: no remote control, no events, no pickle, and no queues for any of them.

Where the settings open them, broadcasts come from anyone who can reach the server.
"""

from __future__ import annotations

import base64
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from evalq.evalcore.errors import ConfigError
from evalq.workers.broker.transport import make_app, make_tools_app
from evalq.workers.settings import Settings, load_settings
from tests.doors.intruder import LoggedWorker, logged_worker
from tests.integration.harness import Server, wait_until


def test_nobody_controls_a_worker_from_afar(server: Server, data: Path, tmp_path: Path) -> None:
    """inspect and shutdown, broadcast as Celery does, get no answer; the worker has no queue to hear them by."""
    stranger = Celery("stranger", broker=server.url)
    with logged_worker(server, data, tmp_path / "log") as worker:
        wait_until(lambda: server.client.scard("evalq:workers"), "it serves")
        assert not server.client.pubsub_channels(), "it listens to no broadcast"
        assert not server.client.pubsub_numpat()
        assert stranger.control.inspect(timeout=1.0).ping() is None
        stranger.control.broadcast("shutdown")
        stranger.control.broadcast("pool_restart", arguments={"modules": ["os"]})
        assert stranger.control.ping(timeout=1.0) == []
        assert worker.alive
        assert worker.lines == []
        names = [key.decode() for key in server.client.keys("*") if b"pidbox" in key or b"celeryev" in key]
        assert [name for name in names if "reply" not in name and "celery.pidbox" not in name] == []
    stranger.close()


def test_what_the_application_takes() -> None:
    """JSON alone, no events, no results, no control, in the settings that worker and producer share."""
    conf = make_app(Settings(broker="redis://127.0.0.1:1/0")).conf
    assert (list(conf.accept_content), conf.task_serializer) == (["json"], "json")
    assert not conf.worker_enable_remote_control
    assert not conf.worker_send_task_events
    assert not conf.task_send_sent_event
    assert conf.task_ignore_result
    assert not conf.result_backend


PIDBOX = "/0.celery.pidbox"


def _broadcast(**parts: Any) -> bytes:
    """A request as Celery sends it, with ``parts`` of its body laid over."""
    ticket = "0f9e6a3c-6d4e-4d3a-9a55-0a0f6f1b8a11"
    body = {
        "method": "ping",
        "arguments": {},
        "destination": None,
        "pattern": None,
        "matcher": None,
        "ticket": ticket,
        "reply_to": {"exchange": "reply.celery.pidbox", "routing_key": ticket},
    }
    return _enveloped(json.dumps(body | parts).encode())


def _enveloped(body: bytes, **parts: Any) -> bytes:
    envelope = {
        "body": base64.b64encode(body).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"clock": 1, "expires": 0},
        "properties": {"body_encoding": "base64", "delivery_tag": "t"},
    }
    return json.dumps(envelope | parts).encode()


def _logged(worker: LoggedWorker, lines: int) -> bool:
    return len(worker.lines) >= lines or not worker.alive


HOSTILE = {
    "no text": b"\xff\xfe",
    "a number": b"17",
    "100,000 brackets": b"[" * 100_000,
    "10,000 brackets": b"[" * 10_000,
    "4 MB": b"x" * (4 << 20),
    "no body": json.dumps({"headers": {}, "properties": {"body_encoding": "base64"}}).encode(),
    "brackets in the body": _enveloped(b"[" * 20_000),
    "a pickle": _enveloped(b"cos\nsystem\n.", **{"content-type": "application/x-python-serialize"}),
    "another application's queue to answer to": _broadcast(reply_to={"exchange": "", "routing_key": "celery"}),
    "another exchange to answer to": _broadcast(reply_to={"exchange": "shop", "routing_key": "0f9e"}),
    "a key to answer to": _broadcast(reply_to={"exchange": "reply.celery.pidbox", "routing_key": "evalq.bulk"}),
    "a number for a method": _broadcast(method=5),
    "a method of 10,000": _broadcast(method="x" * 10_000),
    "a text for all": _broadcast(destination="evalq"),
}


def test_a_worker_that_answers_withstands_broadcasts_of_strangers(server: Server, data: Path, tmp_path: Path) -> None:
    """Each is one line in its log, and reaches nobody; a slow pattern is not tried; then it answers as before."""
    open_to_all = {"EVALQ_CELERY_EVENTS": "true", "EVALQ_REMOTE_CONTROL": "read-only"}
    with logged_worker(server, data, tmp_path / "log", **open_to_all) as worker:
        wait_until(lambda: server.client.pubsub_numpat(), "it listens to broadcasts")
        before = {key for key in server.client.keys("*") if not key.startswith(b"evalq:")}
        memory = worker.memory_kib()
        for number, (name, item) in enumerate(HOSTILE.items(), start=1):
            server.client.publish(PIDBOX, item)
            wait_until(partial(_logged, worker, number), f"{name} is in the log")
            assert worker.alive, name
        assert all("not a remote-control request was dropped" in line for line in worker.lines), worker.lines
        assert max(map(len, worker.lines)) < 500
        server.client.publish(PIDBOX, _broadcast(pattern="(a+)+$", matcher="pcre"))
        server.client.publish(PIDBOX, _broadcast(method="shutdown", reply_to=None))
        wait_until(lambda: any("shutdown was refused" in line for line in worker.lines), "a real one is refused")
        app: Any = make_tools_app(Settings(broker=server.url))
        assert app.control.inspect(limit=1).ping()
        app.close()
        wait_until(lambda: worker.memory_kib() < memory + 50_000, "what was dropped is given back")
        after = {key for key in server.client.keys("*") if not key.startswith(b"evalq:")}
        assert {key for key in after - before if b"reply" not in key} == set(), "it wrote nowhere else"
        assert len(worker.lines) == len(HOSTILE) + 1


@pytest.mark.parametrize("value", ["on", "yes", "all"])
def test_no_other_remote_control_can_be_set(value: str) -> None:
    """There is no setting that lets a stranger change a worker."""
    with pytest.raises(ConfigError, match="remote_control"):
        load_settings(remote_control=value)
