"""Sweeps that are gone on with: what others recorded or still record for them is never thrown away."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalq.workers.ledger.heartbeats import Heartbeats
from tests.agents.server import Agent, running_agent, write_golden
from tests.integration.harness import Server, evalq, info, running_fleet, start_evalq, wait_until
from tests.integration.test_sweeps import CASES, outputs, replays, sweep, write_targets


def recorded(server: Server) -> int:
    """Outputs in the ledger of the only sweep."""
    keys = list(server.client.scan_iter("evalq:sweep:*:recorded"))
    return int(server.client.scard(keys[0])) if keys else 0


def called_by(server: Server) -> set[str]:
    """Targets that somebody calls."""
    return {name for caller in Heartbeats(server.client).callers().values() for name in caller.targets}


def test_what_a_fleet_recorded_is_collected_without_it(tmp_path: Path, server: Server) -> None:
    """The fleet of a detached sweep may be gone, or call others by now: what it paid for is there."""
    write_golden(tmp_path / "golden.json", CASES)
    (tmp_path / "other.yaml").write_text(json.dumps({"targets": {"other": {"kind": "command", "argv": ["cat"]}}}))
    with running_agent() as (agent, url):
        write_targets(tmp_path, url)
        with running_fleet(server.url, tmp_path) as fleet:
            fleet.add(0, "--calls", "10", "--targets", "targets.yaml")
            done = sweep(tmp_path, "--repeat", "5", "--out", "run", "--detach", EVALQ_BROKER=server.url)
            assert done.returncode == 0, done.stderr
            wait_until(lambda: recorded(server) == 30, "all is recorded")
        with running_fleet(server.url, tmp_path) as fleet:
            fleet.add(1, "--calls", "10", "--targets", "other.yaml")
            wait_until(lambda: called_by(server) == {"other"}, "only the other fleet is there")
            done = evalq("watch", "run", "--format", "none", cwd=tmp_path, EVALQ_BROKER=server.url)
        assert done.returncode == 0, done.stderr
        assert sum(agent.calls.values()) == 30
    replays(tmp_path, tmp_path / "run")


def test_a_command_that_cannot_go_on_leaves_the_folder_to_the_one_that_does(tmp_path: Path) -> None:
    """A second resume is refused, also while nothing is recorded yet; the first one's folder stays."""
    write_golden(tmp_path / "golden.json", {"one": {"share": 1.0}})
    with running_agent() as (agent, url):
        refused = threading.Event()
        agent.ready = refused.is_set
        write_targets(tmp_path, url)
        args = (
            "vs",
            "golden.json",
            "--target",
            "chat",
            "--targets",
            "targets.yaml",
            "--format",
            "none",
            "--out",
            "run",
        )
        producer = start_evalq(*args, cwd=tmp_path)
        wait_until(lambda: agent.at_once, "the call is in flight")
        second = evalq("resume", "run", "--targets", "targets.yaml", cwd=tmp_path)
        assert (second.returncode, f"({socket.gethostname()} {producer.pid})" in second.stderr) == (3, True), (
            second.stderr
        )
        refused.set()
        assert producer.wait(60) == 0
    assert len(outputs(tmp_path / "run")) == 1
    assert info(tmp_path / "run")["state"] == "done"


@pytest.mark.parametrize(
    ("entry", "said"),
    [({"kind": "openai", "modle": "m"}, "modle: unknown key"), ({"kind": "soap"}, "targets.chat.kind: must be one of")],
)
def test_a_wrong_targets_file_is_reported_once(
    tmp_path: Path, server: Server, entry: dict[str, Any], said: str
) -> None:
    """By a command that calls from here, which leaves no folder, and by a worker, before either starts anything."""
    write_golden(tmp_path / "golden.json", CASES)
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"chat": entry}}))
    started = ("--broker", server.url, "--calls", "5", "--targets", "targets.yaml")
    for done in (
        sweep(tmp_path, "--out", "run"),
        evalq("worker", "--concurrency", "1", *started, cwd=tmp_path, seconds=20),
        evalq("worker", "--concurrency", "0", *started, cwd=tmp_path, seconds=20),
    ):
        assert done.returncode == 2, done.stderr
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_what_cannot_be_detached_leaves_no_folder(tmp_path: Path, server: Server) -> None:
    """It is refused before anything is written."""
    write_golden(tmp_path / "golden.json", CASES)
    for option in (("--stop", "when-decided"), ("--cache", "cache.sqlite")):
        done = sweep(tmp_path, "--out", "run", "--detach", *option, EVALQ_BROKER=server.url)
        assert (done.returncode, "--detach goes with none of --stop, --cache" in done.stderr) == (2, True), done.stderr
        assert not (tmp_path / "run").exists()


@pytest.fixture
def service() -> Iterator[tuple[Agent, str]]:
    """A server that obeys."""
    with running_agent() as started:
        yield started


