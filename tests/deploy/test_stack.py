"""The stack of deploy/compose.yaml stands: its commands, started as processes in its order, evaluate a suite."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from evalq.evalcore.evaluators.cooperation.sample import write_events
from evalq.evalcore.evaluators.planagent.sample import write_rows
from tests.agents.server import Agent, running_agent, write_golden
from tests.deploy.programs import TOP
from tests.deploy.stack import Stack
from tests.integration.harness import evalq, info, same_answer, wait_until

SUITE = """\
suite: nightly
runs:
  - {evaluator: planagent, inputs: [sub/rows.csv], chunk_size: 250}
  - {evaluator: cooperation, inputs: [log.jsonl]}
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder a user gives as EVALQ_DATA: a suite and its inputs."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "sub").mkdir()
    with (folder / "sub" / "rows.csv").open("w", encoding="utf-8", newline="") as out:
        write_rows(out, 5_000, seed=7)
    with (folder / "log.jsonl").open("wb") as stream:
        write_events(stream, 5_000, seed=7, shuffled=False)
    (folder / "suite.yaml").write_text(SUITE)
    write_golden(folder / "golden.json", {f"C{number}": {"share": number / 5} for number in range(6)})
    return folder


@pytest.fixture(scope="module")
def agent() -> Iterator[tuple[Agent, str]]:
    """An agent that answers chat completions, and its address."""
    with running_agent() as started:
        yield started


@pytest.fixture(scope="module")
def stack(data: Path, agent: tuple[Agent, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The stack with its workers up and well."""
    targets = tmp_path_factory.mktemp("targets")
    chat = {"kind": "openai", "base_url": agent[1], "model": "m"}
    (targets / "targets.yaml").write_text(json.dumps({"targets": {"chat": chat}}))
    stack = Stack(tmp_path_factory.mktemp("stack"), data, targets)
    try:
        stack.start("worker")
        yield stack
    finally:
        stack.close()


def admin(stack: Stack) -> Any:
    """A client with all rights, for looking."""
    secrets = Path(stack.config["secrets"]["users"]["file"]).parent
    url = (secrets / "admin.yaml").read_text().removeprefix("broker: ").strip()
    client: Any = redis.Redis.from_url(url)
    return client


def test_a_suite_through_the_stack_equals_the_inline_run(stack: Stack, tmp_path: Path) -> None:
    """Two workers as the file has them compute both runs, each role by its own user; nobody is refused anything."""
    assert len(stack.processes["worker"]) == 2
    admin(stack).acl_log_reset()
    work = stack.place("producer", "srv/evalq")
    done = stack.run("producer", "run", "data/suite.yaml", "--format", "json")
    assert done.returncode == 0, done.stderr
    calm = evalq("run", "data/suite.yaml", "--inline", "--out", tmp_path, "--format", "none", cwd=work)
    assert calm.returncode == 0, calm.stderr
    folders = list((work / "evalq-runs").iterdir())
    assert len(folders) == 2
    for folder in folders:
        same_answer(tmp_path / info(folder)["evaluator"], folder)
    assert admin(stack).acl_log() == []
    meta = admin(stack).hgetall("evalq:totals")
    assert int(meta[b"records planagent nightly"]) == 5_000


def test_live_calls_through_the_stack(stack: Stack, agent: tuple[Agent, str]) -> None:
    """The calls worker makes each call of a sweep once; whoever starts it knows no more than the target's name."""
    admin(stack).acl_log_reset()
    stack.start("calls")
    done = stack.run("producer", "vs", "data/golden.json", "--target", "chat", "--repeat", "5", "--format", "none")
    assert done.returncode == 0, done.stderr
    assert len(agent[0].log) == 30
    assert set(agent[0].calls.values()) == {5}
    assert admin(stack).acl_log() == []


def test_prometheus_shows_what_the_ledger_counted(stack: Stack) -> None:
    """Prometheus starts when the exporter is well, scrapes it by its own configuration, and has the suite's records."""
    stack.start("prometheus")

    def records() -> dict[str, float]:
        return stack.query('evalq_records_committed_total{suite="nightly"}', "evaluator")

    wait_until(
        lambda: records() == {"planagent": 5_000, "cooperation": 5_000}, "Prometheus has both counters", pause=0.2
    )
    wait_until(lambda: stack.query("up", "job") == {"evalq": 1, "prometheus": 1}, "both jobs are scraped", pause=0.2)


def test_the_scaling_query_says_that_nothing_is_left(stack: Stack) -> None:
    """KEDA's query over real data: a number, and 0 when every chunk is committed."""
    scaling = yaml.safe_load((TOP / "deploy" / "kubernetes" / "keda" / "scaling.yaml").read_text())
    assert list(stack.query(scaling["spec"]["triggers"][0]["metadata"]["query"], "").values()) == [0]


def test_workers_read_the_data_themselves(stack: Stack) -> None:
    """The data folder is mounted alike for producer and workers, so no input went by way of the server."""
    runs = admin(stack).keys("evalq:run:*:meta")
    assert runs
    assert all(admin(stack).hlen(run.replace(b":meta", b":blobs")) == 0 for run in runs)
    assert all(admin(stack).hget(run, "refused") is None for run in runs)


def test_the_server_logs_to_disk_refuses_to_forget_and_lets_no_stranger_in(stack: Stack) -> None:
    """Append-only file, noeviction and users are on in the server that the command started."""
    client = admin(stack)
    assert client.config_get("appendonly", "maxmemory-policy") == {
        "appendonly": "yes",
        "maxmemory-policy": "noeviction",
    }
    assert int(client.config_get("maxmemory")["maxmemory"]) > 0
    host, _, port = stack.at("redis").partition(":")
    with pytest.raises(redis.RedisError):
        redis.Redis(host=host, port=int(port)).ping()


def _heard(stack: Stack) -> list[bytes]:
    """Keys of the heartbeats that have not expired. A process that calls has its own, and its own time of expiry."""
    client = admin(stack)
    return [*client.keys("evalq:worker:*"), *client.keys("evalq:caller:*")]


def test_the_health_check_sees_a_worker_that_has_stopped(stack: Stack) -> None:
    """Workers that are stopped are unwell soon after their heartbeat's life, and well again when they go on.

    All of this host at once, those that call too: containers are hosts of their own, these processes are not.
    """
    workers = [*stack.processes["worker"], *stack.processes["calls"]]
    for worker in workers:
        os.kill(worker.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: not _heard(stack), "their heartbeats are gone", pause=0.1)
        wait_until(lambda: not stack.well("worker"), "their health checks say so", pause=0.5)
    finally:
        for worker in workers:
            os.kill(worker.pid, signal.SIGCONT)
    wait_until(lambda: len(_heard(stack)) == len(workers), "the workers are heard again", pause=0.1)
    wait_until(lambda: stack.well("worker"), "their health checks say so", pause=0.5)


def test_workers_end_within_the_time_compose_gives_them(stack: Stack) -> None:
    """SIGTERM ends every worker within stop_grace_period, and the ledger's list is empty then."""
    stack.stop("worker")
    assert admin(stack).keys("evalq:worker:*") == []
    stack.stop("calls")
    stack.stop("exporter")
    assert admin(stack).keys("evalq:caller:*") == []
