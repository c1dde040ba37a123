"""No command waits in silence or for ever: what it waits for is said within 5 s, and it ends with what to do."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalq.workers.servers.connections import AGAIN_SECONDS
from tests.awake import awake
from tests.integration.conftest import Calm
from tests.integration.harness import (
    HAZARDS,
    PATIENCE,
    Fleet,
    Server,
    children_of,
    evalq,
    info,
    new_interpreters,
    same_answer,
    start_evalq,
    wait_until,
)
from tests.integration.midway import WINDOW, hold, standing_midway
from tests.integration.ports import free_port
from tests.unit.workers.states import STATES

LIMIT = 6.0
"""EVALQ_PATIENCE_SECONDS of commands that are to end."""


class Ear:
    """What a command says, and when."""

    def __init__(self, process: subprocess.Popen[str], stream: str = "stderr") -> None:
        self.lines: list[tuple[float, str]] = []
        self._thread = threading.Thread(target=self._listen, args=(getattr(process, stream),), daemon=True)
        self._thread.start()

    def _listen(self, stream: Iterator[str]) -> None:
        for line in stream:
            self.lines.append((time.monotonic(), line.rstrip("\n")))

    def said(self, pattern: str) -> float | None:
        """When a line that matches came first."""
        return next((at for at, line in list(self.lines) if re.search(pattern, line)), None)

    def hears(self, pattern: str, seconds: float = PATIENCE) -> float:
        """Wait for such a line."""
        return float(wait_until(lambda: self.said(pattern), f"it says {pattern!r}: {self.lines}", seconds))

    @property
    def text(self) -> str:
        """All of it, to the end."""
        self._thread.join(PATIENCE)
        return "\n".join(line for _, line in self.lines)


def _start(server: Server, data: Path, out: Path, *args: str, **environment: str) -> subprocess.Popen[str]:
    place = ("--broker", server.url, "--chunk-size", "25", "--out", str(out), "--format", "none")
    return start_evalq("planagent", "mid.csv", *place, *args, cwd=data, EVALQ_WINDOW=str(WINDOW), **environment)


def test_a_stopped_server_is_reported_in_time_and_ends_a_run_with_how_to_resume(
    server: Server, fleet: Fleet, data: Path, calm: Calm, tmp_path: Path
) -> None:
    """SIGSTOP: within 5 s a line, with -q too; after patience_seconds exit code 3 and a command that works."""
    out = tmp_path / "run"
    producer = _start(server, data, out, "-q", EVALQ_PATIENCE_SECONDS=str(LIMIT))
    ear = Ear(producer)
    assert server.process is not None
    with standing_midway(server, fleet, producer, out), awake(producer.pid) as clock:
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            began = clock()
            ear.hears(rf"^waiting: .*127\.0\.0\.1:{server.port}.* {LIMIT:g} s at most")
            assert clock() - began < 5
            assert producer.wait(timeout=PATIENCE) == 3
            assert clock() - began < LIMIT + 10
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
    assert "Traceback" not in ear.text
    assert f"resume with: evalq resume {out}" in ear.text
    resumed = evalq("resume", out, "--broker", server.url, "--format", "none", cwd=data)
    assert resumed.returncode == 0, resumed.stderr
    same_answer(calm("mid.csv"), out)


def test_a_server_that_takes_no_writes_is_waited_for_as_a_json_line(
    server: Server, fleet: Fleet, data: Path, calm: Calm, tmp_path: Path
) -> None:
    """Replicas are missing for a while: an event says so within 5 s, another that it is over; the answer is whole."""
    out = tmp_path / "run"
    producer = _start(server, data, out, "--json")
    ear = Ear(producer, "stdout")
    with standing_midway(server, fleet, producer, out), STATES["NOREPLICAS"](server), awake(producer.pid) as clock:
        ear.hears('"event":"waiting"')
        assert clock() < 5
    ear.hears('"event":"recovered"')
    assert producer.wait(timeout=PATIENCE) == 0
    events = [json.loads(line) for line in ear.text.splitlines()]
    (message,) = [event for event in events if event["event"] == "waiting"]
    assert "has too few replicas to accept writes" in message["what"]
    assert message["limit"] == 120
    same_answer(calm("mid.csv"), out)


def test_ctrl_c_while_the_server_is_away_is_an_interruption(server: Server, data: Path, tmp_path: Path) -> None:
    """Exit code 130 and how to resume, at once and without a traceback, whether the server is gone or stopped."""
    out = tmp_path / "run"
    producer = _start(server, data, out)
    ear = Ear(producer)
    wait_until(lambda: info(out).get("epoch"), "the run begins")
    server.kill()
    ear.hears("^waiting: ")
    with awake(producer.pid) as clock:
        producer.send_signal(signal.SIGINT)
        assert producer.wait(timeout=PATIENCE) == 130
        assert clock() < 10
    assert "Traceback" not in ear.text
    assert f"evalq resume {out}" in ear.text


def test_rights_that_lack_end_a_command_with_a_sentence(server: Server, data: Path, tmp_path: Path) -> None:
    """Exit code 3, which is no answer of a policy, and no library's traceback: in a run as in a look."""
    server.client.acl_setuser(
        "weak", enabled=True, nopass=True, categories=["+@all"], commands=["-evalsha"], keys=["*"]
    )
    url = f"redis://weak:x@127.0.0.1:{server.port}/0"
    for args in (("planagent", "small.csv", "--out", tmp_path / "run"), ("status", "nowhere"), ("list",)):
        done = evalq(*args, "--broker", url, cwd=data)
        if args[0] == "list" and done.returncode == 0:
            continue  # a look that needs no script
        assert done.returncode == 3, done.stderr
        assert "Traceback" not in done.stderr
        assert "users.acl" in done.stderr
    found = evalq("doctor", "--broker", f"redis://nobody:x@127.0.0.1:{server.port}/0", cwd=data)
    assert (found.returncode, "refuses this user and password" in found.stdout) == (3, True)


