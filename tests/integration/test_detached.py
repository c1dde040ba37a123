"""Detached runs: the workers finish them alone, and whoever asks later gets the same bytes."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from pathlib import Path

import msgspec
import pytest

from evalq.evalcore.compare.drift import DriftRecord, counted
from evalq.evalcore.errors import Divergent, InfrastructureError
from evalq.evalcore.model.canonical import unpack
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.cases import cases_of, decode_cases
from evalq.workers.ledger.detached import Reports
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.history import Drift, History, HistoryKey
from evalq.workers.ledger.keys import HistoryKeys, RunKeys
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.recovery.finaliser import finalise
from evalq.workers.settings import Settings
from tests.agents.server import write_golden
from tests.integration.conftest import Calm
from tests.integration.harness import (
    PATIENCE,
    Fleet,
    Server,
    evalq,
    info,
    running_fleet,
    same_answer,
    start_evalq,
    wait_until,
)
from tests.integration.scraping import running_exporter

NIGHT = HistoryKey("planagent", "night")


def _detach(server: Server, data: Path, out: Path, name: str = "small.csv") -> str:
    command = "planagent" if name.endswith(".csv") else "cooperation"
    done = evalq(command, name, "--broker", server.url, "--chunk-size", "500", "--suite", "night", "--tag", "k=v",
                 "--detach", "--run-dir", out, cwd=data)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _reports(server: Server) -> Reports:
    return Reports(RunLedger(server.client, Settings()), Settings())


@pytest.mark.parametrize("name", ["small.csv", "shuffled.jsonl"])
def test_workers_finish_a_detached_run_alone(
    server: Server, fleet: Fleet, data: Path, calm: Calm, tmp_path: Path, name: str
) -> None:
    """The report is in the ledger, the run in its history and done; `report` writes it where there is no folder."""
    fleet.add(1)
    run = _detach(server, data, tmp_path / "begun", name)
    wait_until(lambda: _reports(server).report(run), "the report is in the ledger")
    wanted = (calm(name) / "report.json").read_bytes()
    assert _reports(server).report(run) == wanted
    wait_until(lambda: server.client.hget(RunKeys.of(run).meta, "state") == b"done", "the run is done")
    evaluator = json.loads(wanted)["evaluator"]
    (entry,) = History(server.client, Settings()).entries(HistoryKey(evaluator, "night"))
    assert (entry.run, entry.tags, entry.records) == (run, {"k": "v"}, json.loads(wanted)["records"])
    with running_exporter(server.url, tmp_path) as exporter:
        labels = {"evaluator": evaluator, "suite": "night", "target": ""}
        assert exporter.value("evalq_last_run_timestamp_seconds", **labels) == pytest.approx(entry.ended, abs=0.001)
    shown = evalq("report", run, "--broker", server.url, "--format", "json", cwd=tmp_path)
    assert json.loads(shown.stdout) == json.loads(wanted)
    made = tmp_path / "evalq-runs" / run
    assert {path.name for path in made.iterdir()} == {
        "run.json", "cases.json", "report.html", "report.json", "report.md", "results.yaml"
    }  # fmt: skip
    assert (made / "report.json").read_bytes() == wanted
    assert (made / "report.md").read_bytes() == (calm(name) / "report.md").read_bytes()
    assert all(server.client.pttl(key) > 0 for key in server.client.keys(f"evalq:run:*{run}*"))


def test_watching_a_finalised_run_gives_the_whole_folder(
    server: Server, fleet: Fleet, data: Path, calm: Calm, tmp_path: Path
) -> None:
    """Report first, then watch: the same bytes, the records too, and one entry in the history.

    In its drift it is counted once, with the cases that its command finds; with these it is compared by its id, too.
    """
    fleet.add(1)
    run = _detach(server, data, tmp_path / "run")
    wait_until(lambda: _reports(server).report(run), "the report is in the ledger")
    left = _reports(server).cases(run) or b""
    cases = decode_cases(left, run)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    policy = {"gates": [{"metric": "planagent.set.accuracy", "min": 0, "max_drop": 1}], "deterministic": True}
    (elsewhere / "policy.yaml").write_text(json.dumps(policy))
    base, gate = calm("small.csv"), ("gate", run, "--policy", "policy.yaml", "--broker", server.url)
    gated = evalq(*gate, "--baseline", base, cwd=elsewhere)
    assert (gated.returncode, gated.stdout[:5]) == (0, "# GO:"), gated.stderr
    assert evalq(*gate, "--baseline", run, cwd=elsewhere).returncode == 2, "a run is no baseline of itself"
    assert evalq("compare", run, calm("small.csv"), "--broker", server.url, cwd=elsewhere).returncode == 0
    chains = server.client.hgetall(HistoryKeys.of(NIGHT.member).drift)
    assert evalq("report", tmp_path / "run", "--broker", server.url, cwd=data).returncode == 0
    assert not (tmp_path / "run" / "records.jsonl").exists()
    assert (tmp_path / "run" / "cases.json").read_bytes() == left
    assert evalq("watch", tmp_path / "run", "--broker", server.url, cwd=data).returncode == 0
    same_answer(calm("small.csv"), tmp_path / "run")
    assert info(tmp_path / "run")["state"] == "done"
    assert len(History(server.client, Settings()).entries(NIGHT)) == 1
    found = cases_of(RunFolder.existing(tmp_path / "run"))
    assert cases == found
    assert Drift(server.client, Settings()).count(NIGHT, found) is not None
    assert server.client.hgetall(HistoryKeys.of(NIGHT.member).drift) == chains
    record = msgspec.json.decode(unpack(next(iter(chains.values())), 1 << 20), type=DriftRecord)
    assert record == counted(None, found)


def test_a_second_finaliser_changes_nothing(server: Server, fleet: Fleet, data: Path, tmp_path: Path) -> None:
    """The first report stays, and another one is refused; finalising again gives the same bytes and no entry."""
    fleet.add(1)
    run = _detach(server, data, tmp_path / "run")
    wait_until(lambda: server.client.hget(RunKeys.of(run).meta, "state") == b"done", "the run is finalised")
    first = _reports(server).report(run)
    entries = History(server.client, Settings()).entries(NIGHT)
    assert finalise(run, RunLedger(server.client, Settings()), Settings(roots=(data,)))
    with pytest.raises(Divergent, match="another report"):
        _reports(server).store(run, b"another")
    assert _reports(server).report(run) == first
    assert History(server.client, Settings()).entries(NIGHT) == entries


def test_what_workers_cannot_finish_is_left_to_watch(server: Server, data: Path, calm: Calm, tmp_path: Path) -> None:
    """A log that must be read again to be settled, and lies under no root: a few tries, then watch does it."""
    blind = tmp_path / "blind"
    blind.mkdir()
    with running_fleet(server.url, blind) as fleet:
        worker = fleet.add(1)
        run = _detach(server, data, tmp_path / "run", "shuffled.jsonl")
        wait_until(lambda: server.client.hget(RunKeys.of(run).meta, "finals") == b"3", "three tries")
        assert _reports(server).report(run) is None
        assert not RunLedger(server.client, Settings()).poll(run).unreported
        with fleet.stopped(worker):  # or it might have tried three times more before this process tries once
            server.client.hdel(RunKeys.of(run).meta, "finals")
            with pytest.raises(InfrastructureError, match="under no root"):
                finalise(run, RunLedger(server.client, Settings()), Settings(roots=(blind,)))
        refused = evalq("report", tmp_path / "run", "--broker", server.url, cwd=data)
        assert refused.returncode == 2
        assert "has no report" in refused.stderr
        assert evalq("watch", tmp_path / "run", "--broker", server.url, cwd=data).returncode == 0
    same_answer(calm("shuffled.jsonl"), tmp_path / "run")


def test_watching_leaves_a_detached_run_to_the_fleet(server: Server, data: Path, calm: Calm, tmp_path: Path) -> None:
    """Ctrl-C ends the watching alone, with 130 and how to watch again; the next watch has the fleet's report."""
    run = _detach(server, data, tmp_path / "run")
    watch = start_evalq("watch", tmp_path / "run", "--broker", server.url, cwd=data)
    _, said = _after(watch, "no worker is there for it", signal.SIGINT)
    assert watch.returncode == 130
    assert "the run goes on" in said
    assert server.client.hget(RunKeys.of(run).meta, "state") == b"open"
    assert _reports(server).detached(run) is not None
    with running_fleet(server.url, data) as fleet:
        fleet.add(1)
        done = evalq("watch", tmp_path / "run", "--broker", server.url, "--format", "none", cwd=data)
    assert done.returncode == 0, done.stderr
    assert _reports(server).report(run) == (tmp_path / "run" / "report.json").read_bytes()
    same_answer(calm("small.csv"), tmp_path / "run")


