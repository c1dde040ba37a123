"""The server's door: with deploy/redis/users.acl each role does all of its own work, and none of the others'."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from evalq.producer.local.processes import server_program
from evalq.workers.ledger.keys import HistoryKeys, RunKeys, SweepKeys
from evalq.workers.names import TRANSPORT
from evalq.workers.ratelimit import PoolLimits, RateLimiter
from tests.agents.server import write_golden
from tests.doors.intruder import QUEUE
from tests.integration.harness import PATIENCE, Server, clean_environment, evalq, info, launch, same_answer, wait_until
from tests.integration.scraping import running_exporter
from tests.portions import some

DEPLOY = Path(__file__).parents[2] / "deploy" / "redis"
ROLES = ("producer", "worker", "exporter")
_REDIS = shutil.which("redis-server")


class GuardedServer(Server):
    """A server with the users of deploy/redis, and a password for each."""

    def __init__(self, folder: Path, program: str) -> None:
        users = (DEPLOY / "users.acl").read_text()
        assert users.count(">change-me-") == 4
        (folder / "users.acl").write_text(users.replace(">change-me-", ">secret-of-"))
        super().__init__(folder, program, "--aclfile", str(folder / "users.acl"))
        self.client = self.as_user("admin")

    def url_of(self, role: str) -> str:
        """The server's URL for a role's user."""
        return f"redis://evalq-{role}:secret-of-{role}@127.0.0.1:{self.port}/0"

    def as_user(self, role: str) -> Any:
        """A client logged in as a role's user."""
        return redis.Redis.from_url(self.url_of(role))


@pytest.fixture(scope="module", params=some(["embedded", "redis-server"], of=2))
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    """Valkey as it is embedded, and Redis as Debian has it."""
    if request.param == "redis-server" and _REDIS is None:
        pytest.skip("redis-server is not installed")
    program = server_program() if request.param == "embedded" else str(_REDIS)
    server = GuardedServer(tmp_path_factory.mktemp("acl"), program)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def test_a_run_with_each_role_by_its_user(guarded: GuardedServer, data: Path, calm: Path, tmp_path: Path) -> None:
    """Producer and worker as two users, over a whole run: the bytes of the inline run; nobody is refused anything."""
    guarded.client.acl_log_reset()
    blind = tmp_path / "blind"
    blind.mkdir()
    targets = tmp_path / "targets.yaml"
    targets.write_text(json.dumps({"targets": {"cat": {"kind": "command", "argv": ["cat"]}}}))
    worker = launch(
        ["worker", "--concurrency", "1", "--calls", "5", "--targets", targets],
        cwd=blind,
        env=clean_environment(EVALQ_BROKER=guarded.url_of("worker")),
    )
    try:
        golden = write_golden(tmp_path / "golden.json", {"A": {}, "B": {}})
        live = ("vs", golden, "--target", "cat", "--repeat", "3", "--stop", "when-decided", "--cache", tmp_path / "c")
        done = evalq(*live, "--out", tmp_path / "live", cwd=data, EVALQ_BROKER=guarded.url_of("producer"))
        assert done.returncode == 0, done.stderr
        args = ("planagent", "rows.csv", "--chunk-size", "250", "--out", tmp_path / "run", "--format", "none")
        done = evalq(*args, cwd=data, EVALQ_BROKER=guarded.url_of("producer"))
        assert done.returncode == 0, done.stderr
        same_answer(calm, tmp_path / "run")
        for command in ("doctor", "list", "status", "history"):
            done = evalq(command, cwd=data, EVALQ_BROKER=guarded.url_of("producer"))
            assert "permission" not in done.stdout + done.stderr
        (tmp_path / "policy.json").write_text(
            '{"gates": [{"metric": "planagent.set.accuracy", "max_drop": 0.1}], "deterministic": true}'
        )
        gate = (
            "gate",
            calm,
            "--policy",
            tmp_path / "policy.json",
            "--baseline",
            "main",
            "--candidate",
            "0a1b",
        )
        for command_line in (("baseline", "set", "main", tmp_path / "run"), gate):
            done = evalq(*command_line, cwd=blind, EVALQ_BROKER=guarded.url_of("producer"))
            assert done.returncode == 0, done.stdout + done.stderr
        run = info(tmp_path / "run")["run"]
        # An answer is there a moment before its message is acknowledged.
        wait_until(lambda: not guarded.client.hlen(TRANSPORT.unacked), "the worker is done with all messages")
        with running_exporter(guarded.url_of("exporter"), data) as exporter:
            shown = exporter.scrape()
        of = frozenset({"evaluator": "planagent", "suite": "default"}.items())
        assert shown["evalq_chunks_committed_total", of] == 12
        assert shown["evalq_unacked_messages", frozenset()] == 0
        assert shown["evalq_workers_alive", frozenset()] == 1
        assert shown["evalq_last_run_records", of | {("target", ""), ("outcome", "dead")}] == 0
        assert int(guarded.as_user("exporter").hget(f"evalq:run:{{{run}}}:meta", "committed")) == 12
        done = evalq("planagent", "rows.csv", "--detach", cwd=data, EVALQ_BROKER=guarded.url_of("producer"))
        left = f"evalq:run:{{{done.stdout.strip()}}}:final"
        wait_until(lambda: guarded.client.hget(left, "report"), "the worker finishes the detached run")
        assert guarded.client.hget(left, "report") == (calm / "report.json").read_bytes()
        for role in ("producer", "worker"):  # a container of either is where operators give their commands
            for words in (("status", run), ("cancel", run), ("doctor",), ("prune", "--suite", "default", "--dry-run")):
                done = evalq(*words, cwd=blind, EVALQ_BROKER=guarded.url_of(role))
                assert "permission" not in done.stdout + done.stderr
        done = evalq("prune", "--suite", "default", cwd=blind, EVALQ_BROKER=guarded.url_of("producer"))
        assert "default: history of planagent\n" in done.stdout, done.stderr
        done = evalq(*live[:6], "--detach", cwd=data, EVALQ_BROKER=guarded.url_of("producer"))
        left = f"evalq:run:{{{done.stdout.strip()}}}:final"
        wait_until(lambda: guarded.client.hget(left, "report"), "the fleet finishes the detached sweep")
        # The sweep for what a dead worker held is a script and a transaction of kombu's: it must be allowed, too.
        wait_until(
            lambda: guarded.client.info("commandstats").get("cmdstat_zrange"), "the worker looks for old messages"
        )
    finally:
        worker.terminate()
        worker.wait(timeout=PATIENCE)
    assert guarded.client.acl_log() == []
    assert worker.returncode == 0