def test_detaching_to_a_full_server_is_reported_and_ends(server: Server, data: Path, tmp_path: Path) -> None:
    """The same words and the same end as for a run that stays."""
    with STATES["OOM"](server):
        left = _start(server, data, tmp_path / "run", "--detach", EVALQ_PATIENCE_SECONDS=str(LIMIT))
        ear = Ear(left)
        with awake(left.pid) as clock:
            wait_until(lambda: info(tmp_path / "run").get("run"), "the run begins")
            assert left.wait(timeout=PATIENCE) == 3
            assert clock() < LIMIT + 20
    assert re.search(r"waiting: .* is full \(OOM\)", ear.text)
    assert f"resume with: evalq resume {tmp_path / 'run'}" in ear.text
    assert "Traceback" not in ear.text


def test_a_worker_says_what_it_serves_once_it_is_ready(server: Server, data: Path) -> None:
    """One line: its name, the servers without passwords, queues, evaluators, processes, folders and calls."""
    server.client.config_set("requirepass", "secret")
    url = f"redis://:secret@127.0.0.1:{server.port}/0"
    worker = start_evalq("worker", "--broker", url, "--concurrency", "1", cwd=data)
    ear = Ear(worker)
    ear.hears("^worker .* is ready: ")
    worker.send_signal(signal.SIGTERM)
    worker.wait(timeout=PATIENCE)
    (line,) = [line for _, line in ear.lines if "is ready" in line]
    for part in (f"broker redis://:***@127.0.0.1:{server.port}/0", "ledger", "queues evalq.interactive.", "planagent"):
        assert part in line
    assert "1 process;" in line
    assert f"reads {data.resolve()}" in line
    assert "no live calls" in line
    assert "secret" not in ear.text


def _connections(server: Server) -> int:
    """How many it has accepted since it started."""
    return int(server.client.info("stats")["total_connections_received"])


def test_a_worker_is_not_loud_about_a_server_that_takes_no_writes(server: Server, data: Path) -> None:
    """It connects several times a second to a replica that was its primary, and a log told each time, with tracebacks.

    That it goes on trying, the server counts; and it is ready for work as soon as it may write again.
    """
    worker = start_evalq("worker", "--broker", server.url, "--concurrency", "1", cwd=data)
    ear = Ear(worker)
    ear.hears("^worker .* is ready: ")
    with STATES["READONLY"](server):
        ear.hears("waiting: the ledger at .* read-only replica")
        began, before = time.monotonic(), _connections(server)
        wait_until(lambda: _connections(server) > before + 40, "it has tried again and again")
        lasted = time.monotonic() - began
    ear.hears("is back after")
    worker.send_signal(signal.SIGTERM)
    worker.wait(timeout=PATIENCE)
    # How Celery words it depends on its version, and on redis-py's: it fails as it connects, or just after that.
    tries = [line for _, line in ear.lines if "Cannot connect" in line or "Connection to broker lost" in line]
    assert 1 <= len(tries) <= 3 + 2 * lasted / AGAIN_SECONDS, tries
    assert "Traceback" not in ear.text


