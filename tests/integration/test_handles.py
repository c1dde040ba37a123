"""Submitting from a program: handles, from any thread and process, of runs that end without their producer."""

from __future__ import annotations

import asyncio
import csv
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import evalq
from evalq.evalcore.evaluators.planagent.sample import write_rows
from tests.agents.server import running_agent, write_golden
from tests.integration.harness import Fleet, Server, running_fleet, serves, wait_until
from tests.integration.harness import evalq as run_evalq
from tests.integration.ports import free_port

Row = dict[str, str]
URL = "EVALQ_BROKER"


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """Some records, and a current folder that workers may not read."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.delenv(URL, raising=False)
    with open("data.csv", "w", encoding="utf-8", newline="") as out:
        write_rows(out, 12, seed=3)
    with open("data.csv", encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture
def apart(server: Server, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet with another folder; no worker yet."""
    folder = tmp_path / "fleet"
    folder.mkdir()
    with running_fleet(server.url, folder) as fleet:
        yield fleet


def test_a_handle_gives_the_run_that_evaluate_returns(server: Server, apart: Fleet, rows: list[Row]) -> None:
    """In a program of its own, by id from elsewhere, in a coroutine: the report and the records of this process."""
    here = evalq.evaluate("planagent", rows)
    handle = evalq.submit("planagent", rows, broker=server.url, suite="s", tags={"k": "v"}, chunk_size=5)
    assert (handle.state(), handle.wait(0.05)) == ("open", "open")
    assert handle.progress() == evalq.FleetProgress("open", 0, 3)
    with pytest.raises(evalq.errors.WaitTimeout, match="it goes on"):
        handle.run(timeout=0)
    apart.add(1)
    run = handle.run()
    assert run.report == here.report
    assert (run.id, run.path, run.suite, run.tags) == (handle.id, handle.path, "s", {"k": "v"})
    assert list(run.records()["record"]) == list(here.records()["record"])
    assert (handle.state(), handle.progress().share, handle.progress().records) == ("done", 1.0, 12)
    assert asyncio.run(handle._awaited()).report == here.report
    decided = handle.gate({"gates": [{"metric": "planagent.set.intent", "min": 0}], "minimum_pairs": 1})
    assert decided.decided in ("GO", "NO-GO", "INCONCLUSIVE")
    Path("elsewhere").mkdir()
    os.chdir("elsewhere")
    there = evalq.connect(handle.id, broker=server.url)
    assert (there.path, there.state(), there.run().report) == (None, "done", here.report)
    assert [each.id for each in evalq.runs(broker=server.url, state="done")] == [handle.id]
    assert evalq.runs(broker=server.url, state="paused") == []


def test_a_run_is_paused_resumed_and_cancelled_by_its_id(server: Server, apart: Fleet, rows: list[Row]) -> None:
    """From any process; what has ended stays so, with a clear error."""
    handle = evalq.submit("planagent", rows, broker=server.url)
    again = evalq.connect(handle.id, broker=server.url)
    assert again.pause() == "paused" == handle.wait(5)
    with pytest.raises(evalq.errors.Paused, match="resume it with"):
        handle.run()
    apart.add(1)
    wait_until(lambda: serves(server), "the worker serves")
    assert handle.state() == "paused"
    assert again.resume() == "open"
    assert handle.run().report == evalq.evaluate("planagent", rows).report
    with pytest.raises(evalq.errors.UsageError, match="cannot be resumed: it is done"):
        handle.resume()
    with pytest.raises(evalq.errors.UsageError, match="cannot be cancelled: it is done"):
        handle.cancel()
    other = evalq.submit("planagent", rows[:3], broker=server.url)
    with apart.stopped(apart.processes[0]):
        third = evalq.submit("planagent", rows[:4], broker=server.url)
        assert third.cancel() == "cancelled" == third.state()
        with pytest.raises(evalq.errors.Cancelled):
            third.run()
        with pytest.raises(evalq.errors.UsageError, match="cannot be paused: it is cancelled"):
            third.pause()
    assert other.wait() == "done"