FORBIDDEN = [
    tuple(command.split())
    for line in """
    FLUSHALL|FLUSHDB|CONFIG GET *|CONFIG SET maxmemory 1|KEYS *|SCAN 0|EVAL return_1 0|SCRIPT FLUSH|FUNCTION LIST
    SHUTDOWN|SAVE|BGREWRITEAOF|ACL LIST|ACL SETUSER x|MONITOR|CLIENT LIST|CLIENT KILL x:1|REPLICAOF h 1|MODULE LIST
    RANDOMKEY|DBSIZE|MIGRATE h 1 evalq:x 0 1|SWAPDB 0 1|PUBLISH x y|SUBSCRIBE x|GET other|SET other 1|DEL other
    LPUSH celery x|LRANGE celery 0 -1|HGETALL session:1|RENAME evalq:a evalq:b|COPY evalq:a evalq:b
    SORT evalq:a|PFADD evalq:a 1
    SETRANGE evalq:a 500000000 x
    """.strip().splitlines()
    for command in line.strip().split("|")
]
ALSO = {
    "producer": (("BRPOP", QUEUE, 1), ("HGET", "unacked", "x"), ("SET", "evalq:x", "1")),
    "worker": (("GETDEL", "evalq:x"),),
    "exporter": (
        ("HSET", "evalq:totals", "a", "1"), ("DEL", "evalq:totals"), ("LPUSH", QUEUE, "x"), ("RPOP", QUEUE),
        ("BRPOP", QUEUE, 1), ("EVALSHA", "0" * 40, 0), ("SCRIPT", "LOAD", "return 1"), ("EXPIRE", "evalq:totals", 1),
        ("SADD", "evalq:workers", "x"), ("MULTI",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("role", ROLES)
def test_no_role_does_more_than_its_own(guarded: GuardedServer, role: str) -> None:
    """Each forbidden command is refused for want of permission, and changes nothing."""
    guarded.client.set("other", "kept")
    for command in (*FORBIDDEN, *ALSO[role]):
        client = guarded.as_user(role)
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command(*command)
        client.close()
    assert guarded.client.get("other") == b"kept"


def test_scripts_reach_no_further_than_their_user(guarded: GuardedServer) -> None:
    """A producer may load scripts; what one does is held to the producer's own keys and commands."""
    guarded.client.set("other", "kept")
    client = guarded.as_user("producer")
    for body in (
        "return redis.call('GET', 'other')",
        "return redis.call('FLUSHALL')",
        "return redis.call('KEYS', '*')",
    ):
        with pytest.raises(redis.exceptions.ResponseError, match=r"permission|ACL|can't run|can't access"):
            client.evalsha(client.script_load(body), 0)
    assert guarded.client.get("other") == b"kept"


def test_the_exporters_scripts_only_read(guarded: GuardedServer) -> None:
    """Its script reads evalq's keys; one that writes, or reads another's keys, is refused, and changes nothing."""
    client = guarded.as_user("exporter")
    assert client.eval_ro("return redis.call('HLEN', 'evalq:totals')", 0) >= 0
    for body in ("return redis.call('SET', 'evalq:x', '1')", "return redis.call('GET', 'other')"):
        with pytest.raises(redis.exceptions.ResponseError, match=r"permission|can't (run|access)|not allowed"):
            client.eval_ro(body, 0)
    assert guarded.client.get("evalq:x") is None


READABLE = {"meta", "flight", "leases", "sent", "held", "again"}


def test_the_exporter_reads_no_content(guarded: GuardedServer) -> None:
    """Chunks' inputs and answers, reports, prompts and outputs are refused, as commands and from a script."""
    client = guarded.as_user("exporter")
    keys = [*RunKeys.of("x"), *SweepKeys.of("x")]
    hidden = [key for key in keys if key.rpartition(":")[2] not in READABLE]
    assert len(hidden) > len(READABLE)
    for key in [*hidden, HistoryKeys.of("x").drift, "evalq:anything", "evalq:code:x"]:
        for command in (("HGETALL", key), ("LRANGE", key, 0, -1), ("GET", key)):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command)
        with pytest.raises(redis.exceptions.ResponseError, match=r"permission|can't (run|access)"):
            client.eval_ro(f"return redis.call('HGETALL', '{key}')", 0)
    for key in set(keys) - set(hidden):
        client.eval_ro(f"return redis.call('EXISTS', '{key}')", 0)


def test_nobody_comes_in_without_a_name(guarded: GuardedServer, data: Path, tmp_path: Path) -> None:
    """No user, or a wrong password: exit 3 with the address, and the password nowhere."""
    with pytest.raises(redis.exceptions.AuthenticationError):
        redis.Redis(port=guarded.port).ping()
    wrong = guarded.url_of("producer").replace("secret-of", "guess-at")
    done = evalq("planagent", "rows.csv", "--out", tmp_path / "run", cwd=data, EVALQ_BROKER=wrong)
    assert done.returncode == 3
    assert "evalq-producer:***@" in done.stderr
    assert "guess-at" not in done.stderr


def test_the_recommended_settings_are_taken(tmp_path: Path) -> None:
    """A server starts with deploy/redis/redis.conf, and doctor finds nothing wrong with its settings."""
    text = (DEPLOY / "redis.conf").read_text().replace("aclfile /etc/redis/users.acl", "")
    (tmp_path / "redis.conf").write_text(text)
    server = Server(tmp_path, None)
    server._command.insert(1, str(tmp_path / "redis.conf"))
    server.start()
    try:
        said = evalq("doctor", "--broker", server.url, cwd=tmp_path).stdout
        assert "maxmemory-policy" not in said
        assert "append-only" not in said
        assert server.client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    finally:
        server.kill()


@pytest.mark.parametrize("role", ["worker", "producer"])
def test_calls_are_paced_by_either_role(guarded: GuardedServer, role: str) -> None:
    """The exchange of live calls needs no right that workers and producers do not have."""

    async def call() -> None:
        async with RateLimiter(
            guarded.as_user(role), "t", PoolLimits(max_concurrency=1), patience_seconds=0.1
        ) as pacer:
            pacer.settle(await pacer.acquire())
            pacer.settle(await pacer.acquire())

    guarded.client.acl_log_reset()
    asyncio.run(call())
    assert guarded.client.acl_log() == []
