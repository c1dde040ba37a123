"""Each signal that asks a worker to end does so: in good order, with exit code 0, within the time for it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.harness import (
    HAZARDS,
    PATIENCE,
    Server,
    clean_environment,
    descendants_of,
    evalq,
    launch,
    wait_until,
)
from tests.portions import some

SOFT = 2.0
_BEYOND = 30.0
"""What the end itself may take on a machine that is busy with other tests."""
KINDS = {
    "computes": ("--concurrency", "1"),
    "calls": ("--concurrency", "0", "--calls", "2", "--targets", "t.yaml"),
    "both": ("--concurrency", "1", "--calls", "2", "--targets", "t.yaml"),
}
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


def _worker(folder: Path, server: Server, kind: str) -> subprocess.Popen[bytes]:
    """One that is ready."""
    (folder / "t.yaml").write_text('{"targets": {"own": {"kind": "command", "argv": ["sleep", "600"]}}}')
    environment = clean_environment(EVALQ_SOFT_SHUTDOWN_SECONDS=str(SOFT), PYTHONPATH=HAZARDS)
    words = ["worker", "--broker", server.url, *KINDS[kind]]
    worker: subprocess.Popen[bytes] = launch(
        words, cwd=folder, env=environment, stderr=subprocess.PIPE, start_new_session=True
    )
    assert worker.stderr is not None
    for line in worker.stderr:
        if b"is ready" in line:
            return worker
    raise AssertionError("it ended before it was ready")


@pytest.mark.parametrize("kind", some(list(KINDS), of=3))
@pytest.mark.parametrize("number", ENDING, ids=lambda number: number.name)
def test_a_worker_ends_by_it(server: Server, tmp_path: Path, kind: str, number: signal.Signals) -> None:
    """With a chunk that computes for longer than that: it is given back, and no process stays."""
    worker = _worker(tmp_path, server, kind)
    if kind != "calls":
        (tmp_path / "in.jsonl").write_text('{"id": "a", "value": 1}\n')
        (tmp_path / "p.yaml").write_text("pause: 50\n")
        words = ("hazards", "in.jsonl", "--broker", server.url, "--params", "p.yaml", "--detach", "--out", "run")
        begun = evalq(*words, cwd=tmp_path, PYTHONPATH=HAZARDS)
        assert begun.returncode == 0, begun.stderr
        wait_until(
            lambda: any(server.client.hlen(key) for key in server.client.keys("evalq:run:*:leases")), "it computes"
        )
    began, below = time.monotonic(), descendants_of(worker.pid)
    worker.send_signal(number)
    assert worker.wait(timeout=PATIENCE) == 0
    assert time.monotonic() - began < SOFT + _BEYOND
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), "no process of it stays")
    assert not _leases(server), "it gave all back"


def _leases(server: Server) -> int:
    return sum(server.client.hlen(key) for key in server.client.keys("evalq:run:*:leases"))


AT_ONCE = """
import os, sys
from celery.signals import worker_ready

worker_ready.connect(lambda **_: os.kill(os.getpid(), int(os.environ["NUMBER"])), weak=False)
from evalq.producer.entry import main

sys.exit(main())
"""


@pytest.mark.parametrize("number", ENDING, ids=lambda number: number.name)
def test_a_worker_that_has_only_just_begun_ends_by_it(server: Server, tmp_path: Path, number: signal.Signals) -> None:
    """With exit code 0: right after it is ready it asks its pool, which the signal has ended, whether that started."""
    environment = clean_environment(NUMBER=str(int(number)))
    words = [sys.executable, "-c", AT_ONCE, "worker", "--broker", server.url, "--concurrency", "1"]
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE, start_new_session=True
    )
    assert (done.returncode, "is ready" in done.stderr) == (0, True), done.stderr
