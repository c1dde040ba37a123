"""Real servers, real workers, real commands: what integration tests are made of."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import redis

from evalq.producer.local.processes import server_program
from tests.integration import preloaded
from tests.integration.forked import SPARE
from tests.integration.ports import free_port
from tests.integration.preloaded import Preloaded, startable

EVALQ = (sys.executable, "-m", "evalq.producer.cli")
HAZARDS = os.pathsep.join([str(Path(__file__).parents[1] / "hazards"), str(Path(__file__).parents[2])])
"""PYTHONPATH of commands and workers that know the evaluator `hazards`, whose records kill."""
PATIENCE = 600.0
"""Seconds after which a test gives up: no promise of evalq's, only an end to what would wait for ever."""


def wait_until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE, pause: float = 0.01) -> Any:
    """Poll ``condition`` until it is true and return its value; after ``seconds``, fail naming ``what``.

    The longer it waits, the less often it asks: to ask is work that what it waits for cannot do meanwhile. Where to ask
    is to start a process, give it a longer ``pause``.
    """
    began = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        waited = time.monotonic() - began
        assert waited < seconds, f"waited {seconds} s in vain: {what}"
        time.sleep(max(pause, min(0.01 + waited / 100, 0.04)))


class Server:
    """A Redis or Valkey of a test's own, on loopback TCP; can be stopped and started again."""

    def __init__(self, folder: Path, program: str | None = None, *options: str) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._command = [program or server_program(), "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        self._command += ["--dir", str(folder), *options]
        self.process: subprocess.Popen[bytes] | None = None
        self.client: Any = redis.Redis.from_url(self.url)

    def start(self) -> None:
        """Start and wait until it answers."""
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        wait_until(self._answers, "the server answers")

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the server ended with exit code {self.process.returncode}"
        with contextlib.suppress(redis.RedisError):
            return bool(self.client.ping())
        return False


@contextlib.contextmanager
def running_server(folder: Path, program: str | None = None, *options: str) -> Iterator[Server]:
    """A server for the length of a block."""
    server = Server(folder, program, *options)
    server.start()
    try:
        yield server
    finally:
        server.kill()


class Fleet:
    """Worker processes, each in a process group of its own."""

    def __init__(self, broker: str, cwd: Path, environment: dict[str, str] | None = None) -> None:
        self._broker = broker
        self._cwd = cwd
        self._environment = clean_environment(**(environment or {}))
        self.processes: list[subprocess.Popen[bytes]] = []

    def add(
        self, concurrency: int = 2, *options: str, stderr: Any = None, **environment: str
    ) -> subprocess.Popen[bytes]:
        """Start a worker; it serves when it serves. ``stderr`` as for `subprocess.Popen`."""
        args = ["worker", "--broker", self._broker, "--concurrency", str(concurrency), *options]
        variables = {**self._environment, **environment}
        streams = {} if stderr is None else {"stderr": stderr}
        process: subprocess.Popen[bytes] = launch(args, cwd=self._cwd, env=variables, start_new_session=True, **streams)
        self.processes.append(process)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL to a worker's whole group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    @contextlib.contextmanager
    def stopped(self, process: subprocess.Popen[Any]) -> Iterator[None]:
        """A process's whole group stands still for the length of a block: SIGSTOP, and SIGCONT if it is still there."""
        os.killpg(process.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: _stands_still(process.pid), "the process stands still")
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGCONT)

    def kill_at_work(self, server: Server) -> None:
        """SIGKILL to the whole group of a worker at a moment when the ledger has a lease of it.

        Some run has to wait for whoever asks for this (`tests.integration.midway.hold`): else all might be done before.
        """

        def killed() -> bool:
            return any(self._killed(process, server) for process in self.processes if process.poll() is None)

        wait_until(killed, "a worker holds a chunk")

    def _killed(self, process: subprocess.Popen[bytes], server: Server) -> bool:
        with self.stopped(process):
            server.client.ping()  # whatever it sent before it stood still is done behind this
            held = _leased(server, process.pid)
            if held:
                self.kill(process)
            return held

    def close(self) -> None:
        """End what still runs."""
        for process in self.processes:
            self.kill(process)


@contextlib.contextmanager
def running_fleet(broker: str, cwd: Path, **environment: str) -> Iterator[Fleet]:
    """Workers for the length of a block."""
    fleet = Fleet(broker, cwd, environment)
    try:
        yield fleet
    finally:
        fleet.close()


