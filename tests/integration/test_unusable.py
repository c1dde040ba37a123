"""A server that evalq cannot use is refused by every command that reaches it: exit 3, which one, why, what to do."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from evalq.producer.local.processes import server_program
from tests.integration.harness import Server, evalq, running_server, wait_until
from tests.integration.ports import free_port

COMMANDS = (
    "planagent few.csv",
    "planagent few.csv --detach",
    "status x",
    "list",
    "watch x",
    "report x",
    "history",
    "cancel x",
    "doctor",
    "exporter --port 0",
    "worker --concurrency 1",
    "worker --concurrency 0 --calls 1 --targets t.yaml",
)


@contextlib.contextmanager
def _cluster(folder: Path) -> Iterator[Server]:
    """A node that has all slots, so that it answers and writes as a lone one."""
    bus = ("--cluster-port", str(free_port()))  # else 10,000 above its own, where the near end of a connection may be
    with running_server(folder, shutil.which("redis-server"), "--cluster-enabled", "yes", *bus) as server:
        server.client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: b"cluster_state:ok" in _cluster_info(server), "the cluster is up")
        yield server


def _cluster_info(server: Server) -> bytes:
    found = server.client.execute_command("CLUSTER INFO")
    return found if isinstance(found, bytes) else f"cluster_state:{found['cluster_state']}".encode()


@contextlib.contextmanager
def _replica(folder: Path) -> Iterator[Server]:
    """Of a server that is there."""
    (folder / "primary").mkdir()
    (folder / "replica").mkdir()
    with running_server(folder / "primary") as primary, running_server(folder / "replica") as server:
        server.client.replicaof("127.0.0.1", primary.port)
        wait_until(lambda: server.client.info("replication")["master_link_status"] == "up", "it has all")
        yield server


@contextlib.contextmanager
def _sentinel(folder: Path) -> Iterator[Server]:
    """The door to a primary, and no server of data."""
    with running_server(folder) as primary:
        server = Server(folder, "false")
        file = folder / "sentinel.conf"
        file.write_text(f"port {server.port}\nbind 127.0.0.1\nsentinel monitor mine 127.0.0.1 {primary.port} 1\n")
        server._command = [server_program(), str(file), "--sentinel"]
        server.start()
        try:
            yield server
        finally:
            server.kill()


class _Older(socketserver.StreamRequestHandler):
    """Says which version it is, and that it knows nothing else."""

    def handle(self) -> None:
        """A command is so many lines: their number, and each with its length before it."""
        while line := self.rfile.readline():
            words = [self.rfile.read(int(self.rfile.readline()[1:]) + 2).strip() for _ in range(int(line[1:]))]
            if words[0].upper() != b"HELLO":
                answers = {b"CLIENT": b"+OK", b"PING": b"+PONG"}
                self.wfile.write(answers.get(words[0].upper(), b"-ERR unknown command") + b"\r\n")
                continue
            facts = {"server": "redis", "version": self.server.version, "mode": "standalone", "role": "master"}  # type: ignore[attr-defined]  # given below
            self.wfile.write(b"%%%d\r\n" % (len(facts) + 1))
            for text in (text for item in facts.items() for text in item):
                self.wfile.write(b"$%d\r\n%s\r\n" % (len(text), text.encode()))
            self.wfile.write(b"$5\r\nproto\r\n:3\r\n")


@contextlib.contextmanager
def _says(version: str) -> Iterator[str]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Older) as server:
        server.daemon_threads, server.version = True, version  # type: ignore[attr-defined]  # for its handlers
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"redis://127.0.0.1:{server.server_address[1]}/0"
        server.shutdown()


KINDS: dict[str, tuple[Callable[[Path], AbstractContextManager[Server]], str]] = {
    "cluster": (_cluster, "it is in cluster mode, and evalq needs one server"),
    "replica": (_replica, "is a read-only replica (READONLY): evalq needs its primary"),
    "sentinel": (_sentinel, "it is a Sentinel, which keeps no data"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_refused_by_every_command(tmp_path: Path, data: Path, kind: str) -> None:
    """In a line or two on standard error."""
    begin, why = KINDS[kind]
    (tmp_path / "t.yaml").write_text('{"targets": {"own": {"kind": "command", "argv": ["cat"]}}}')
    shutil.copy(data / "few.csv", tmp_path)
    with begin(tmp_path) as server:
        for command in COMMANDS:
            if kind == "replica" and command.partition(" ")[0] in ("worker", "exporter"):
                continue  # they wait, or say so in a metric: a replica may become the primary again
            done = evalq(*shlex.split(command), "--broker", server.url, cwd=tmp_path)
            said = done.stderr + done.stdout
            assert done.returncode == 3, (command, said)
            assert server.url in said, command
            assert why in said, command
            assert "Traceback" not in said, command
            assert len(done.stderr.splitlines()) <= 2, (command, done.stderr)


def test_a_broker_beside_a_ledger_that_would_do(tmp_path: Path, data: Path) -> None:
    """By whoever sends messages, and whoever takes them."""
    (tmp_path / "ledger").mkdir()
    with _cluster(tmp_path) as server, running_server(tmp_path / "ledger") as ledger:
        for command in ("planagent few.csv", "planagent few.csv --detach", "worker --concurrency 1"):
            done = evalq(*shlex.split(command), "--broker", server.url, "--ledger", ledger.url, cwd=data)
            assert done.returncode == 3, (command, done.stderr)
            assert "it is in cluster mode" in done.stderr
            assert server.url in done.stderr


def test_a_redis_that_is_too_old(tmp_path: Path) -> None:
    """By its own words: 7.0 is the first that will do. Played, as no old one is at hand where tests run."""
    for version, refused in (("6.2.14", True), ("7.0.0", False), ("8.0", False), ("10.1", False)):
        with _says(version) as url:
            done = evalq("list", "--broker", url, cwd=tmp_path)
        assert done.returncode == 3
        assert (f"it is Redis {version}: evalq needs Redis 7.0 or any Valkey" in done.stderr) == refused
