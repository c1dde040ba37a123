"""What doctor and status say of a deployment, from snapshots in which one thing is wrong."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalq.evalcore.version import code_parts, code_version
from evalq.producer.monitor.fleet import diagnose, fleet_of, rows, served_by
from evalq.workers.ledger.heartbeats import CallerFacts, TargetFacts
from evalq.workers.ledger.sweep_model import SweepHeader
from evalq.workers.monitor import ServerFacts, Snapshot, UnservedRun, WorkerStatus

SERVER = ServerFacts("valkey", "9.0.1", 100, 1000, "noeviction", 0, True, False, False, 0.0, 1)
WORKER = WorkerStatus("w1", socket.gethostname(), "mine", 2, 0, 1.0, 0.0, str(Path.cwd()), "idle")
HEALTHY = Snapshot(
    now=1000.0,
    runs={"open": 1, "done": 2},
    chunks={"planned": 1, "published": 2, "leased": 0, "committed": 3},
    oldest_age=5.0,
    totals={"submitted vs s": 9, "records vs s": 7, "records vs t": 2, "last_commit": 940_000},
    calls={},
    workers=[WORKER],
    queues={"evalq.bulk.mine": 2},
    unacked=None,
    sweeps=[],
    callers=[],
    version="",
    histories=[],
    server=SERVER,
)


def _but(part: Any, **changed: Any) -> Any:
    return msgspec.structs.replace(part, **changed)


def _findings(snapshot: Snapshot, here: float = 1000.0) -> list[tuple[str, str]]:
    return [finding for finding in diagnose(snapshot, "mine", here) if finding[0] != "ok"]


def test_a_healthy_deployment_has_no_finding() -> None:
    """All that is said of it is ok."""
    assert _findings(HEALTHY) == []


SERVERS = [
    ({"version": "6.2.6"}, "wrong", "is too old"),
    ({"primary": "10.0.0.1:6379"}, "wrong", "is a replica of 10.0.0.1:6379, and no run can be written there"),
    ({"policy": "allkeys-lru"}, "wrong", "set it to noeviction"),
    ({"evicted": 3}, "wrong", "dropped 3 keys"),
    ({"memory": 950}, "wrong", "95% full"),
    ({"memory_limit": 0}, "note", "no maxmemory"),
    ({"aof": False}, "note", "no append-only file"),
    ({"aof_failed": True}, "wrong", "cannot be written"),
    ({"rdb_failed": True}, "wrong", "may refuse writes"),
]


@pytest.mark.parametrize(("changed", "kind", "said"), SERVERS)
def test_a_server_that_may_lose_answers_is_found(changed: dict[str, Any], kind: str, said: str) -> None:
    """Each setting or failure is one finding, with what to do."""
    ((found, text),) = _findings(_but(HEALTHY, server=_but(SERVER, **changed)))
    assert found == kind
    assert said in text


FLEETS = [
    ({"state": "stuck", "idle": 90.0}, "wrong", "w1 took nothing for 1 min 30 s beside a queue with work"),
    ({"unhealthy": {"vs": "no module named x"}}, "wrong", "cannot load vs: no module named x: it serves no run of it"),
    ({"clock_ahead": 61.0}, "note", "clock of w1 is 1 min 1 s ahead of the server's"),
    ({"clock_ahead": -5.0}, "note", "clock of w1 is 5 s behind the server's"),
    ({"roots": f"/nowhere{os.pathsep}/neither"}, "note", "w1 reads /nowhere, /neither"),
]


@pytest.mark.parametrize(("changed", "kind", "said"), FLEETS)
def test_a_worker_that_does_not_fit_is_found(changed: dict[str, Any], kind: str, said: str) -> None:
    """Stuck, with another clock, or without the folder that commands are given from."""
    ((found, text),) = _findings(_but(HEALTHY, workers=[_but(WORKER, **changed)]))
    assert found == kind
    assert said in text


def test_what_a_worker_serves_is_reported() -> None:
    """Evaluators by the package that registers them, without those that it cannot load."""
    messages = {"planagent": "evalq 0.1.0", "vs": "evalq 0.1.0", "ours": "our-package 2"}
    worker = _but(WORKER, evaluators=messages, unhealthy={"vs": "no module named x"})
    assert served_by(worker) == "ours (our-package 2); planagent (evalq 0.1.0)"
    lines = dict(rows(_but(HEALTHY, workers=[worker])))
    assert lines["serves"] == f"w1 on {worker.host}: {served_by(worker)}"


def test_workers_elsewhere_are_not_asked_about_folders() -> None:
    """The same path on another machine may be another folder."""
    assert _findings(_but(HEALTHY, workers=[_but(WORKER, host="elsewhere", roots="/nowhere")])) == []


def test_a_queue_without_workers_is_found_whosever_code_it_is() -> None:
    """Of this code a worker is to be started, of another one that version's, or its runs are to be cancelled."""
    other = _but(WORKER, code="theirs", name="w2")
    said = dict.fromkeys(text for _, text in _findings(_but(HEALTHY, workers=[other])))
    start = "start one: evalq worker --broker URL"
    assert list(said) == [
        f"0 workers of this code, 1 of another version (theirs), which take no run of this one; {start}",
        f"queue evalq.bulk.mine: 2 waiting and no worker: {start}",
    ]
    ((kind, text),) = _findings(_but(HEALTHY, queues={"evalq.bulk.old": 4, "evalq.bulk.older": 0}))[:1]
    assert kind == "wrong"
    assert "4 waiting, and no worker of that code" in text


