"""The history of finished runs, by real commands; and the fleet in the terminal."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from evalq.evalcore.contract import plugins
from evalq.evalcore.model.canonical import digest
from evalq.evalcore.model.manifest import queue_name
from evalq.evalcore.version import code_version
from evalq.workers.ledger.history import Drift, Entry, History, HistoryKey
from evalq.workers.settings import Settings
from tests.integration.harness import PATIENCE, Fleet, Server, evalq, info, start_evalq, wait_until
from tests.integration.scraping import running_exporter

NIGHT = HistoryKey("planagent", "night", "")


def _entries(server: Server) -> list[Entry]:
    return History(server.client, Settings()).entries(NIGHT)


def test_a_finished_run_is_remembered_when_the_ledger_has_forgotten_it(
    server: Server, fleet: Fleet, data: Path, tmp_path: Path
) -> None:
    """Its counts, tags and quality stay; inline runs have no entry."""
    fleet.add(1)
    args = ("planagent", "small.csv", "--suite", "night", "--tag", "commit=abc", "--format", "none")
    for name, where in (("one", ("--broker", server.url)), ("two", ("--broker", server.url)), ("in", ("--inline",))):
        done = evalq(*args, *where, "--out", tmp_path / name, cwd=data)
        assert done.returncode == 0, done.stderr
    gone = server.client.keys("evalq:run:*")
    assert all(server.client.pttl(key) > 0 for key in gone)
    server.client.delete(*gone)
    newest, oldest = _entries(server)
    assert [newest.run, oldest.run] == [info(tmp_path / name)["run"] for name in ("two", "one")]
    report = (tmp_path / "two" / "report.json").read_bytes()
    assert newest.digest == digest(report.removesuffix(b"\n"))
    assert newest.records == json.loads(report)["records"]
    assert newest.tags == {"commit": "abc"}
    assert newest.seconds == info(tmp_path / "two")["seconds"]
    assert newest.samples == oldest.samples
    assert len(newest.samples) > 10


def test_a_report_ends_with_the_last_ten_diversities(server: Server, fleet: Fleet, data: Path, tmp_path: Path) -> None:
    """Where earlier runs of the suite are known: each once, the newest last; the first run has none to show."""
    fleet.add(1)
    place = HistoryKey("vs", "night", "")
    history = History(server.client, Settings())
    for number in range(11):
        samples: list[tuple[str, tuple[str, ...], float]] = [("evalq_vs_diversity", (), number / 16)]
        assert history.record(Entry(f"run-{number}", place, {"total": 1}, samples))
    sample = plugins.get("vs").sample
    assert sample is not None
    request = sample.write(data, 30, 1)
    named = ("--outputs", data / "outputs.jsonl", "--suite", "night", "--broker", server.url, "--out", "run")
    done = evalq("vs", *request.inputs, *named, cwd=tmp_path)
    assert done.returncode in (0, 1), done.stderr
    vs = info(tmp_path / "run")["run"]
    text = (tmp_path / "run" / "report.md").read_text()
    (head, _, *rows) = text.partition("## The last runs of the suite")[2].strip().splitlines()[2:]
    assert [cell.strip() for cell in head.split("|")[2:-1]] == [*(f"run-{number}" for number in range(2, 11)), vs]
    (shown,) = [row.split("|")[2:-1] for row in rows if row.startswith("| diversity |")]
    assert [float(cell) for cell in shown[:9]] == [round(float(f"{number / 16:.3g}"), 4) for number in range(2, 11)]


def test_a_suite_that_has_ended_is_forgotten_by_name(server: Server, fleet: Fleet, data: Path, tmp_path: Path) -> None:
    """The exporter shows it no more, so no alert waits for it; the other suite stays. Unknown names are refused."""
    fleet.add(1)
    for suite in ("night", "day"):
        done = evalq("planagent", "small.csv", "--suite", suite, "--broker", server.url, "--format", "none",
                     "--out", tmp_path / suite, cwd=data)  # fmt: skip
        assert done.returncode == 0, done.stderr
    prune = ("prune", "--broker", server.url, "--suite", "night")
    with running_exporter(server.url, tmp_path) as exporter:

        def shown() -> set[str]:
            return {dict(labels)["suite"] for name, labels in exporter.scrape() if name == "evalq_last_run_seconds"}

        assert evalq(*prune, "--dry-run", cwd=tmp_path).stdout == "night: history of planagent\n"
        assert shown() == {"night", "day"}
        assert evalq(*prune, cwd=tmp_path).stdout == "night: history of planagent\n"
        assert shown() == {"day"}
    again = evalq(*prune, cwd=tmp_path)
    assert again.returncode == 2
    assert "--suite night: the ledger has no history of it (it has: day)" in again.stderr
    assert not [key for key in server.client.keys("evalq:history*") if b"night" in key]
    assert (tmp_path / "night" / "report.json").is_file()


def test_a_run_that_is_finished_twice_is_remembered_once(
    server: Server, fleet: Fleet, data: Path, tmp_path: Path
) -> None:
    """The folder cannot be written when the history already is: the resumed run, with the same answer, adds nothing.

    Nor does it to the drift of its suite.
    """
    out = tmp_path / "run"
    run = start_evalq("planagent", "small.csv", "--broker", server.url, "--suite", "night", "--format", "none",
                      "--out", str(out), cwd=data)  # fmt: skip
    wait_until(lambda: info(out).get("epoch"), "the run begins")
    (out / "report.json" / "in the way").mkdir(parents=True)
    fleet.add(1)
    assert run.wait(timeout=PATIENCE) == 3
    before, (drift,) = _entries(server), Drift(server.client, Settings()).states(NIGHT)
    (out / "report.json" / "in the way").rmdir()
    (out / "report.json").rmdir()
    done = evalq("resume", out, "--broker", server.url, "--format", "none", cwd=data)
    assert done.returncode == 0, done.stderr
    assert (out / "report.json").is_file()
    assert _entries(server) == before
    assert len(before) == 1
    assert drift.run == before[0].run
    assert Drift(server.client, Settings()).states(NIGHT) == [drift]


def test_a_history_that_cannot_be_written_ends_no_run(server: Server, fleet: Fleet, data: Path, tmp_path: Path) -> None:
    """The report is there and exit is 0; standard error says what is missing."""
    fleet.add(1)
    server.client.set("evalq:histories", "something else")
    args = ("planagent", "small.csv", "--broker", server.url, "--suite", "night", "--format", "none")
    done = evalq(*args, "--out", tmp_path / "run", cwd=data)
    assert done.returncode == 0, done.stderr
    assert "this run is not in the history of its suite" in done.stderr
    assert (tmp_path / "run" / "report.json").exists()


def test_the_terminal_shows_the_fleet(server: Server, fleet: Fleet, data: Path, tmp_path: Path) -> None:
    """Work without a worker: status says how much waits, doctor what to do, watch what the fleet is at."""
    run = start_evalq("planagent", "mid.csv", "--broker", server.url, "--chunk-size", "250", "--format", "none",
                      "--out", str(tmp_path / "run"), cwd=data)  # fmt: skip
    queue = queue_name("bulk", code_version())
    wait_until(lambda: server.client.llen(queue) == 32, "all messages wait")
    with contextlib.ExitStack() as stack:
        stack.callback(run.kill)
        status = evalq("status", "--broker", server.url, cwd=tmp_path)
        assert status.returncode == 0, status.stderr
        assert "32 waiting, 0 workers" in status.stdout
        assert "1 open" in status.stdout
        shown = json.loads(evalq("status", tmp_path / "run", "--json", "--broker", server.url, cwd=tmp_path).stdout)
        assert ["workers", "0 alive, 0 consuming, 0 stuck"] in shown["fleet"]
        doctor = evalq("doctor", "--broker", server.url, cwd=tmp_path)
        assert doctor.returncode == 3
        assert "32 waiting and no worker: start one" in doctor.stdout
        watch = start_evalq("watch", str(tmp_path / "run"), "--broker", server.url, "--format", "none", cwd=data)
        assert watch.stderr is not None
        assert "32 queued" in watch.stderr.readline()
        fleet.add(1)
        assert run.wait(timeout=PATIENCE) == watch.wait(timeout=PATIENCE) == 0
