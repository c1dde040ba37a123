"""Flower and celery-exporter, as pip installs them, beside a worker of evalq: what docs/how-to/beside-celery.md says.

`make peers` installs them in environments of their own, and runs this; `make test` knows nothing of it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.chaos.seen import rivals
from tests.chaos.seen.observers import OBSERVERS, Observer
from tests.integration.harness import HAZARDS, Fleet, Server, start_evalq, wait_until
from tests.integration.midway import Held, hold
from tests.integration.ports import free_port

OPEN = {"EVALQ_CELERY_EVENTS": "true", "EVALQ_REMOTE_CONTROL": "read-only"}
FLOWER, EXPORTER = (next(one for one in OBSERVERS if one.name == name) for name in ("Flower", "celery-exporter"))


@pytest.fixture(scope="module")
def environments() -> Path:
    """Where they are installed, now or by an earlier run."""
    folder = Path(os.environ.get("EVALQ_IMPORTERS", tempfile.gettempdir())) / "evalq-beside"
    folder.mkdir(parents=True, exist_ok=True)
    rivals.install(folder)
    return folder


@contextlib.contextmanager
def running(observer: Observer, environments: Path, server: Server, folder: Path) -> Iterator[httpx.Client]:
    """One of them for the length of a block, which begins when it answers."""
    port, own = free_port(), folder / observer.name
    own.mkdir()
    command = observer.command(rivals.environment_of(observer, environments), server.url, port, own)
    variables = {"PATH": os.environ["PATH"]} | observer.environment
    with (own / "log").open("wb") as log, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        process = subprocess.Popen(command, cwd=own, env=variables, stdout=log, stderr=log)
        try:
            wait_until(lambda: _answers(client), f"{observer.name} answers", pause=0.2)
            yield client
        finally:
            process.kill()
            process.wait()


def _answers(client: httpx.Client) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return client.get("/metrics").status_code == 200
    return False


def _tasks(flower: httpx.Client) -> list[dict[str, Any]]:
    return list(flower.get("/api/tasks").raise_for_status().json().values())


def _states(flower: httpx.Client) -> list[str]:
    return [task["state"] for task in _tasks(flower)]


def _has(exporter: httpx.Client, *parts: str) -> bool:
    lines = exporter.get("/metrics").text.splitlines()
    return any(all(part in line for part in parts) for line in lines)


def test_flower_and_celery_exporter_show_workers_and_chunks(
    environments: Path, server: Server, fleet: Fleet, tmp_path: Path
) -> None:
    """By the names that the page shows, while the run goes on and when it is over."""
    held: Held = hold(tmp_path, free=3, held=1)
    with (
        running(FLOWER, environments, server, tmp_path) as flower,
        running(EXPORTER, environments, server, tmp_path) as exporter,
    ):
        worker = fleet.add(2, "--root", str(tmp_path), **OPEN, PYTHONPATH=HAZARDS)
        wait_until(lambda: _has(exporter, "celery_worker_up", " 1.0"), "a heartbeat came", pause=0.2)
        command = (*held.command, "--suite", "nightly", "--broker", server.url)
        run = start_evalq(*command, cwd=tmp_path, PYTHONPATH=HAZARDS)
        wait_until(lambda: [task for task in _tasks(flower) if task["state"] == "STARTED"], "it is held", pause=0.2)
        wait_until(
            lambda: len([task for task in _tasks(flower) if task["state"] == "SUCCESS"]) == 3, "three", pause=0.2
        )
        (at_work,) = [task for task in _tasks(flower) if task["state"] == "STARTED"]
        assert at_work["name"] == "evalq hazards nightly"
        assert at_work["args"].startswith("hazards nightly, chunk 4")
        (name, shown), *others = flower.get("/api/workers", params={"refresh": "true"}).json().items()
        assert not others
        assert name.startswith("evalq@")
        assert shown["stats"]["pool"]["max-concurrency"] == 2
        assert shown["registered"] == ["evalq.evaluate"]
        lengths = flower.get("/api/queues/length").json()["active_queues"]
        assert {queue["name"].rpartition(".")[0] for queue in lengths} == {"evalq.interactive", "evalq.bulk"}
        wait_until(
            lambda: _has(exporter, "celery_task_succeeded_total", 'name="evalq hazards nightly"', " 3.0"),
            "the exporter counts three",
            pause=0.2,
        )
        assert _has(exporter, "celery_queue_length", 'queue_name="evalq.bulk.')
        stopped = flower.post(f"/api/worker/shutdown/{name}")
        assert stopped.status_code in (200, 403, 500), "whatever Flower makes of the refusal"
        assert worker.poll() is None, "its button stops no worker"
        held.let_go()
        assert run.wait() == 0
        wait_until(lambda: set(_states(flower)) == {"SUCCESS"}, "all are done", pause=0.2)