def test_a_fatal_failure_waits_for_nobody_whose_turn_is_far(tmp_path: Path, service: tuple[Agent, str]) -> None:
    """However slow the pace is, calls that wait for their turn are given back as soon as none can be answered."""
    agent, url = service
    agent.quota = 1
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url, requests_per_minute=10)
    args = ("vs", "golden.json", "--target", "chat", "--targets", "targets.yaml", "--repeat", "10", "--out", "run")
    done = evalq(*args, cwd=tmp_path, seconds=90)
    assert done.returncode == 3, done.stderr
    assert "quota" in done.stderr
    assert len(outputs(tmp_path / "run")) == 1
    assert len(agent.log) == 2


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupted_sweep_is_not_called_on(
    tmp_path: Path, server: Server, service: tuple[Agent, str], times: int
) -> None:
    """Ctrl-C, and Ctrl-C twice: the fleet makes no more calls for a sweep whose producer had to stop."""
    agent, url = service
    agent.most = 10
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url)
    with running_fleet(server.url, tmp_path) as fleet:
        fleet.add(1, "--calls", "4", "--targets", "targets.yaml")
        args = ("vs", "golden.json", "--target", "chat", "--repeat", "15", "--out", "run", "--format", "none")
        producer = start_evalq(*args, cwd=tmp_path, EVALQ_BROKER=server.url)
        wait_until(lambda: agent.log, "calls are made")
        for _ in range(times):
            producer.send_signal(signal.SIGINT)
        assert producer.wait(60) == 130
        agent.most = 0
        wait_until(lambda: not agent.at_once, "calls in flight end")
        look = json.loads(evalq("status", "run", "--json", cwd=tmp_path, EVALQ_BROKER=server.url).stdout)["calls"]
        assert look["state"] == "paused"
        done = evalq("resume", "run", "--format", "none", cwd=tmp_path, EVALQ_BROKER=server.url)
        assert done.returncode == 0, done.stderr
    assert len(agent.log) == 90
    replays(tmp_path, tmp_path / "run")


def test_a_cancelled_sweep_is_over(tmp_path: Path, server: Server, service: tuple[Agent, str]) -> None:
    """What was recorded is kept and told, the run is shown as cancelled, and nothing calls for it again."""
    agent, url = service
    agent.most = 25
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url)
    with running_fleet(server.url, tmp_path) as fleet:
        fleet.add(1, "--calls", "4", "--targets", "targets.yaml")
        args = ("vs", "golden.json", "--target", "chat", "--repeat", "50", "--out", "run", "--format", "none")
        producer = start_evalq(*args, cwd=tmp_path, EVALQ_BROKER=server.url)
        wait_until(lambda: len(agent.log) > 20, "calls are made")
        assert evalq("cancel", "run", cwd=tmp_path, EVALQ_BROKER=server.url).returncode == 0
        agent.most = 0
        _, said = producer.communicate(timeout=60)
        assert producer.returncode == 3
        assert "was cancelled by evalq cancel; what it recorded is in run/outputs.jsonl" in said
        assert "resume" not in said
        assert info(tmp_path / "run")["state"] == "cancelled"
        wait_until(lambda: not agent.at_once, "calls in flight end")
        before = len(agent.log)
        done = evalq("resume", "run", cwd=tmp_path, EVALQ_BROKER=server.url)
        assert (done.returncode, "was cancelled for good" in done.stderr) == (3, True), done.stderr
    assert len(agent.log) == before
    assert 20 <= len(outputs(tmp_path / "run")) < 300


def test_a_budget_is_of_the_whole_sweep(tmp_path: Path, service: tuple[Agent, str]) -> None:
    """A server that knows nothing of what was paid before, such as the next embedded one, is told; a cache is free."""
    agent, url = service
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url)
    here = ("--targets", "targets.yaml", "--calls", "2", "--format", "none")
    first = sweep(tmp_path, "--repeat", "1", "--cache", "cache.sqlite", "--out", "first")
    assert first.returncode == 0, first.stderr
    agent.log.clear()
    agent.most = 8
    args = ("vs", "golden.json", "--target", "chat", "--repeat", "50", "--max-calls", "20", "--out", "run", *here)
    producer = start_evalq(*args, "--cache", "cache.sqlite", cwd=tmp_path)
    wait_until(lambda: len(agent.log) >= 6, "calls are made")
    producer.send_signal(signal.SIGINT)
    agent.most = 0
    assert producer.wait(60) == 130
    done = evalq("resume", "run", *here, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the budget is spent: 26 of 300 calls are recorded" in done.stderr
    assert "evalq resume run --targets targets.yaml --max-calls N" in done.stderr
    assert len(agent.log) == 20
    assert info(tmp_path / "run")["calls"]["attempts"] == 20
    replays(tmp_path, tmp_path / "run")


def test_a_cache_that_cannot_be_used_is_reported_first(tmp_path: Path, service: tuple[Agent, str]) -> None:
    """It leaves no folder; and to see what a sweep would take makes none."""
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, service[1])
    (tmp_path / "notes.txt").write_text("no database, whatever its name")
    done = sweep(tmp_path, "--cache", "notes.txt", "--out", "run")
    assert (done.returncode, "notes.txt: this cache cannot be used" in done.stderr) == (3, True), done.stderr
    assert not (tmp_path / "run").exists()
    done = sweep(tmp_path, "--cache", "new.sqlite", "--dry-run")
    assert (done.returncode, "6 cases x 1 = 6 calls" in done.stdout) == (0, True), done.stderr
    assert not (tmp_path / "new.sqlite").exists()


