"""A team's own Celery workers compute evalq's chunks beside the team's tasks, on stock kombu, while they are killed."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.concurrency.prefork import TaskPool

import evalq.celery
from evalq.errors import ConfigError
from evalq.workers.pool.guest import checked_settings
from evalq.workers.settings import Settings
from tests.integration.harness import (
    HAZARDS,
    PATIENCE,
    Fleet,
    Server,
    clean_environment,
    committed,
    same_answer,
    start_evalq,
    wait_until,
)
from tests.integration.harness import (
    evalq as run_evalq,
)
from tests.integration.midway import Held, hold
from tests.integration.neighbours import foreign, put_foreign_keys

KILLS = 3
EACH = 20
"""Tasks of the team at each step."""


class Guests(Fleet):
    """Workers of the shop, with evalq's queue among theirs."""

    def __init__(self, server: Server, folder: Path) -> None:
        super().__init__(server.url, folder)
        self.log = folder / "shop.log"
        self.log.touch()
        self._folder, self._server = folder, server
        self.client: Any = Celery("shop", broker=server.url, set_as_current=False)
        self.sent = 0

    def add(
        self, concurrency: int = 2, *options: str, stderr: Any = None, **environment: str
    ) -> subprocess.Popen[bytes]:
        """Start one; ``options`` are of `celery worker`."""
        command = [sys.executable, "-m", "celery", "-A", "tests.integration.shop_with_evalq", "worker"]
        command += ["-c", str(concurrency), "-Q", "celery,evalq", *options]
        variables = {"SHOP_BROKER": self._server.url, "SHOP_LOG": str(self.log), "PYTHONPATH": HAZARDS} | environment
        out = stderr or (self._folder / f"worker-{len(self.processes)}.log").open("wb")
        process = subprocess.Popen(
            command,
            cwd=self._folder,
            env=clean_environment(**variables),
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def send(self, count: int = EACH) -> None:
        """Tasks of the team, numbered."""
        for _ in range(count):
            self.client.send_task("shop.note", (self.sent,))
            self.sent += 1

    @property
    def done(self) -> list[int]:
        """The numbers of the tasks that were run."""
        return [int(line) for line in self.log.read_text().split()]

    def unacknowledged(self) -> set[int]:
        """The numbers of tasks that dead workers had taken: Celery delivers them again after an hour."""
        return _numbers(json.loads(record)[0] for record in self._server.client.hvals("unacked"))

    def close(self) -> None:
        """End all, and the client."""
        super().close()
        self.client.close()


def _numbers(messages: Iterable[Any]) -> set[int]:
    """The numbers of the team's tasks among the messages."""
    tasks = [message for message in messages if message["headers"]["task"] == "shop.note"]
    return {json.loads(b64decode(message["body"]))[0][0] for message in tasks}


def test_chunks_and_a_team_s_tasks_in_the_same_workers_under_kills(server: Server, tmp_path: Path) -> None:
    """The report of a calm run. The team's tasks are done or kept, but for one a kill, which stock kombu loses."""
    put_foreign_keys(server.client)
    before = foreign(server.client)
    fleet = Guests(server, tmp_path)
    try:
        held: Held = hold(tmp_path, free=60, held=12)
        fleet.add()
        fleet.send()
        run = start_evalq(
            *held.command, "--broker", server.url, "--out", tmp_path / "run", cwd=tmp_path, PYTHONPATH=HAZARDS
        )
        wait_until(lambda: committed(server, tmp_path / "run") >= 5, "some chunks are committed")
        for _ in range(KILLS):
            fleet.send()
            fleet.kill_at_work(server)
            fleet.add()
        held.let_go()
        fleet.send()
        assert run.wait(timeout=PATIENCE) == 0
        wait_until(lambda: not server.client.llen("celery"), "the team's queue is empty")
        sent = set(range(fleet.sent))
        # Stock kombu takes a message from the queue, and notes then that it has it: a kill in between loses this one.
        wait_until(
            lambda: len(sent - set(fleet.done) - fleet.unacknowledged()) <= KILLS, "tasks are done, or kept by Celery"
        )
        assert len(fleet.done) == len(set(fleet.done)), "no task is run twice"
        same_answer(held.calm(), tmp_path / "run")
        pruned = run_evalq("prune", "--all", "--older-than", "0", "--broker", server.url, cwd=tmp_path)
        assert pruned.returncode == 0, pruned.stderr
        own = (b"unacked", b"_kombu.binding", b"celery")
        after = {key: value for key, value in foreign(server.client).items() if not key.startswith(own)}
        assert after == {key: value for key, value in before.items() if not key.startswith(own)}
    finally:
        fleet.close()


class _Pool(TaskPool):  # type: ignore[misc]  # Celery is untyped
    """As `evalq worker` has one."""


def _worker(**how: Any) -> Any:
    return SimpleNamespace(**{"pool_cls": _Pool, "pool_start_method": "fork", "concurrency": 3} | how)


def _shop(broker: str = "redis://127.0.0.1:1/0", **conf: Any) -> Any:
    app = Celery("shop", broker=broker, set_as_current=False)
    app.conf.update({"accept_content": ["json"]} | conf)
    return app


@pytest.mark.parametrize(
    ("app", "worker", "settings", "message"),
    [
        (_shop(accept_content=["json", "pickle"]), _worker(), {}, r"accept_content is \['json', 'pickle'\]"),
        (_shop(), _worker(pool_cls=object), {}, "pool of forked processes"),
        (_shop(), _worker(pool_start_method="spawn"), {}, "pool of forked processes"),
        (_shop(broker_transport_options={"global_keyprefix": "x"}), _worker(), {}, "global_keyprefix"),
        (_shop(), _worker(), {"broker": "redis://127.0.0.1:2/0"}, "127.0.0.1:1/0, and evalq's is .*127.0.0.1:2/0"),
        (_shop(), _worker(), {"broker": "redis://127.0.0.1:1/7"}, "takes all its messages from one"),
        (_shop("sentinel://127.0.0.1:1"), _worker(), {}, "EVALQ_BROKER"),
        (_shop("amqp://127.0.0.1"), _worker(), {}, "EVALQ_LEDGER"),
    ],
)
def test_a_worker_that_cannot_serve_evalq_says_why(
    app: Any, worker: Any, settings: dict[str, Any], message: str
) -> None:
    """In one line, before it takes anything."""
    with pytest.raises(ConfigError, match=message):
        checked_settings(app, worker, Settings(**settings))


def test_a_worker_takes_the_application_s_broker_and_its_own_concurrency() -> None:
    """Unless the settings name the same server."""
    found = checked_settings(_shop(), _worker(), Settings())
    assert (found.broker, found.processes) == ("redis://127.0.0.1:1/0", 3)
    same = Settings(broker="redis://:x@127.0.0.1:1")
    assert checked_settings(_shop(), _worker(), same).broker == same.broker


def test_installing_twice_is_refused() -> None:
    """One worker of evalq's in a process is enough."""
    app = _shop()
    evalq.celery.install(app)
    with pytest.raises(ConfigError, match="in this application already"):
        evalq.celery.install(app)


def test_a_worker_without_the_queue_is_none_of_evalq_s(server: Server, tmp_path: Path) -> None:
    """The team's other workers send no heartbeat and take no chunk; one with a fault of evalq's ends with a line."""
    fleet = Guests(server, tmp_path)
    try:
        fleet.add(1, "-Q", "celery")
        fleet.send(1)
        wait_until(lambda: fleet.done == [0], "it works for the team")
        assert not server.client.exists("evalq:workers")
        refused = fleet.add(1, EVALQ_BROKER="redis://127.0.0.1:1/0")
        assert refused.wait(timeout=PATIENCE) == 1
        assert "evalq in this worker: the application's broker is" in (tmp_path / "worker-1.log").read_text()
    finally:
        fleet.close()
