"""Celery's side doors are shut: no remote control, no events, no pickle, and no queues for any of them."""

from __future__ import annotations

from pathlib import Path

from celery import Celery

from evalq.workers.broker.transport import make_app
from evalq.workers.settings import Settings
from tests.doors.intruder import logged_worker
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