def test_a_sweep_that_nobody_calls_for_is_found() -> None:
    """By status and doctor, with what to start; not where a process of its version calls its target."""
    sweep = SweepHeader("vs-1", "chat", "mine", 1, 1)
    caller = CallerFacts("h", 1, "mine", 8, 0, {"chat": TargetFacts("c")})
    assert _findings(_but(HEALTHY, sweeps=[sweep], callers=[caller])) == []
    for callers in ([], [_but(caller, code="old")], [_but(caller, targets={"plan": TargetFacts("c")})]):
        waiting = _but(HEALTHY, sweeps=[sweep], callers=callers)
        ((kind, text),) = _findings(waiting)
        assert (kind, "vs-1 waits: no process of code mine calls 'chat': start one" in text) == ("wrong", True)
        assert ("waiting", "vs-1: no process of code mine calls 'chat'") in list(rows(waiting))


def test_a_target_that_is_not_called_and_a_call_that_takes_long_are_named() -> None:
    """With host and reason; a sweep that only such a process could call is one that nobody calls."""
    sweep = SweepHeader("vs-1", "chat", "mine", 1, 1)
    sick = CallerFacts("h", 7, "mine", 8, 0, {"chat": TargetFacts("c", trouble="no key")}, {"vs-1": ("C3", 50.0)})
    well = _but(sick, host="i", targets={"chat": TargetFacts("c")}, oldest={"vs-1": ("C4", 44.0)})
    trouble, slow = "h (pid 7) does not call 'chat': no key", "vs-1: case C3 has been in flight for 50 s on h (pid 7)"
    for callers, waits in (([sick], True), ([sick, well], False)):
        found = _but(HEALTHY, sweeps=[sweep], callers=callers)
        assert _findings(found)[:2] == [("wrong", trouble), ("note", slow)]
        assert ("trouble", trouble) in list(rows(found))
        assert ("slow", slow) in list(rows(found))
        assert bool(found.uncalled) == waits


def test_a_sick_worker_and_a_run_without_one_that_can_are_named() -> None:
    """By doctor and status, with host and reason; in a line of progress without the reason."""
    sick = _but(WORKER, host="h", unhealthy={"vs": "no module named x"})
    snapshot = _but(HEALTHY, workers=[sick], unserved=[UnservedRun("vs-1", 90.0)])
    assert [text for _, text in _findings(snapshot) if "vs-1 has waited for 1 min 30 s" in text]
    assert ("unhealthy", "w1 on h cannot load vs: no module named x") in list(rows(snapshot))
    assert ("unserved", "vs-1: for 1 min 30 s no living worker can compute it") in list(rows(snapshot))
    assert str(fleet_of(snapshot)).endswith("1 of 1 workers consuming, h cannot load vs")


def test_a_damaged_run_is_wrong() -> None:
    """With where its keys are named."""
    found = _findings(_but(HEALTHY, runs={"open": 1, "damaged": 1}))
    messages = "1 run is damaged in the ledger: evalq list --broker URL names the keys to delete"
    assert found == [("wrong", messages)]


def test_what_happened_is_reported_as_notes() -> None:
    """Old work, divergence and dead records are not wrong settings, and still to be known."""
    totals = HEALTHY.totals | {"divergent vs s": 1, "dead vs s": 2, "dead vs t": 3}
    found = _findings(_but(HEALTHY, oldest_age=700.0, totals=totals))
    assert [kind for kind, _ in found] == ["note"] * 3
    assert "pending for 11 min 40 s" in found[0][1]
    assert found[1][1].startswith("1 answers differed")
    assert found[2][1].startswith("5 records have no result")


def test_clocks_are_compared_with_this_machine() -> None:
    """Two seconds either way are the network's; more is reported."""
    assert _findings(HEALTHY, 1001.9) == []
    assert "this machine is 3 s ahead" in _findings(HEALTHY, 1003.0)[0][1]


def test_status_shows_what_the_exporter_shows() -> None:
    """Queue, oldest age, workers that consume, counts; one line for progress, a table for status."""
    stuck = _but(WORKER, name="w2", state="stuck")
    snapshot = _but(HEALTHY, workers=[WORKER, stuck], oldest_age=200.0, totals=HEALTHY.totals | {"duplicates vs s": 4})
    assert str(fleet_of(snapshot)) == "2 queued, the oldest for 3 min 20 s, 1 of 2 workers consuming"
    assert list(rows(snapshot)) == [
        ("queue", "evalq.bulk.mine: 2 waiting, 2 workers"),
        ("oldest", "3 min 20 s"),
        ("commit", "the last one 1 min ago"),
        ("workers", "2 alive, 1 consuming, 1 stuck"),
        ("stuck", "w2"),
        ("runs", "2 done, 1 open"),
        ("records", "9 committed, 0 dead, 4 duplicates, 0 divergent, 0 chunks published again"),
    ]
    assert ("oldest", "nothing is pending") in list(rows(_but(HEALTHY, oldest_age=0.0)))


def test_what_differs_from_other_code_is_reported() -> None:
    """`doctor` and `status` name the folder or package, of each other code whose parts are known."""
    ours = code_parts()
    codes = {code_version(): ours, "mine": ours, "elder": {**ours, "numpy": "0.1", "workers": "0"}}
    said = f"elder differs from this one in: numpy 0.1 (here {ours['numpy']}), workers"
    assert ("note", f"code {said}") in list(diagnose(HEALTHY, "mine", 1000.0, codes))
    del codes["mine"]
    assert [text for what, text in rows(HEALTHY, codes) if what == "code"] == [said]
