"""A run that ends counts once in the drift of its suite, and approving a baseline begins anew."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.measures import Measure, Measures
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.cases import CASES, cases_of, fresh_cases
from evalq.producer.run.publication import count_drift
from evalq.producer.servers import Servers
from evalq.workers.ledger.detached import Detached
from evalq.workers.ledger.history import Drift, Entry, History, HistoryKey
from evalq.workers.ledger.keys import HistoryKeys
from evalq.workers.recovery.finaliser import FinishedCases
from evalq.workers.settings import Settings
from tests.integration.harness import Server, running_server
from tests.unit.comparing.conftest import Command, Made

PLACE = HistoryKey("verification", "default")
GOOD = [(f"{number}", number < 36) for number in range(40)]
BAD = [(f"{number}", number < 6) for number in range(40)]
End = Callable[..., str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("server")) as one:
        yield one


@pytest.fixture
def drift(server: Server) -> Drift:
    """An emptied ledger with a history."""
    server.client.flushall()
    History(server.client, Settings()).record(Entry("x", PLACE, {"total": 1}, []))
    return Drift(server.client, Settings())


@pytest.fixture
def end(made: Made, drift: Drift, server: Server) -> End:
    """Ends a run of transcripts as its command does before it writes the report, with these settings."""

    def ended(name: str, transcripts: list[tuple[str, bool]], **settings: Any) -> str:
        folder = RunFolder.existing(made(name, transcripts))
        report = folder.report()
        (folder.path / "report.json").unlink()
        return count_drift(
            folder, plugins.get("verification"), report, Servers(Settings(broker=server.url, **settings))
        )

    return ended


def test_a_run_is_counted_before_its_report_is_there(end: End, drift: Drift, here: Path) -> None:
    """So that a killed command's run, resumed, is counted; and its cases are not read a second time for the ledger."""
    for name, transcripts in (("a", GOOD), ("b", [*GOOD, ("40", True)]), ("c", BAD)):
        assert end(name, transcripts) == ""
    (state,) = drift.states(PLACE)
    assert (state.runs, state.run) == (2, json.loads((here / "c" / "run.json").read_text())["run"])
    assert state.measures["pass_rate"].since == state.run, "30 of 40 fewer pass"
    assert (here / "c" / CASES).exists()


def test_a_run_of_too_many_records_and_one_without_a_server_are_left_out(end: End, drift: Drift, made: Made) -> None:
    """In silence: the one would have to be read twice, the other has no ledger that outlives it."""
    assert end("big", GOOD, cases_records=39) == ""
    folder = RunFolder.existing(made("alone", GOOD))
    assert count_drift(folder, plugins.get("verification"), folder.report(), Servers(Settings())) == ""
    assert drift.states(PLACE) == []


def test_a_run_that_cannot_be_counted_says_why(end: End, drift: Drift, server: Server) -> None:
    """A ledger that holds something else, one without this suite's history, and one that is away."""
    server.client.set(HistoryKeys.of(PLACE.member).drift, "something else")
    assert end("a", GOOD).startswith("this run is not counted in the drift of its suite: ")
    server.client.flushall()
    assert "suite default has no history" in end("b", GOOD)
    server.kill()
    try:
        assert end("c", GOOD, connect_seconds=1).startswith("this run is not counted in the drift of its suite: ")
    finally:
        server.start()


def test_an_evaluator_that_cannot_tell_its_cases_keeps_no_report_back(
    end: End, drift: Drift, server: Server, made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    """The command and a worker report its error, and the run ends."""

    def broken(line: object) -> None:
        raise KeyError("case")

    folder, evaluator = RunFolder.existing(made("run", GOOD)), copy.copy(plugins.get("verification"))
    vars(evaluator)["measures"] = Measures((Measure("pass_rate"),), broken)
    said = count_drift(folder, evaluator, folder.report(), Servers(Settings(broker=server.url)))
    reason = f"{folder.path}: verification cannot read the cases of this run (KeyError: 'case'); if another"
    assert said.endswith(f"{reason} version wrote it, or it was changed since, evaluate again")
    run = FinishedCases(evaluator, "r")
    for lines in ([b"{}"], [b"{}"]):
        run.add(lines)
    assert run.cases("default", Detached(0.0), folder.report(), b"") is None
    assert len(caplog.messages) == 1
    assert drift.states(PLACE) == []


def test_an_approved_run_begins_anew(end: End, drift: Drift, server: Server, made: Made, command: Command) -> None:
    """`evalq baseline set` with the server ends a page; without it the ledger stays as it was."""
    for name, transcripts in (("a", GOOD), ("b", BAD)):
        end(name, transcripts)
    folder = made("new", [*BAD, ("40", True)])
    assert command("baseline", "set", "main", str(folder)).code == 0
    assert drift.states(PLACE)[0].drifting
    assert command("baseline", "set", "main", str(folder), "--broker", server.url).code == 0
    (state,) = drift.states(PLACE)
    assert (state.drifting, state.kind, state.runs) == (False, "baseline", 0)
    assert state.reference == cases_of(RunFolder.existing(folder)).run


def test_a_run_s_cases_are_those_that_are_read_after_its_end(made: Made) -> None:
    """Kept under the digest that its report.json has then."""
    folder = RunFolder.existing(made("run", GOOD))
    wanted = cases_of(folder)
    (folder.path / CASES).unlink()
    assert fresh_cases(folder, plugins.get("verification"), folder.report()) == wanted