def test_certificates_that_cannot_be_read_stop_the_sweep(tmp_path: Path) -> None:
    """The command says so at once: no call of it can be made."""
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, "https://127.0.0.1:1/v1")
    args = ("vs", "golden.json", "--target", "chat", "--targets", "targets.yaml", "--out", "run")
    done = evalq(*args, cwd=tmp_path, seconds=60, SSL_CERT_FILE="nowhere.pem")
    assert done.returncode == 2, done.stderr
    assert "certificates cannot be read: No such file or directory; see SSL_CERT_FILE" in done.stderr


def test_a_sweep_is_gone_on_with_where_its_input_is_seen(tmp_path: Path, service: tuple[Agent, str]) -> None:
    """From another folder nothing is called in vain: the command says where to go."""
    agent, url = service
    agent.quota = 3
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url)
    assert sweep(tmp_path, "--repeat", "1", "--out", "run").returncode == 3
    agent.quota = 0
    (tmp_path / "elsewhere").mkdir()
    args = ("--targets", tmp_path / "targets.yaml", "--format", "none")
    done = evalq("resume", "../run", *args, cwd=tmp_path / "elsewhere")
    assert (done.returncode, done.stderr) == (
        2,
        f"evalq: golden.json: not found from this folder: resume the sweep where it was begun: cd {tmp_path}\n",
    )
    # Sent to a colleague: there is no such folder there, or none that may be seen, and no advice to go to it.
    for gone in (str(tmp_path / "gone"), "/" + "x" * 5000, "a\0b"):
        shutil.copytree(tmp_path / "run", tmp_path / "elsewhere" / "sent", dirs_exist_ok=True)
        head = tmp_path / "elsewhere" / "sent" / "sweep.json"
        head.write_text(json.dumps({**json.loads(head.read_text()), "cwd": gone}))
        done = evalq("resume", "sent", *args, cwd=tmp_path / "elsewhere")
        assert done.returncode == 2, done.stderr
        assert "which is not seen from here: resume it in a folder that has the file as it was then" in done.stderr
        assert "cd " not in done.stderr
    assert evalq("resume", "run", *args, cwd=tmp_path).returncode == 0
    assert sum(status == 200 for _, status in agent.log) == 6


def test_what_a_spent_budget_cannot_try_again_stays_a_failure(tmp_path: Path, service: tuple[Agent, str]) -> None:
    """A retry that makes no call changes nothing of the run, and ends as it did; a larger budget makes it."""
    orders: dict[str, dict[str, Any]] = {
        "fails": {"do": "raw", "status": 500, "body": "{}", "times": 1},
        "well": {"share": 1.0},
    }
    write_golden(tmp_path / "golden.json", orders)
    write_targets(tmp_path, service[1], retries={"server": {"times": 0}})
    first = sweep(tmp_path, "--repeat", "2", "--max-calls", "2", "--out", "run")
    said = "1 call was never answered (1 server). Try again: evalq retry run --errors --targets targets.yaml"
    assert (first.returncode, f"{said} --max-calls N; or accept" in first.stderr) == (3, True), first.stderr
    before = (tmp_path / "run" / "outputs.jsonl").read_bytes()
    here = ("retry", "run", "--errors", "--targets", "targets.yaml", "--format", "none")
    again = evalq(*here, cwd=tmp_path)
    assert (again.returncode, f"{said} --max-calls N" in again.stderr) == (3, True), again.stderr
    assert (tmp_path / "run" / "outputs.jsonl").read_bytes() == before
    assert service[0].calls.total() == 2
    done = evalq(*here, "--max-calls", "5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert service[0].calls.total() == 5
    assert sum(len(line["attempts"]) for line in outputs(tmp_path / "run")) == 5


def test_a_retry_that_is_cancelled_keeps_the_failures_that_it_did_not_try(
    tmp_path: Path, service: tuple[Agent, str]
) -> None:
    """Nobody tries them any more: what the run recorded has them."""
    agent, url = service
    write_golden(tmp_path / "golden.json", {"fails": {"do": "raw", "status": 500, "body": "{}", "times": 1}})
    write_targets(tmp_path, url, retries={"server": {"times": 0}})
    assert sweep(tmp_path, "--out", "run").returncode == 3
    (failed,) = outputs(tmp_path / "run")
    agent.halted = True
    here = ("--targets", "targets.yaml", "--format", "none")
    producer = start_evalq("retry", "run", "--errors", *here, cwd=tmp_path)
    wait_until(lambda: agent.calls.total() == 2, "it is tried again")
    done = evalq("cancel", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    agent.halted = False
    producer.wait(60)
    assert outputs(tmp_path / "run") == [failed]
