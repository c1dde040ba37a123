"""The password's door: it is in the environment of evalq's processes, and nowhere else."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.harness import (
    EVALQ,
    HAZARDS,
    PATIENCE,
    Server,
    clean_environment,
    evalq,
    new_interpreters,
    same_answer,
    serves,
    start_evalq,
    wait_until,
)

SECRET = "opensesame-0123456789"  # noqa: S105 - of a server that lives as long as a test


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server that asks for SECRET."""
    (tmp_path / "server").mkdir()
    started = Server(tmp_path / "server", None, "--requirepass", SECRET)
    started.url = f"redis://:{SECRET}@127.0.0.1:{started.port}/0"
    started.client = type(started.client).from_url(started.url)
    started.start()
    try:
        yield started
    finally:
        started.kill()


def _told_to_processes(group: int) -> dict[str, str]:
    """Command lines of the process group's members, by program and number (Linux)."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and _session(folder) == group:
                found[folder.name] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
    return found


def _session(folder: Path) -> int:
    """The session leader of the process, or of the evalq command that started it."""
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    parent = int(fields[1])
    own = int(fields[3])
    started_here = own == int(folder.name) and parent == os.getpid()
    return own if parent <= 1 or started_here else _session(Path("/proc") / str(parent))


def test_a_password_stays_where_it_is(server: Server, tmp_path: Path) -> None:
    """A run with local workers: no file of it, no output, no line in the ledger and no `ps` shows the password."""
    gate = tmp_path / "gate"
    gate.touch()
    (tmp_path / "params.json").write_text(json.dumps({"gate": str(gate)}))
    rows = [json.dumps({"id": f"r{number}", "value": number, "waits": True}) for number in range(40)]
    (tmp_path / "in.jsonl").write_text("\n".join(rows) + "\n")
    args = ("hazards", "in.jsonl", "--params", "params.json", "--chunk-size", "10", "-v")
    outputs = ("--out", "run", "-o", "rows.csv", "-o", "report.yaml")
    settings = {"PYTHONPATH": HAZARDS, "EVALQ_CHUNK_SECONDS": str(PATIENCE)}
    with new_interpreters():  # command lines are looked at: a forked process has its server's
        producer = start_evalq(*args, *outputs, "--workers", "1", cwd=tmp_path, EVALQ_BROKER=server.url, **settings)
    lines: dict[str, str] = {}

    def seen() -> bool:
        lines.update(_told_to_processes(producer.pid))
        return any("evalq.producer.cli worker" in line for line in lines.values()) or producer.poll() is not None

    wait_until(seen, "its worker has started")
    gate.unlink()
    out, said = producer.communicate(timeout=PATIENCE)
    assert producer.returncode == 0, said
    calm = evalq(*args, "--inline", "--out", "calm", cwd=tmp_path, PYTHONPATH=HAZARDS)
    assert calm.returncode == 0, calm.stderr
    same_answer(tmp_path / "calm", tmp_path / "run")
    assert sum("evalq.producer.cli worker" in line for line in lines.values()) >= 1, "the worker was seen"
    assert SECRET not in "".join(lines.values()) + out + said
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 6
    assert not [path for path in written if SECRET.encode() in path.read_bytes()]
    for key in server.client.keys("evalq:*"):
        assert SECRET.encode() not in (server.client.dump(key) or b"")


@pytest.mark.parametrize("loglevel", ["WARNING", "DEBUG"])
def test_a_worker_does_not_log_it(server: Server, data: Path, tmp_path: Path, loglevel: str) -> None:
    """Not while it serves, and not when it loses its server."""
    log = tmp_path / "log"
    with log.open("wb") as out:
        worker = subprocess.Popen(
            [*EVALQ, "worker", "--concurrency", "1", "--loglevel", loglevel],
            cwd=data,
            env=clean_environment(EVALQ_BROKER=server.url),
            stdout=out,
            stderr=out,
        )
    try:
        wait_until(lambda: serves(server), "it serves")
        before = log.stat().st_size
        server.kill()
        wait_until(lambda: b"onnect" in log.read_bytes()[before:], "it has seen that its server is gone")
    finally:
        worker.kill()
        worker.wait()
    assert SECRET not in log.read_text(errors="replace")
    server.start()


def test_a_wrong_password_is_no_server_that_is_away(server: Server, tmp_path: Path) -> None:
    """The server answers, and refuses: `evalq doctor` says so, and nothing of the password."""
    done = evalq("doctor", cwd=tmp_path, EVALQ_BROKER=server.url.replace(SECRET, "x" + SECRET))
    said = done.stdout + done.stderr
    assert (done.returncode, SECRET in said) == (3, False)
    assert "refuses this user and password" in done.stdout
    assert "no server answers" not in said


URLS = (
    "redis://me:{}@127.0.0.1:1/0",
    "redis://:{}@127.0.0.1:1/0",
    "rediss://me:{}@127.0.0.1:1/0",
    "redis://127.0.0.1:1/0?password={}",
    "redis://127.0.0.1:1/0?username=x&password={}&health_check_interval=3",
    "redis://me:{}@127.0.0.1:port/0",
    "redis://me:{}@127.0.0.1:99999/0",
    "redis://me:{}@[::1/0",
    "redis://me:{}@127.0.0.1:1/0?nonsense=1",
    "http://me:{}@127.0.0.1:1/0",
    "me:{}@127.0.0.1",
    "amqp://me:{}@127.0.0.1:1//",
)


@pytest.mark.parametrize("url", URLS)
def test_no_error_shows_it(tmp_path: Path, data: Path, url: str) -> None:
    """Servers that are not there and URLs that are none: exit 2 or 3, in a few lines, without the password."""
    for given in [url.format("a@b:c" + SECRET)]:
        done = evalq("planagent", data / "rows.csv", cwd=tmp_path, EVALQ_BROKER=given, EVALQ_CONNECT_SECONDS="1")
        assert done.returncode in (2, 3), done.stderr
        assert "Traceback" not in done.stderr
        assert SECRET not in done.stderr
        assert SECRET not in "".join(path.read_text() for path in tmp_path.rglob("*.json*"))