def clean_environment(**extra: str) -> dict[str, str]:
    """This environment without evalq's variables, and with ``extra``."""
    return {key: value for key, value in os.environ.items() if not key.startswith("EVALQ_")} | extra


def evalq(
    *args: str | Path, cwd: Path, seconds: float = PATIENCE, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as a user would."""
    variables = clean_environment(**environment)
    with launch(args, cwd=cwd, env=variables, **_CAPTURED) as process:
        try:
            out, said = process.communicate(timeout=seconds)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(args, process.returncode, out, said)


def start_evalq(*args: str | Path, cwd: Path, **environment: str) -> subprocess.Popen[str]:
    """Start a command, in a process group of its own."""
    return launch(args, cwd=cwd, env=clean_environment(**environment), start_new_session=True, **_CAPTURED)


_CAPTURED: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def launch(args: Sequence[str | Path], *, cwd: Path, env: dict[str, str], **how: Any) -> subprocess.Popen[Any]:
    """Start a command; it need not import evalq first, unless `new_interpreters` or ``env`` ask for a new one."""
    words = list(map(str, args))
    if preloaded.forks and startable(env, HAZARDS):
        return Preloaded("worker" if words[:1] == ["worker"] else "command", words, cwd=cwd, env=env, **how)
    return subprocess.Popen([*EVALQ, *words], cwd=cwd, env=env, **how)


@contextlib.contextmanager
def new_interpreters() -> Iterator[None]:
    """For the length of a block, commands and workers start as users start them, from nothing."""
    before, preloaded.forks = preloaded.forks, False
    try:
        yield
    finally:
        preloaded.forks = before


def info(folder: Path) -> dict[str, Any]:
    """A run folder's run.json; empty while there is none."""
    path = folder / "run.json"
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return result


def committed(server: Server, folder: Path) -> int:
    """Chunks the ledger holds of the run in ``folder``."""
    run = info(folder).get("run")
    return int(server.client.hget(f"evalq:run:{{{run}}}:meta", "committed") or 0) if run else 0


def queued(server: Server, folder: Path) -> int:
    """Messages that wait in the queue of the run in ``folder``."""
    queue = server.client.hget("evalq:runs", info(folder).get("run", ""))
    return int(server.client.llen(queue)) if queue else 0


def serves(server: Server) -> bool:
    """Whether a worker waits at its queues: it is listed a little earlier."""
    return any(client["cmd"] == "brpop" for client in server.client.client_list())


def same_answer(one: Path, other: Path) -> None:
    """Assert that two run folders hold the same report and the same records, byte for byte."""
    for name in ("report.json", "records.jsonl"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), f"{name} of {one} and {other} differ"


def children_of(pid: int) -> Sequence[int]:
    """Direct children of a process that do something (Linux)."""
    listed = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid=,comm="], capture_output=True, text=True, check=False)
    return [int(line.split()[0]) for line in listed.stdout.splitlines() if SPARE not in line]


def descendants_of(pid: int) -> list[int]:
    """The processes below one that do something, whatever group they are in (Linux)."""
    below = children_of(pid)
    return [*below, *(found for child in below for found in descendants_of(child))]


def _stands_still(group: int) -> bool:
    """Whether every thread of a stopped process group is stopped or has ended (Linux)."""
    states = set()
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):  # it is no process, or none any more
            if os.getpgid(int(process.name)) == group:
                states |= {_state(thread) for thread in (process / "task").iterdir()}
    if "D" in states:
        # A thread that starts a program stops only after its child has come as far as that, which is stopped before it.
        os.killpg(group, signal.SIGCONT)
        os.killpg(group, signal.SIGSTOP)
    return states <= {"T", "Z", "X"}


def _state(thread: Path) -> str:
    with contextlib.suppress(OSError):
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    return "X"


def _leased(server: Server, worker: int) -> bool:
    """Whether chunks are leased to the worker whose main process has this number."""
    holders = [lease for key in server.client.scan_iter("evalq:run:*:leases") for lease in server.client.hvals(key)]
    return any(f"-{worker}-".encode() in holder for holder in holders)


def short_folder() -> Path:
    """A temporary folder whose path is short enough for sockets; the caller removes it."""
    return Path(tempfile.mkdtemp(prefix="eq-", dir="/tmp" if len(tempfile.gettempdir()) > 40 else None))


def remove(folder: Path) -> None:
    """Remove a folder with all in it."""
    shutil.rmtree(folder, ignore_errors=True)
