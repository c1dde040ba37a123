"""A worker in an environment that is made for other Celery applications: it serves its own broker, and theirs alone."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from evalq.workers.broker.transport import make_app
from evalq.workers.settings import Settings
from tests.agents.server import write_golden
from tests.contract.celery_variables import variables_read
from tests.integration.conftest import Calm
from tests.integration.harness import (
    PATIENCE,
    Server,
    evalq,
    new_interpreters,
    running_fleet,
    running_server,
    same_answer,
)
from tests.portions import some

URLS = ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL", "CELERY_RESULT_BACKEND", "BROKER_URL")
DOCUMENTED = ("CELERY_WORKER_CONCURRENCY", "CELERY_WORKER_POOL", "CELERY_WORKER_QUEUES", "CELERY_TASK_DEFAULT_QUEUE")
"""Options of the `celery` command by their variables, and settings spelled as such."""


def wrong_everywhere(value: str, url: str) -> dict[str, str]:
    """Every variable that Celery and its libraries read, or document, with a value that is wrong for evalq."""
    names = {*variables_read(), *DOCUMENTED, "TZ"} - {"TERM"}
    return dict.fromkeys(sorted(names), value) | dict.fromkeys(URLS, url)


@pytest.mark.parametrize("value", some(["nonsense", "1"], of=2))
def test_a_worker_serves_its_own_broker(server: Server, data: Path, calm: Calm, tmp_path: Path, value: str) -> None:
    """It starts, computes and ends as its own settings say; the broker that the variables name is never spoken to."""
    (tmp_path / "other").mkdir()
    with running_server(tmp_path / "other") as other, new_interpreters():
        met = _connections(other)
        wrong = wrong_everywhere(value, other.url)
        with running_fleet(server.url, data, **wrong) as fleet:
            worker = fleet.add(1)
            command = ("planagent", "small.csv", "--broker", server.url, "--out", tmp_path / "run", "--format", "none")
            done = evalq(*command, cwd=data, seconds=120, **wrong)
            assert done.returncode == 0, done.stderr
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(timeout=PATIENCE) == 0
        assert _connections(other) == met + 1, "only this test's own question"
        assert other.client.dbsize() == 0
    same_answer(calm("small.csv"), tmp_path / "run")


def test_an_application_is_as_its_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a program that uses evalq as a library the variables stay, for they may be its own; evalq follows none."""
    for name, value in wrong_everywhere("nonsense", "redis://elsewhere.invalid:1/0").items():
        monkeypatch.setenv(name, value)
    app = make_app(Settings(broker="amqp://guest@here.invalid//"))
    for connection in (app.connection_for_read(), app.connection_for_write(), app.connection(), app.pool.connection):
        assert connection.as_uri() == "evalq-amqp://guest:**@here.invalid:5672//"
    assert type(app.backend).__name__ == "DisabledBackend"
    assert type(app.loader).__name__ == "_Loader"


def test_a_program_of_a_target_has_the_variables_that_it_is_granted(server: Server, data: Path, tmp_path: Path) -> None:
    """Also those that evalq takes out of its own environment: they are for such programs."""
    script = "import json,os,sys; sys.stdin.read(); print(json.dumps({'v': os.environ.get('CELERY_BROKER_URL')}))"
    target = {"kind": "command", "argv": ["python3", "-c", script], "env": ["CELERY_BROKER_URL", "PATH"]}
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"shop": target}}))
    golden = write_golden(tmp_path / "golden.json", {"A": {}})
    with running_fleet(server.url, data, CELERY_BROKER_URL="redis://shop.invalid:6379/0") as fleet, new_interpreters():
        fleet.add(1, "--calls", "2", "--targets", str(tmp_path / "targets.yaml"))
        live = ("vs", golden, "--target", "shop", "--broker", server.url, "--out", tmp_path / "run")
        done: subprocess.CompletedProcess[str] = evalq(*live, cwd=data, seconds=120)
        assert done.returncode == 0, done.stderr
    assert "redis://shop.invalid:6379/0" in (tmp_path / "run" / "outputs.jsonl").read_text()


def _connections(server: Server) -> int:
    server.client.connection_pool.disconnect()
    return int(server.client.info("stats")["total_connections_received"])