def test_what_cannot_be_submitted_is_refused_and_leaves_nothing(server: Server, rows: list[Row]) -> None:
    """No server, an unknown id, wrong words: a typed error, no folder, no key."""
    nobody = f"redis://127.0.0.1:{free_port()}/0"
    before = server.client.keys()
    for refused in (
        lambda: evalq.submit("planagent", rows),
        lambda: evalq.submit("planagent", rows, broker=server.url, priority="high"),
        lambda: evalq.submit("planagent", [], broker=server.url),
        lambda: evalq.submit("planagent", [{"x": float("inf")}], broker=server.url),
        lambda: evalq.submit("planagent", "none.csv", broker=server.url),
        lambda: evalq.submit("planagent", rows, broker=server.url, params={"no": 1}),
        lambda: evalq.submit("planagent", rows, broker=server.url, limit=0),
        lambda: evalq.submit("none", rows, broker=server.url),
        lambda: evalq.submit("planagent", [{"other": "column"}], broker=server.url),
        lambda: evalq.submit_sweep("verification", rows, target="t", broker=server.url),
        lambda: evalq.submit_sweep("vs", {"test_cases": {}}, target="", broker=server.url),
        lambda: evalq.submit("planagent", rows, broker=nobody),
        lambda: evalq.connect("none", broker=server.url),
        lambda: evalq.connect("../work", broker=server.url),
        lambda: evalq.connect("", broker=server.url),
        lambda: evalq.runs(broker=server.url, state="finished"),  # type: ignore[arg-type]  # refused
        lambda: evalq.runs(),
    ):
        with pytest.raises(evalq.errors.EvalqError):
            refused()
    assert server.client.keys() == before
    assert not [path for path in Path("evalq-runs").glob("*") if path.name != "data"]


def test_one_key_is_one_run_from_many_threads(server: Server, apart: Fleet, rows: list[Row]) -> None:
    """And others are runs of their own: all handles end, each with the report of its record."""
    apart.add(2)
    with ThreadPoolExecutor(8) as pool:
        same = list(pool.map(lambda _: evalq.submit("planagent", rows, broker=server.url, once="k"), range(8)))
        each = list(pool.map(lambda row: evalq.submit("planagent", row, broker=server.url), rows))
        reports = list(pool.map(lambda handle: handle.run().report, each))
    assert len({handle.id for handle in same}) == 1
    assert reports == [evalq.evaluate("planagent", row).report for row in rows]
    assert same[0].run().report == evalq.evaluate("planagent", rows).report


_KILLED = """
import os, signal, sys, evalq
handle = evalq.submit("planagent", sys.argv[1], broker=sys.argv[2])
print(handle.id, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_ends_although_its_producer_was_killed(server: Server, apart: Fleet, rows: list[Row]) -> None:
    """Right after `submit` returned, and before any worker is there."""
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, "data.csv", server.url], capture_output=True, text=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    handle = evalq.connect(killed.stdout.strip(), broker=server.url)
    apart.add(1)
    assert handle.wait() == "done"
    assert handle.run().report == evalq.evaluate("planagent", "data.csv").report


def _child(handle: evalq.Handle, row: Row, out: str) -> None:
    mine = evalq.submit("planagent", row, broker=os.environ[URL])
    Path(out).write_text(json.dumps([handle.state(), mine.run().report, handle.run().id]))


def test_a_fork_may_go_on_with_handles_and_submit(
    server: Server, apart: Fleet, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With connections of its own: both processes hear what is theirs."""
    monkeypatch.setenv(URL, server.url)
    apart.add(1)
    handle = evalq.submit("planagent", rows)
    assert handle.wait() == "done"
    children = [
        multiprocessing.get_context("fork").Process(target=_child, args=(handle, row, f"{number}.json"))
        for number, row in enumerate(rows[:3])
    ]
    for child in children:
        child.start()
    reports = [evalq.submit("planagent", row).run().report for row in rows[3:5]]
    for child in children:
        child.join()
    for number, row in enumerate(rows[:3]):
        said = json.loads(Path(f"{number}.json").read_text())
        assert said == ["done", evalq.evaluate("planagent", row).report, handle.id]
    assert reports == [evalq.evaluate("planagent", row).report for row in rows[3:5]]


