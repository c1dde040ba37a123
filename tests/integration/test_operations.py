"""What operators do to a running system: full servers, restarts, drains, pauses, other versions, two queues."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import redis

from evalq.workers.ledger.detached import Reports
from evalq.workers.ledger.keys import RunKeys
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.ledger.scripts import RUNS, script_text
from evalq.workers.settings import Settings
from tests.integration.conftest import MID_ROWS, Calm
from tests.integration.harness import (
    EVALQ,
    HAZARDS,
    PATIENCE,
    Fleet,
    Server,
    clean_environment,
    committed,
    evalq,
    info,
    new_interpreters,
    queued,
    running_fleet,
    running_server,
    same_answer,
    serves,
    start_evalq,
    wait_until,
)
from tests.integration.midway import WINDOW, Held, hold, standing_midway

CHUNKS = 200
TOP = Path(__file__).parents[2]


def _start(server: Server, data: Path, out: Path) -> subprocess.Popen[str]:
    """A run of MID_ROWS rows in CHUNKS chunks on ``server``, which can be had to stand midway."""
    size = str(MID_ROWS // CHUNKS)
    args = ("planagent", "mid.csv", "--broker", server.url, "--chunk-size", size, "--out", out, "--format", "none")
    return start_evalq(*args, cwd=data, EVALQ_WINDOW=str(WINDOW))


def _past(server: Server, out: Path, share: float) -> bool:
    return committed(server, out) > share * CHUNKS


def _ends_well(producer: subprocess.Popen[str], seconds: float = PATIENCE) -> None:
    _, said = producer.communicate(timeout=seconds)
    assert producer.returncode == 0, said


def test_a_full_server_pauses_a_run_and_loses_nothing(tmp_path: Path) -> None:
    """Under maxmemory with noeviction: no room, no progress, no loss; with room again it goes on by itself."""
    limits = ("--maxmemory", "24mb", "--maxmemory-policy", "noeviction")
    out, held = tmp_path / "run", hold(tmp_path, free=20, held=180)
    with running_server(tmp_path, None, *limits) as server, _running_hazards(server, tmp_path) as fleet:
        fleet.add()
        producer = _start_held(server, held, out)
        wait_until(lambda: committed(server, out) == held.free, "it goes")
        _fill(server)
        held.let_go()
        seen: list[int] = []

        def stands_still() -> bool:
            _fill(server)
            seen.append(committed(server, out))
            return len(seen) > 50 and len(set(seen[-50:])) == 1

        wait_until(stands_still, "without room there is no progress")
        assert seen[-1] < held.chunks
        assert producer.poll() is None
        server.client.delete("junk")
        _ends_well(producer)
        same_answer(held.calm(), out)


def _running_hazards(server: Server, folder: Path) -> contextlib.AbstractContextManager[Fleet]:
    return running_fleet(server.url, folder, PYTHONPATH=HAZARDS)


def _start_held(server: Server, held: Held, out: Path) -> subprocess.Popen[str]:
    return start_evalq(*held.command, "--broker", server.url, "--out", out, cwd=held.folder, PYTHONPATH=HAZARDS)


def _fill(server: Server) -> None:
    """Take all memory, to the last list entry that fits."""
    for size in (1 << 20, 1 << 14, 1 << 8):
        with suppress(redis.OutOfMemoryError):
            while True:
                server.client.rpush("junk", b"x" * size)


@pytest.mark.parametrize("sync", ["everysec", "always"])
def test_a_server_killed_and_restarted_from_its_log(tmp_path: Path, sync: str) -> None:
    """SIGKILL to a server with an append-only file in mid-run, twice: what it forgot is told to it again."""
    out, held = tmp_path / "run", hold(tmp_path, free=180, held=20)
    with (
        running_server(tmp_path, None, "--appendonly", "yes", "--appendfsync", sync) as server,
        _running_hazards(server, tmp_path) as fleet,
    ):
        fleet.add()
        producer = _start_held(server, held, out)
        for share in (0.2, 0.5):
            wait_until(partial(_past, server, out, share), f"{share:.0%} are committed")
            server.kill()
            server.start()
        held.let_go()
        _ends_well(producer)
        same_answer(held.calm(), out)
        assert info(out)["progress"]["divergent"] == 0


def test_sigterm_gives_unfinished_chunks_back_at_once(server: Server, tmp_path: Path) -> None:
    """A drained worker's chunk is computed by the next one without waiting for the lease, and no death is counted."""
    (tmp_path / "in.jsonl").write_text('{"id": "r", "value": 1}\n')
    (tmp_path / "params.json").write_text('{"pause": 50}')
    limits = {"EVALQ_SOFT_SHUTDOWN_SECONDS": "0.5", "EVALQ_LEASE_SECONDS": "300", "PYTHONPATH": HAZARDS}
    with new_interpreters(), running_fleet(server.url, tmp_path, **limits) as fleet:
        first = fleet.add(1)  # started from nothing: what SIGTERM does is settled before anything is imported
        args = ("hazards", "in.jsonl", "--params", "params.json", "--broker", server.url, "--out", "run")
        producer = start_evalq(*args, cwd=tmp_path, PYTHONPATH=HAZARDS)
        run = wait_until(lambda: info(tmp_path / "run").get("run"), "the run begins")
        leases = f"evalq:run:{{{run}}}:leases"
        held = wait_until(lambda: server.client.hget(leases, "0"), "the chunk is being computed")
        first.send_signal(signal.SIGTERM)
        first.wait(timeout=PATIENCE)
        fleet.add(1)
        again = wait_until(lambda: server.client.hget(leases, "0"), "another worker has the chunk")
        assert again != held
        assert not server.client.hgetall(f"evalq:run:{{{run}}}:notes"), "nothing died"
        producer.send_signal(signal.SIGINT)
        producer.communicate(timeout=PATIENCE)


