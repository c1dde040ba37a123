"""Whatever is killed, the answer is that of the calm run; and nothing is left in the ledger for ever."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from evalq.producer.folder.journal import count_answers
from tests.integration.conftest import MID_ROWS, Calm
from tests.integration.harness import (
    HAZARDS,
    PATIENCE,
    Fleet,
    Server,
    children_of,
    committed,
    evalq,
    info,
    running_fleet,
    same_answer,
    start_evalq,
    wait_until,
)
from tests.integration.midway import WINDOW, hold, killed_with_all, standing_midway

CHUNKS = 200


def _start(server: Server, data: Path, out: Path, chunks: int = CHUNKS, **environment: str) -> subprocess.Popen[str]:
    """A run of MID_ROWS rows in so many chunks on ``server``."""
    size = str(MID_ROWS // chunks)
    args = ("planagent", "mid.csv", "--broker", server.url, "--chunk-size", size, "--out", out, "--format", "none")
    return start_evalq(*args, cwd=data, **environment)


def _wait_for_share(server: Server, out: Path, share: float) -> None:
    wait_until(lambda: committed(server, out) > share * CHUNKS, f"{share:.0%} are committed")


def test_a_killed_worker_group_changes_nothing(
    server: Server, fleet: Fleet, data: Path, calm: Calm, tmp_path: Path
) -> None:
    """SIGKILL to the whole group at three moments of one run; another worker takes over each time."""
    out = tmp_path / "run"
    worker = fleet.add()
    producer = _start(server, data, out)
    for share in (0.1, 0.4, 0.7):
        _wait_for_share(server, out, share)
        fleet.kill(worker)
        worker = fleet.add()
    _, said = producer.communicate(timeout=PATIENCE)
    assert producer.returncode == 0, said
    same_answer(calm("mid.csv"), out)
    assert info(out)["progress"]["divergent"] == 0


def test_a_killed_pool_process_changes_nothing_and_is_counted(
    server: Server, fleet: Fleet, data: Path, calm: Calm, tmp_path: Path
) -> None:
    """SIGKILL to pool processes alone: the main process has their chunks computed again at once."""
    out = tmp_path / "run"
    worker = fleet.add()
    producer = _start(server, data, out)
    for share in (0.1, 0.3, 0.5):
        _wait_for_share(server, out, share)
        with fleet.stopped(worker):  # or one that was killed before might be gone between the two lines
            for child in children_of(worker.pid):
                os.kill(child, signal.SIGKILL)
    _, said = producer.communicate(timeout=PATIENCE)
    assert producer.returncode == 0, said
    same_answer(calm("mid.csv"), out)


def test_a_killed_producer_is_resumed_without_computing_again(
    server: Server, fleet: Fleet, data: Path, calm: Calm, tmp_path: Path
) -> None:
    """SIGKILL to the producer; resume finishes, and every chunk was computed exactly once in all."""
    out = tmp_path / "run"
    producer = _start(server, data, out, EVALQ_WINDOW=str(WINDOW))
    with standing_midway(server, fleet, producer, out):
        producer.kill()
        producer.communicate()
        before = committed(server, out)
    done = evalq("resume", out, "--broker", server.url, "--format", "none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    same_answer(calm("mid.csv"), out)
    progress = info(out)["progress"]
    assert progress["chunks"] == progress["computed"] == CHUNKS
    assert 0 < before < CHUNKS


def test_an_embedded_run_is_resumed_from_its_folder(tmp_path: Path) -> None:
    """The embedded server dies with the producer; what the folder holds is not computed again by the next one."""
    out, held = tmp_path / "run", hold(tmp_path)
    embedded = ("--workers", "2", "--out", out)
    producer = start_evalq(*held.command, *embedded, cwd=tmp_path, PYTHONPATH=HAZARDS)
    journal = out / "parts.journal"
    wait_until(lambda: journal.exists() and count_answers(journal)[0] == held.free, "some answers are in the folder")
    killed_with_all(producer)
    held.let_go()
    done = evalq("resume", *embedded[:2], out, "--format", "none", cwd=tmp_path, PYTHONPATH=HAZARDS)
    assert done.returncode == 0, done.stderr
    same_answer(held.calm(), out)
    assert info(out)["progress"]["computed"] == held.held


def test_ctrl_c_stops_and_says_how_to_go_on(
    server: Server, fleet: Fleet, data: Path, calm: Calm, tmp_path: Path
) -> None:
    """SIGINT once: exit 130, the command to resume with, and that command works."""
    out = tmp_path / "run"
    producer = _start(server, data, out, EVALQ_WINDOW=str(WINDOW))
    with standing_midway(server, fleet, producer, out):
        producer.send_signal(signal.SIGINT)
        _, said = producer.communicate(timeout=PATIENCE)
    assert producer.returncode == 130
    assert f"evalq resume {out} --broker {server.url}" in said
    assert info(out)["state"] == "interrupted"
    done = evalq("resume", out, "--broker", server.url, "--format", "none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    same_answer(calm("mid.csv"), out)


_EXPIRIES = """
local found = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do found[#found + 1] = {key, redis.call('PTTL', key)} end
return found
"""


def test_every_key_with_a_run_id_expires(server: Server, tmp_path: Path) -> None:
    """In mid-run and at its end, no key of a run is without an expiry."""
    out, held = tmp_path / "run", hold(tmp_path)
    kinds: set[bytes] = set()

    def look() -> None:
        run = info(out).get("run", "no run yet")
        for key, milliseconds in server.client.eval(_EXPIRIES, 0, f"*{run}*"):
            kinds.add(key.rpartition(b":")[2])
            assert milliseconds != -1, f"{key!r} never expires"

    def all_kinds() -> bool:
        look()
        return {b"meta", b"chunks", b"digests", b"parts", b"flight", b"leases"} <= kinds

    def ended() -> bool:
        over = producer.poll() is not None
        look()
        return over

    with running_fleet(server.url, tmp_path, PYTHONPATH=HAZARDS) as fleet:
        producer = start_evalq(*held.command, "--broker", server.url, "--out", out, cwd=tmp_path, PYTHONPATH=HAZARDS)
        fleet.add()
        wait_until(all_kinds, "all that a run has is there")
        held.let_go()
        wait_until(ended, "the run ends")
    _, said = producer.communicate()
    assert producer.returncode == 0, said


def test_a_slow_fleet_s_queue_never_grows(server: Server, tmp_path: Path) -> None:
    """With a stopped worker (SIGSTOP) messages wait; none is doubled, however long it takes."""
    out, held = tmp_path / "run", hold(tmp_path, held=50)
    brisk = {"EVALQ_WINDOW": str(WINDOW), "EVALQ_GRACE_SECONDS": "0.2", "EVALQ_POLL_SECONDS": "0.1"}
    command = (*held.command, "--broker", server.url, "--out", str(out))
    with running_fleet(server.url, tmp_path, PYTHONPATH=HAZARDS) as fleet:
        # It tends the run, too, where the producer is silent for a while, and is at work when it is stopped.
        worker = fleet.add(1, EVALQ_WINDOW=str(WINDOW))
        producer = start_evalq(*command, cwd=tmp_path, PYTHONPATH=HAZARDS, **brisk)
        wait_until(lambda: committed(server, out) == held.free, "it goes")
        queue = next(value for value in server.client.hgetall("evalq:runs").values())
        with fleet.stopped(worker):
            meta = f"evalq:run:{{{info(out)['run']}}}:meta"
            before = int(server.client.hget(meta, "reconciled") or 0)
            looks = int(server.client.info("commandstats")["cmdstat_evalsha"]["calls"])
            lengths = set()

            def looked() -> bool:
                lengths.add(server.client.llen(queue))
                return int(server.client.info("commandstats")["cmdstat_evalsha"]["calls"]) > looks + 200

            wait_until(looked, "the producer has looked many times")
            doubled = int(server.client.hget(meta, "reconciled") or 0) - before
            held.let_go()
        _, said = producer.communicate(timeout=PATIENCE)
    assert producer.returncode == 0, said
    assert 0 < max(lengths) <= WINDOW
    assert doubled <= 2, "only what the stopped worker held may be doubled"


def test_a_server_that_loses_everything_is_informed_again(
    server: Server, fleet: Fleet, data: Path, calm: Calm, tmp_path: Path
) -> None:
    """FLUSHALL in mid-run: the run folder is enough to go on."""
    out = tmp_path / "run"
    fleet.add()
    producer = _start(server, data, out)
    wait_until(lambda: committed(server, out) > 0.3 * CHUNKS, "30 % are committed")
    server.client.flushall()
    _, said = producer.communicate(timeout=PATIENCE)
    assert producer.returncode == 0, said
    same_answer(calm("mid.csv"), out)


@pytest.mark.parametrize("command", ["status", "list"])
def test_a_run_in_progress_can_be_seen(server: Server, fleet: Fleet, data: Path, tmp_path: Path, command: str) -> None:
    """Status and list read a run that another process drives."""
    out = tmp_path / "evalq-runs" / "r"
    producer = _start(server, data, out, EVALQ_WINDOW=str(WINDOW))
    with standing_midway(server, fleet, producer, out):
        done = evalq(command, "--broker", server.url, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert info(out)["run"] in done.stdout
    producer.communicate(timeout=PATIENCE)
    assert producer.returncode == 0


def test_a_cancelled_run_ends(server: Server, fleet: Fleet, data: Path, tmp_path: Path) -> None:
    """`cancel` from elsewhere ends the producer with exit 3, and workers compute no further."""
    out = tmp_path / "run"
    producer = _start(server, data, out, EVALQ_WINDOW=str(WINDOW))
    with standing_midway(server, fleet, producer, out):
        done = evalq("cancel", out, "--broker", server.url, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    _, said = producer.communicate(timeout=PATIENCE)
    assert producer.returncode == 3
    assert "cancelled" in said