def test_submitting_leaves_the_handlers_and_streams_of_a_program_alone(
    server: Server, rows: list[Row], capfd: pytest.CaptureFixture[str]
) -> None:
    """It prints nothing, and a signal during it is the program's."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handle = evalq.submit("planagent", rows, broker=server.url)
    assert {number: signal.getsignal(number) for number in before} == before
    assert capfd.readouterr() == ("", "")
    assert repr(handle) == f"<evalq handle {handle.id}>"


def test_sweeps_and_suites_are_submitted_too(server: Server, apart: Fleet, rows: list[Row], tmp_path: Path) -> None:
    """Callers of the fleet make the calls; a suite's policy decides on its runs."""
    with running_agent() as (agent, url):
        write_golden(Path("golden.json"), {"C": {}})
        targets = tmp_path / "targets.yaml"
        targets.write_text(json.dumps({"targets": {"chat": {"kind": "openai", "base_url": url, "model": "m"}}}))
        apart.add(1, "--calls", "4", "--targets", str(targets))
        golden = json.loads(Path("golden.json").read_text())
        sweep = evalq.submit_sweep("vs", golden, target="chat", repeat=3, broker=server.url)
        policy = {"gates": [{"metric": "plans.set.intent", "min": 0}], "minimum_pairs": 1}
        runs: list[dict[str, object]] = [
            {"evaluator": "planagent", "name": "plans", "inputs": ["data.csv"]},
            {"evaluator": "vs", "golden": "golden.json", "target": "chat", "repeat": 2},
        ]
        Path("suite.yaml").write_text(json.dumps({"suite": "nightly", "runs": runs, "policy": policy}))
        suite = evalq.submit_suite("suite.yaml", broker=server.url)
        assert list(suite.runs) == ["plans", "vs"]
        assert suite.wait() == {"plans": "done", "vs": "done"}
        run = sweep.run()
        assert (run.target, run.report["records"]["total"], len(agent.log)) == ("chat", 3, 5)
        assert len(run.records()) == 3
        found = suite.results()
        assert found["plans"].report == evalq.evaluate("planagent", "data.csv").report
        assert found["vs"].report["records"]["total"] == 2
        assert suite.decide().decided in ("GO", "NO-GO", "INCONCLUSIVE")
    Path("stop.yaml").write_text(json.dumps({"runs": [runs[0], {**runs[1], "stop": "when-decided"}]}))
    known = len(evalq.runs(broker=server.url))
    with pytest.raises(evalq.errors.UsageError, match="a producer has to stay"):
        evalq.submit_suite("stop.yaml", broker=server.url)
    assert len(evalq.runs(broker=server.url)) == known, "none began"


def test_many_small_runs_are_finished_soon_after_one_another(server: Server, apart: Fleet, rows: list[Row]) -> None:
    """A process makes the reports of all that are complete: one for each took two seconds a run."""
    handles = [evalq.submit("planagent", row, broker=server.url) for row in rows]
    apart.add(1)
    began = time.monotonic()
    for handle in handles:
        assert handle.wait() == "done"
    assert [each.path for each in handles if each.path is None or not each.path.is_dir()] == []
    starts = {int(server.client.hget(f"evalq:run:{{{handle.id}}}:meta", "finals") or 0) for handle in handles}
    assert starts == {1}
    assert time.monotonic() - began < 2 * len(rows), "two seconds each"
    # Nobody has fetched their reports: prune asks the server about runs that were left to it.
    assert run_evalq("prune", "--older-than", "0", "--broker", server.url, cwd=Path.cwd()).returncode == 0
    assert not [handle for handle in handles if handle.path is None or handle.path.exists()]
    assert evalq.runs(broker=server.url) == []