@pytest.fixture
def other_version(tmp_path: Path) -> Iterator[Path]:
    """A copy of the code that differs by a comment."""
    copy = tmp_path / "other"
    shutil.copytree(TOP / "evalq", copy / "evalq", ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / "evalq" / "workers" / "settings.py").open("a") as out:
        out.write("\n# another version\n")
    yield copy
    shutil.rmtree(copy)


def test_versions_side_by_side_never_mix(
    server: Server, fleet: Fleet, data: Path, calm: Calm, tmp_path: Path, other_version: Path
) -> None:
    """Each run is computed by workers of its own code alone; what the other version wrote can be seen and reported."""
    with running_fleet(server.url, data, PYTHONPATH=str(other_version)) as others:
        others.add(1)
        args = ("planagent", "small.csv", "--broker", server.url, "--chunk-size", "100", "--format", "none")
        old = evalq(*args, "--out", tmp_path / "evalq-runs" / "old", cwd=data, PYTHONPATH=str(other_version))
        assert old.returncode == 0, old.stderr
        producer = start_evalq(*args, "--out", tmp_path / "evalq-runs" / "new", cwd=data)
        wait_until(lambda: info(tmp_path / "evalq-runs" / "new").get("epoch"), "the run is in the ledger")
        server_time = server.client.time()[0]
        wait_until(lambda: server.client.time()[0] > server_time + 3, "the other version had its chance")
        assert committed(server, tmp_path / "evalq-runs" / "new") == 0
        status = evalq("status", tmp_path / "evalq-runs" / "new", "--broker", server.url, cwd=tmp_path)
        assert "waiting   1 worker is running, of another version (code" in status.stdout
        assert "; this run needs code" in status.stdout
        fleet.add(1)
        _ends_well(producer)
    for name in ("old", "new"):
        same_answer(calm("small.csv"), tmp_path / "evalq-runs" / name)
    listed = evalq("list", "--broker", server.url, cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr
    assert len(listed.stdout.splitlines()) == 2
    shown = evalq("report", tmp_path / "evalq-runs" / "old", "--format", "json", cwd=tmp_path)
    assert json.loads(shown.stdout) == json.loads((calm("small.csv") / "report.json").read_text())


def test_a_detached_run_is_finished_beside_workers_of_another_version(
    server: Server, fleet: Fleet, data: Path, calm: Calm, tmp_path: Path, other_version: Path
) -> None:
    """Whose workers came first: they tend their own runs alone, and a run of this version is no less attended to."""
    with running_fleet(server.url, data, PYTHONPATH=str(other_version)) as others:
        others.add(1)
        wait_until(lambda: server.client.keys("evalq:reconciler*"), "the other version tends runs")
        fleet.add(1)
        args = ("planagent", "small.csv", "--broker", server.url, "--chunk-size", "100", "--format", "none")
        left = evalq(*args, "--out", tmp_path / "run", "--detach", cwd=data)
        assert left.returncode == 0, left.stderr
        reports = Reports(RunLedger(server.client, Settings()), Settings())
        report = wait_until(lambda: reports.report(info(tmp_path / "run")["run"]), "the report is in the ledger")
        assert report == (calm("small.csv") / "report.json").read_bytes()


def test_an_unfinished_run_of_another_version_is_refused_by_name(
    server: Server, data: Path, tmp_path: Path, other_version: Path
) -> None:
    """Resume says which code began the run; status and cancel work."""
    out = tmp_path / "evalq-runs" / "old"
    args = ("planagent", "small.csv", "--broker", server.url, "--out", out)
    producer = start_evalq(*args, cwd=data, PYTHONPATH=str(other_version))
    wait_until(lambda: info(out).get("epoch"), "the run begins")
    producer.send_signal(signal.SIGINT)
    producer.communicate(timeout=PATIENCE)
    resumed = evalq("resume", out, "--broker", server.url, cwd=tmp_path)
    assert resumed.returncode == 2
    assert "begun by evalq code" in resumed.stderr
    status = evalq("status", out, "--broker", server.url, cwd=tmp_path)
    assert status.returncode == 0, status.stderr
    assert "state     interrupted\n" in status.stdout
    assert "ledger    paused\n" in status.stdout
    assert evalq("cancel", out, "--broker", server.url, cwd=tmp_path).returncode == 0


def test_a_paused_run_stands_still_and_goes_on(
    server: Server, fleet: Fleet, data: Path, calm: Calm, tmp_path: Path
) -> None:
    """`pause` ends the producer with 130 and the command to go on; workers take no more of it; `resume` finishes."""
    out = tmp_path / "run"
    producer = _start(server, data, out)
    with standing_midway(server, fleet, producer, out):
        paused = evalq("pause", out, "--broker", server.url, cwd=tmp_path)
    assert paused.returncode == 0, paused.stderr
    _, said = producer.communicate(timeout=PATIENCE)
    assert producer.returncode == 130
    assert f"evalq resume {out}" in said
    assert info(out)["state"] == "paused"
    done = evalq("resume", out, "--broker", server.url, "--format", "none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    same_answer(calm("mid.csv"), out)
    again = evalq("pause", out, "--broker", server.url, cwd=tmp_path)
    assert again.returncode == 2
    assert "it is done" in again.stderr


def test_prune_removes_ended_runs_and_no_others(server: Server, fleet: Fleet, data: Path, tmp_path: Path) -> None:
    """A finished run goes from folder and ledger; one that could go on stays in both."""
    runs = tmp_path / "evalq-runs"
    worker = fleet.add()
    args = ("planagent", data / "small.csv", "--broker", server.url, "--format", "none")
    assert evalq(*args, "--out", runs / "a", cwd=tmp_path).returncode == 0
    fleet.kill(worker)
    producer = _start(server, data, runs / "b")
    with standing_midway(server, fleet, producer, runs / "b"):
        assert evalq("pause", runs / "b", "--broker", server.url, cwd=tmp_path).returncode == 0
    producer.communicate(timeout=PATIENCE)
    ended, kept = info(runs / "a")["run"], info(runs / "b")["run"]
    assert not evalq("prune", "--broker", server.url, cwd=tmp_path).stdout, "nothing is 30 days old"
    shown = evalq("prune", "--older-than", "0", "--dry-run", "--broker", server.url, cwd=tmp_path)
    assert ended in shown.stdout
    assert kept not in shown.stdout
    assert (runs / "a").is_dir()
    assert evalq("prune", "--older-than", "0", "--broker", server.url, cwd=tmp_path).returncode == 0
    assert sorted(path.name for path in runs.iterdir()) == ["b"]
    assert not server.client.keys(f"*{ended}*")
    assert server.client.keys(f"*{kept}*")


def test_prune_leaves_other_peoples_runs_in_the_ledger(
    server: Server, fleet: Fleet, data: Path, tmp_path: Path
) -> None:
    """Runs without a folder here are forgotten only when --all says so, and then no run that could go on."""
    worker = fleet.add()
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    for person in (theirs, mine):
        person.mkdir()
        args = ("planagent", data / "small.csv", "--broker", server.url, "--format", "none", "--out", "evalq-runs/a")
        assert evalq(*args, cwd=person).returncode == 0
    fleet.kill(worker)
    producer = _start(server, data, theirs / "evalq-runs/b")
    with standing_midway(server, fleet, producer, theirs / "evalq-runs/b"):
        assert evalq("pause", "evalq-runs/b", "--broker", server.url, cwd=theirs).returncode == 0
    producer.communicate(timeout=PATIENCE)
    ended, other, paused = (
        info(path)["run"] for path in (theirs / "evalq-runs/a", mine / "evalq-runs/a", theirs / "evalq-runs/b")
    )
    command = ("prune", "--older-than", "0", "--broker", server.url)
    assert evalq(*command, cwd=mine).stdout.splitlines() == [f"{other}: evalq-runs/a", f"{other}: in the ledger"]
    assert server.client.keys(f"*{ended}*")
    for wrong in (("prune", "--all", "--older-than", "0"), ("prune", "--all", "--broker", server.url)):
        refused = evalq(*wrong, cwd=mine)
        assert (refused.returncode, "--all --older-than 0 --broker URL" in refused.stderr) == (2, True)
    assert evalq(*command, "--all", cwd=mine).stdout.splitlines() == [f"{ended}: in the ledger"]
    assert not server.client.keys(f"*{ended}*")
    assert server.client.keys(f"*{paused}*")


def test_a_detached_run_gets_the_input_its_workers_lack(server: Server, data: Path, calm: Calm, tmp_path: Path) -> None:
    """Workers without the file: its bytes are left with the ledger, all of them, before the producer leaves."""
    (tmp_path / "elsewhere").mkdir()
    with running_fleet(server.url, tmp_path / "elsewhere") as fleet:
        fleet.add()
        wait_until(lambda: serves(server), "the worker serves")
        out = tmp_path / "run"
        args = ("planagent", "small.csv", "--chunk-size", "50", "--broker", server.url, "--out", out, "--detach")
        left = evalq(*args, cwd=data)
        assert left.returncode == 0, left.stderr
        wait_until(lambda: committed(server, out) == 40, "the fleet finishes alone")
        done = evalq("watch", out, "--broker", server.url, "--format", "none", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        same_answer(calm("small.csv"), out)


def test_detaching_is_refused_when_nobody_could_go_on(server: Server, data: Path, tmp_path: Path) -> None:
    """Too much for the ledger, and no worker can read it: exit 2, the reason, and a cancelled run."""
    (tmp_path / "elsewhere").mkdir()
    with running_fleet(server.url, tmp_path / "elsewhere") as fleet:
        fleet.add(1)
        wait_until(lambda: serves(server), "the worker serves")
        args = ("planagent", "rows.csv", "--broker", server.url, "--out", tmp_path / "run", "--detach")
        left = evalq(*args, cwd=data, EVALQ_BLOB_BYTES=str(1 << 20))
        assert left.returncode == 2
        assert "--detach is refused" in left.stderr
        assert info(tmp_path / "run")["state"] == "cancelled"


def test_an_interactive_run_passes_a_sweep(server: Server, tmp_path: Path) -> None:
    """While a bulk run waits in the queue, an interactive one is served next: of the sweep only chunks in hand end."""
    server.client.config_set("slowlog-max-len", 1_000_000)
    server.client.config_set("slowlog-log-slower-than", 0)  # every command, in the order in which they were done
    held, quick = hold(tmp_path, free=20, held=180), tmp_path / "quick.jsonl"
    quick.write_text("".join(json.dumps({"id": f"q{number}", "value": number}) + "\n" for number in range(10)))
    args = ("hazards", quick.name, "--priority", "interactive", "--broker", server.url, "--chunk-size", "1")
    with _running_hazards(server, tmp_path) as fleet:
        worker = fleet.add(2)
        sweep = _start_held(server, held, tmp_path / "sweep")
        wait_until(lambda: committed(server, tmp_path / "sweep") == held.free, "the sweep goes")
        with fleet.stopped(worker):
            first = start_evalq(*args, "--out", tmp_path / "quick", cwd=tmp_path, PYTHONPATH=HAZARDS)
            wait_until(lambda: queued(server, tmp_path / "quick") == 10, "all of it waits")
            assert queued(server, tmp_path / "sweep") > 10, "and more of the sweep"
            before = len(_commits(server, tmp_path / "sweep"))
            held.let_go()
        _ends_well(first)
        _ends_well(sweep)
    # Who finds no interactive chunk waiting goes on with the sweep, while the other process has the last one in hand.
    served = _commits(server, tmp_path / "quick")[8]
    passed = [commit for commit in _commits(server, tmp_path / "sweep")[before:] if commit < served]
    assert len(passed) <= 2, "a chunk a process was in hand"


def _commits(server: Server, out: Path) -> list[int]:
    """When commits of a run were done, as numbers of the server's log of commands."""
    digest = hashlib.sha1(script_text(RUNS, "commit").encode(), usedforsecurity=False).hexdigest()
    start = f"EVALSHA {digest} {len(RunKeys._fields)} {RunKeys.of(info(out)['run']).meta}".encode()
    return sorted(entry["id"] for entry in server.client.slowlog_get(1_000_000) if entry["command"].startswith(start))


def test_a_command_s_server_is_the_settings_own_and_not_shown_in_the_process_list(
    server: Server, tmp_path: Path
) -> None:
    """Local workers are given the broker by environment, so `ps` shows no URL."""
    held = hold(tmp_path)
    process = subprocess.Popen(
        [*EVALQ, *held.command, "--workers", "1", "--out", "shown"],
        cwd=tmp_path,
        env=clean_environment(EVALQ_BROKER=server.url, PYTHONPATH=HAZARDS),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_until(lambda: server.client.smembers("evalq:workers"), "the local worker serves")
    listed = subprocess.run(["ps", "-eo", "pgid,args"], capture_output=True, text=True, check=True).stdout
    mine = [line for line in listed.splitlines() if "evalq.producer.cli" in line]
    assert mine
    assert not [line for line in mine if server.url in line]
    os.killpg(process.pid, signal.SIGINT)
    process.wait(timeout=PATIENCE)


def test_whoever_is_called_at_night_has_no_run_folder(server: Server, data: Path, tmp_path: Path) -> None:
    """Elsewhere than where a run was begun, `status` says how it stands and why it waits, and `cancel` ends it."""
    producer = start_evalq("planagent", "small.csv", "--broker", server.url, "--suite", "night", "--format", "none",
                           "--out", str(tmp_path / "run"), cwd=data)  # fmt: skip
    wait_until(lambda: info(tmp_path / "run").get("epoch") and server.client.hlen("evalq:runs"), "the run begins")
    run, place = info(tmp_path / "run")["run"], ("--broker", server.url)
    (tmp_path / "home").mkdir()
    there = partial(evalq, cwd=tmp_path / "home")
    seen = json.loads(there("status", run, "--json", *place).stdout)
    assert (seen["state"], seen["suite"]) == ("open", "night")
    assert seen["waiting"] == "no worker is running"
    assert "folder    elsewhere" in there("status", run, *place).stdout
    (listed,) = json.loads(there("list", "--json", *place).stdout)
    assert (listed["run"], listed["state"], listed["progress"]["committed"]) == (run, "open", 0)
    done = there("cancel", run, *place)
    assert done.returncode == 0
    assert done.stderr.startswith(f"{run}: cancelled; its folder is elsewhere\n")
    _, said = producer.communicate(timeout=PATIENCE)
    assert producer.returncode == 3, said
    assert "state     cancelled\nfolder    elsewhere" in there("status", run, *place).stdout
    assert "by evalq cancel" in there("status", run, *place).stdout
    assert there("cancel", "no-such-run", *place).returncode == 2
    assert there("pause", run, *place).returncode == 2
