"""What a ledger adds: runs whose folders are elsewhere, how far they are, reports that wait there, and histories."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.partial import Partial
from evalq.evalcore.model.calls import Prompt
from evalq.evalcore.model.manifest import Chunk, Header, PlannedInput, Seal
from evalq.evalcore.version import code_version
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.cases import cases_of
from evalq.workers.ledger.detached import Reports
from evalq.workers.ledger.history import Drift, History, HistoryKey, entry_of
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.ledger.sweep_model import SweepHeader
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.settings import Settings
from tests.integration.harness import Server, running_server
from tests.samples import KEY
from tests.unit.comparing.conftest import Made
from tests.unit.viewing.conftest import Browser, viewing

CASES = [(f"case-{n}", n % 3 > 0) for n in range(60)]


@pytest.fixture
def settings(server: Server) -> Settings:
    """Of a server that holds nothing."""
    server.client.flushall()
    return Settings(broker=server.url)


@pytest.fixture
def server(tmp_path: Path) -> Any:
    """A server of a test's own, which it may stop."""
    with running_server(tmp_path) as started:
        yield started


def begun(server: Server, settings: Settings, run: str, chunks: int = 4) -> RunLedger:
    """A run that is open in the ledger, with one chunk answered."""
    ledger = RunLedger(server.client, settings)
    header = Header(run, "planagent", "1", "code", {}, (PlannedInput("x.csv", "x.csv", "x.csv"),), suite="night")
    plan = [Chunk(seq, 0, seq * 10, seq * 10 + 10, seq + 1, 1, f"{seq:064}") for seq in range(chunks)]
    ledger.open(header, 1, key=KEY)
    ledger.append(run, plan, 0, Seal(chunks, ("s",)))
    assert ledger.commit(header, plan[0], 1, Partial("a" * 64, b"part")) == "committed"
    return ledger


def live(browser: Browser, run: str) -> dict[str, Any]:
    """How a run stands, as a page asks."""
    found: dict[str, Any] = json.loads(browser.get(f"/live?run={run}").body)[run]
    return found


def test_a_run_that_only_the_ledger_has_is_listed_and_followed(here: Path, server: Server, settings: Settings) -> None:
    """With its suite and how far it is; when it has ended, that."""
    ledger = begun(server, settings, "far")
    with viewing(settings=settings) as browser:
        browser.enter()
        index = browser.get("/")
        assert "1 run, the latest first." in index.text
        assert "records 1, chunks 1 of 4" in index.text
        assert "night" in index.text
        page = browser.get("/run/far")
        assert "in the ledger only; its folder is elsewhere" in page.text
        assert (live(browser, "far")["going"], live(browser, "far")["share"]) == (True, 0.25)
        ledger.close("far", "cancelled")
        assert live(browser, "far")["going"] is False


def test_live_calls_are_followed(here: Path, server: Server, settings: Settings) -> None:
    """So many of so many."""
    calls = SweepLedger(server.client, settings, "a 1 x")
    calls.open(SweepHeader("asking", "robot", code_version(), 3, 4), 0, 0.0)
    calls.offer("asking", [Prompt(f"c{number}", "a", "q") for number in range(3)])
    with viewing(settings=settings) as browser:
        browser.enter()
        assert live(browser, "asking")["facts"][:2] == [["Calls", "0 of 12"], ["In flight", "0"]]
        assert "robot" in browser.get("/").text
        # Then a judge is asked about the outputs: the page shows both stages, and the run goes on while either does.
        calls.close("asking", "done")
        judge = SweepHeader("asking.1-abc", "judge", code_version(), 2, 3)
        calls.open(judge, 0, 0.0)
        calls.restore("asking", list(range(12)))
        calls.restore(judge.run, [0, 1, 2])
        found = live(browser, "asking")
        assert found["facts"][:3] == [["Calls", "12 of 12"], ["About the outputs", "3 of 6"], ["In flight", "0"]]
        assert (found["going"], found["share"]) == (True, 15 / 18)
        calls.close(judge.run, "done")
        assert live(browser, "asking")["going"] is False


def test_a_report_that_waits_in_the_ledger_is_shown_and_compared(
    made: Made, server: Server, settings: Settings
) -> None:
    """Without its records, which are not there; as what it was in its folder."""
    path, kept = made("gone", CASES), made("kept", CASES[:50])
    run, other = (RunFolder(each).info().run for each in (path, kept))
    reports = Reports(begun(server, settings, run), settings)
    reports.store(run, (path / "report.json").read_bytes())
    reports.keep_cases(run, msgspec.json.encode(cases_of(RunFolder(path))))
    shutil.rmtree(path)
    with viewing(run, settings=settings) as browser:
        browser.enter()
        page = browser.get(f"/run/{run}")
        assert "40 of 60 transcripts comply" in page.text
        assert "Only the report of this run is here" in page.text
        assert browser.get(f"/run/{run}/records").status == 404
        assert "Pass rate: inconclusive" in browser.get(f"/compare?base={run}&cand={other}").text


def test_a_history_has_runs_of_the_ledger_and_of_folders_once(made: Made, server: Server, settings: Settings) -> None:
    """A run that is in both is one; one whose folder is gone is still there, with its numbers; and its drift."""
    evaluator, history = plugins.get("verification"), History(server.client, settings)
    for name in ("here", "there"):
        folder = RunFolder(made(name, CASES, suite="night"))
        place = HistoryKey("verification", "night")
        assert history.record(entry_of(evaluator, folder.info().run, place, folder.report(), 1.0, {}))
        Drift(server.client, settings).count(place, cases_of(folder))
    gone = RunFolder(Path("evalq-runs/there")).info().run
    shutil.rmtree("evalq-runs/there")
    with viewing(settings=settings) as browser:
        browser.enter()
        assert "night" in browser.get("/suites").text
        found = browser.get("/suite?evaluator=verification&suite=night")
        assert "night: 2 runs" in found.text
        assert gone in found.text
        assert "Nothing to compare yet. The next run is compared with the first run" in found.text
        assert "66.7 %" in found.text


def test_a_server_that_goes_away_takes_its_part_of_the_pages_alone(
    made: Made, server: Server, settings: Settings
) -> None:
    """What is in folders is shown, and the page says that the ledger did not answer; when it is back, all is."""
    run = RunFolder(made("here", CASES)).info().run
    begun(server, settings, "far")
    with viewing(settings=settings) as browser:
        browser.enter()
        assert "2 runs" in browser.get("/").text
        server.kill()
        try:
            for path in ("/", f"/run/{run}", "/run/far", "/suites", "/suite?evaluator=verification&suite=default"):
                assert browser.get(path).status in (200, 404)
            assert "does not answer" in browser.get("/").text
            assert "40 of 60 transcripts comply" in browser.get("/").text
        finally:
            server.start()
