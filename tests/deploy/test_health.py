"""The health check of containers: it tells a worker that the ledger hears from one that it does not, or cannot ask."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.deploy.programs import TOP
from tests.integration.harness import (
    PATIENCE,
    Server,
    evalq,
    new_interpreters,
    running_fleet,
    running_server,
    start_evalq,
    wait_until,
)
from tests.integration.ports import free_port

HEALTH = TOP / "deploy" / "health.sh"


def test_a_worker_is_well_while_the_ledger_hears_it(tmp_path: Path) -> None:
    """No heartbeat is 1, a worker's is 0, one that was stopped and has gone silent is 1, one that goes on is 0."""
    with running_server(tmp_path) as server, running_fleet(server.url, tmp_path) as fleet:

        def verdict() -> int:
            return evalq("doctor", "--worker", cwd=tmp_path, EVALQ_BROKER=server.url).returncode

        assert verdict() == 1
        worker = fleet.add(1)
        wait_until(lambda: verdict() == 0, "the worker is heard", pause=0.1)
        with fleet.stopped(worker):
            wait_until(lambda: verdict() == 1, "the stopped worker is missed", pause=0.5)
        wait_until(lambda: verdict() == 0, "the worker is heard again", pause=0.1)


def test_a_worker_that_only_calls_is_heard(tmp_path: Path) -> None:
    """A worker without pool processes has a heartbeat of its own kind."""
    (tmp_path / "targets.yaml").write_text("targets: {own: {kind: command, argv: [cat]}}")
    with running_server(tmp_path) as server, running_fleet(server.url, tmp_path) as fleet:
        fleet.add(0, "--calls", "2", "--targets", "targets.yaml")
        check = ("doctor", "--worker", "--broker", server.url)
        wait_until(lambda: evalq(*check, cwd=tmp_path).returncode == 0, "the worker is heard")


def test_a_ledger_that_cannot_be_asked_is_no_verdict_on_the_worker(tmp_path: Path) -> None:
    """3 where no server answers, so that a probe leaves workers alone that wait for their server; 2 without a URL."""
    away = evalq("doctor", "--worker", "--broker", f"redis://127.0.0.1:{free_port()}/0", cwd=tmp_path)
    assert (away.returncode, "no server answers" in away.stderr) == (3, True)
    unnamed = evalq("doctor", "--worker", cwd=tmp_path)
    assert (unnamed.returncode, "EVALQ_BROKER" in unnamed.stderr) == (2, True)


def test_a_worker_of_another_host_is_not_this_ones(tmp_path: Path) -> None:
    """A heartbeat under another host's name does not cover for this host's silent worker."""
    with running_server(tmp_path) as server:
        other = {"host": "elsewhere", "pid": 1, "code": "0" * 12}
        server.client.hset("evalq:worker:elsewhere-1-ab", mapping=other)
        server.client.sadd("evalq:workers", "elsewhere-1-ab")
        done = evalq("doctor", "--worker", cwd=tmp_path, EVALQ_BROKER=server.url)
        assert done.returncode == 1
        assert "it hears 1 others" in done.stdout