def test_a_process_that_calls_waits_for_a_ledger_in_one_line(server: Server, tmp_path: Path) -> None:
    """Not a traceback a second; and it is there when the ledger is."""
    (tmp_path / "targets.yaml").write_text("targets: {one: {kind: command, argv: [cat]}}\n")
    server.kill()
    settings = {"EVALQ_BROKER": server.url, "EVALQ_TARGETS": "targets.yaml", "EVALQ_CALLS": "2"}
    command = ["-c", "import sys; from evalq.workers.callers.main import main; sys.exit(main())"]
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=tmp_path,
        env=os.environ | settings,
        stderr=subprocess.PIPE,
        text=True,
    )
    ear = Ear(process)
    began = ear.hears("waiting: no server answers")
    wait_until(lambda: time.monotonic() - began > 4, "it had time to say it again")
    assert len(ear.lines) == 1, ear.lines
    server.start()
    wait_until(lambda: server.client.keys("evalq:caller:*"), "it lives")
    process.terminate()
    process.wait(timeout=PATIENCE)
    assert "Traceback" not in ear.text


def _own(producer: subprocess.Popen[str], mark: str) -> int | None:
    """The number of a command's own process, behind its guard."""
    for guard in children_of(producer.pid):
        for child in children_of(guard):
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{child}/cmdline").read_bytes()
                if mark.encode() in line and not line.startswith(b"/bin/sh"):
                    return child
    return None


@pytest.mark.parametrize(("mark", "name"), [("unixsocket", "the embedded server"), ("worker", "the local worker")])
def test_a_command_s_own_process_that_dies_is_started_again(tmp_path: Path, mark: str, name: str) -> None:
    """SIGKILL in mid-run: it is said at once, with -q too, and the run goes on to the same answer."""
    out, held = tmp_path / "run", hold(tmp_path)
    with new_interpreters():  # they are known by their command lines
        args = (*held.command, "--workers", "1", "-q", "--out")
        producer = start_evalq(*args, out, cwd=tmp_path, PYTHONPATH=HAZARDS)
    ear = Ear(producer)
    wait_until(lambda: info(out).get("progress", {}).get("committed", 0) > 5, "it goes")
    victim = _own(producer, mark)
    assert victim is not None
    with awake(producer.pid) as clock:
        os.kill(victim, signal.SIGKILL)
        ear.hears(rf"^{name} ended \(SIGKILL\); it is started again \(1 of 3\)")
        assert clock() < 5
    held.let_go()
    assert producer.wait(timeout=PATIENCE) == 0, ear.text
    same_answer(held.calm(), out)


def _broken(folder: Path) -> str:
    """PYTHONPATH of an installation whose workers cannot start."""
    (folder / "sitecustomize.py").write_text(
        "import sys\nif 'worker' in sys.orig_argv:\n    sys.exit('cannot import name celery')\n"
    )
    return str(folder)


def _unserved(data: Path, out: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    args = ("--workers", "1", "--format", "none", "--out", out)
    return evalq("planagent", "small.csv", *args, cwd=data, PYTHONPATH=_broken(tmp_path))


def test_a_worker_that_cannot_start_ends_the_command(data: Path, tmp_path: Path) -> None:
    """Tried four times, then exit code 3 with its last words and a command that resumes; no URL that is not there."""
    done = _unserved(data, tmp_path / "run", tmp_path)
    assert done.returncode == 3
    last = done.stderr.splitlines()[-1]
    assert "the local worker ended 4 times, the last time with exit code 1: " in last
    assert "cannot import name celery" in last
    assert last.endswith(f"resume with: evalq resume {tmp_path / 'run'}")
    assert "--broker" not in done.stderr
    resumed = evalq("resume", tmp_path / "run", "--format", "none", cwd=data)
    assert resumed.returncode == 0, resumed.stderr


def test_a_broker_that_is_away_is_no_fault_of_the_disk(
    server: Server, fleet: Fleet, data: Path, tmp_path: Path
) -> None:
    """RabbitMQ that does not answer at the start: exit code 3, its address, and no word about writing."""
    broker = f"amqp://guest:guest@127.0.0.1:{free_port()}//"
    args = ("--broker", broker, "--ledger", server.url, "--out", tmp_path / "run")
    done = evalq("planagent", "small.csv", *args, cwd=data, EVALQ_PATIENCE_SECONDS="3")
    assert done.returncode == 3
    assert "the broker at amqp://guest:***@127.0.0.1" in done.stderr
    assert "does not answer" in done.stderr
    assert "may write there" not in done.stderr
    assert "Traceback" not in done.stderr