def test_watching_says_that_the_only_workers_are_of_other_code(server: Server, data: Path, tmp_path: Path) -> None:
    """As in the middle of an upgrade: somebody lives, and nobody takes it, so that silence would last for ever."""
    run = _detach(server, data, tmp_path / "run")
    Heartbeats(server.client).beat("old", {"code": "before", "host": "h", "concurrency": 1}, 600)
    watch = start_evalq("watch", tmp_path / "run", "--broker", server.url, cwd=data)
    _, said = _after(
        watch, "waiting: 1 worker is running, of another version (code before); this run needs code", signal.SIGINT
    )
    assert watch.returncode == 130, said
    assert server.client.hget(RunKeys.of(run).meta, "state") == b"open"


def test_watching_says_that_nobody_calls(server: Server, tmp_path: Path) -> None:
    """A sweep whose fleet evaluates, and does not call under its code."""
    write_golden(tmp_path / "golden.json", {"A": {}})
    Heartbeats(server.client).beat("old", {"code": "before", "host": "h", "concurrency": 1}, 600)
    asked = ("vs", "golden.json", "--target", "chat", "--broker", server.url, "--detach", "--out", "run")
    assert evalq(*asked, cwd=tmp_path).returncode == 0
    watch = start_evalq("watch", "run", "--broker", server.url, cwd=tmp_path)
    _, said = _after(watch, " calls (start one: evalq worker --calls N --targets FILE --broker ", signal.SIGINT)
    assert watch.returncode == 130, said


def _after(process: subprocess.Popen[str], line: str, sent: int) -> tuple[str, str]:
    """What a command says, that gets a signal when it has said ``line``; one that never does is ended."""
    assert process.stderr is not None
    said, ending = "", threading.Timer(PATIENCE, process.kill)
    ending.start()
    try:
        while line not in said:
            said += process.stderr.readline()
            assert process.poll() is None, said
    finally:
        ending.cancel()
    process.send_signal(sent)
    out, rest = process.communicate(timeout=PATIENCE)
    return out, said + rest


def test_a_run_whose_producer_came_back_is_its_own_again(
    server: Server, fleet: Fleet, data: Path, tmp_path: Path
) -> None:
    """Resuming takes the run back before it is complete: workers do not finalise it."""
    run = _detach(server, data, tmp_path / "run")
    watch = start_evalq("resume", tmp_path / "run", "--broker", server.url, cwd=data)
    wait_until(lambda: _reports(server).detached(run) is None, "it is taken back")
    fleet.add(1)
    _, said = watch.communicate(timeout=PATIENCE)
    assert watch.returncode == 0, said
    assert not finalise(run, RunLedger(server.client, Settings()), Settings())