def test_the_image_asks_what_its_role_is(tmp_path: Path) -> None:
    """evalq-health looks at the command: a worker at its heartbeats, others are well as long as they run.

    It starts no program but the shell's, and waits for no server: a worker whose server hangs is alive and not heard.
    """
    file = tmp_path / "health"
    with new_interpreters(), running_server(tmp_path) as server, running_fleet(server.url, tmp_path) as fleet:
        environment = {"PATH": os.defpath, "EVALQ_HEALTH_FILE": str(file)}

        def health(pid: int, asked: str = "heard") -> int:
            command = ["sh", str(HEALTH), asked, str(pid)]
            return subprocess.run(command, env=environment, cwd=TOP, stdout=subprocess.DEVNULL, check=False).returncode

        worker = fleet.add(1, EVALQ_HEALTH_FILE=str(file), EVALQ_PATIENCE_SECONDS="5")
        wait_until(lambda: health(worker.pid) == 0, "the worker is heard", pause=0.1)
        assert server.process is not None
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: health(worker.pid) == 1, "the server hangs", pause=0.1)
            assert health(worker.pid, "alive") == 0
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        wait_until(lambda: health(worker.pid) == 0, "the worker is heard again", pause=0.1)
        other = subprocess.Popen(["sleep", "600"])
        try:
            with fleet.stopped(worker):
                mine = Path(f"{file}.{worker.pid}")
                before = time.time() - 90
                os.utime(mine, (before, before))  # as if it had stood still for so long
                assert (health(worker.pid), health(worker.pid, "alive")) == (1, 1)
            assert health(other.pid) == 0
        finally:
            other.kill()
            other.wait()
        worker.terminate()
        assert worker.wait(timeout=PATIENCE) == 0
        assert not list(tmp_path.glob("health*"))


def test_a_worker_waits_for_a_server_that_starts_after_it(tmp_path: Path) -> None:
    """For ``patience_seconds``: it says so, is alive meanwhile and not heard, and serves when the server is there."""
    server = Server(tmp_path)
    where = {"EVALQ_BROKER": server.url, "EVALQ_HEALTH_FILE": str(tmp_path / "health")}
    worker = start_evalq("worker", "--concurrency", "1", cwd=tmp_path, **where)
    try:
        file = tmp_path / f"health.{worker.pid}"
        wait_until(lambda: file.exists() and file.read_text() == "away\n", "it waits")
        server.start()
        wait_until(lambda: file.read_text() == "heard\n", "it is heard")
        said = worker.stderr
        assert said is not None
        wait_until(lambda: "is ready" in said.readline(), "it serves")
        worker.terminate()
        assert worker.wait(timeout=PATIENCE) == 0
    finally:
        worker.kill()
        worker.wait()
        if server.process is not None:
            server.kill()


def test_a_worker_waits_within_bounds(tmp_path: Path) -> None:
    """Where no server comes within ``patience_seconds`` it ends with 3, a worker that only calls too."""
    (tmp_path / "targets.yaml").write_text("targets: {own: {kind: command, argv: [cat]}}")
    where = {"EVALQ_BROKER": f"redis://127.0.0.1:{free_port()}/0", "EVALQ_PATIENCE_SECONDS": "1"}
    for words in ((), ("--concurrency", "0", "--calls", "1", "--targets", "targets.yaml")):
        done = evalq("worker", *words, cwd=tmp_path, seconds=PATIENCE, **where)
        assert done.returncode == 3
        assert "waiting: no server answers" in done.stderr


class _Well(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """An exporter that lives."""
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
        """Nothing."""


@pytest.mark.parametrize("form", ["--port {}", "--port={}"])
def test_an_exporter_is_asked_at_its_port(form: str) -> None:
    """In either form that an option may have; it is not well where nobody answers there."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def health(port: int) -> int:
        words = ["sh", "-c", "read line", "evalq", "exporter", *form.format(port).split(), "--bind", "::"]
        with subprocess.Popen(words, stdin=subprocess.PIPE) as role:
            shown = Path(f"/proc/{role.pid}/cmdline")
            wait_until(lambda: b"exporter" in shown.read_bytes(), "its command is shown")  # empty while it is exec'd
            command = ["sh", str(HEALTH), str(role.pid)]
            asked = subprocess.run(command, env=os.environ | {"PATH": path}, capture_output=True, check=False)
            role.communicate(b"\n")
        return asked.returncode

    with HTTPServer(("127.0.0.1", 0), _Well) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            assert health(server.server_port) == 0
        finally:
            server.shutdown()
            thread.join()
    with socket.socket() as silent:  # held: another program's exporter might get a port that is free
        silent.bind(("127.0.0.1", 0))
        assert health(silent.getsockname()[1]) != 0
