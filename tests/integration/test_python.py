"""From Python through the queue: the same report as in this process, sweeps, and histories."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import evalq
from evalq.evalcore.evaluators.planagent.sample import write_rows
from tests.agents.server import running_agent, write_golden
from tests.integration.harness import Server
from tests.integration.ports import free_port


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with results.csv of 300 rows."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.delenv("EVALQ_BROKER", raising=False)
    with (work / "results.csv").open("w", encoding="utf-8", newline="") as out:
        write_rows(out, 300, seed=3)
    return work


def test_the_queue_gives_the_same_run_and_a_history(server: Server, rows: Path) -> None:
    """Over a broker: the report and records of this process, and afterwards one entry a run, the oldest first."""
    here = evalq.evaluate("planagent", "results.csv", suite="nightly")
    first = evalq.evaluate("planagent", "results.csv", broker=server.url, workers=1, suite="nightly", folder="first")
    second = evalq.evaluate("planagent", "results.csv", broker=server.url, workers=1, suite="nightly", chunk_size=99)
    assert first.report == second.report == here.report
    pd.testing.assert_frame_equal(second.records(), here.records())
    assert second.path == Path("evalq-runs").absolute() / second.id
    past = here.history(server.url)
    assert list(dict.fromkeys(past["run"])) == [first.id, second.id]
    assert (past["total"] == 300).all()
    assert str(past.dtypes["ended"]) == "datetime64[ns, UTC]"
    assert past["ended"].is_monotonic_increasing
    summary = here.summary()
    last = past[past["run"] == second.id].reset_index(drop=True)[list(summary.columns)]
    pd.testing.assert_frame_equal(last, summary)
    assert list(dict.fromkeys(here.history(server.url, most=1)["run"])) == [second.id]
    assert evalq.evaluate("planagent", "results.csv", suite="other").history(server.url).empty


def test_a_private_server_serves_one_evaluation(rows: Path) -> None:
    """`workers` alone starts a server and workers, and leaves the run folder."""
    run = evalq.evaluate("planagent", "results.csv", workers=1, folder="out")
    assert run.report == evalq.evaluate("planagent", "results.csv").report
    assert (rows / "out" / "report.json").is_file()


def test_one_key_is_one_run_whatever_it_is_computed_by(rows: Path) -> None:
    """A cell that is run again gets the run that is there; another limit is another run."""
    first = evalq.evaluate("planagent", "results.csv", once="k", limit=120)
    assert first.report["records"]["total"] == 120
    assert first.report == evalq.evaluate("planagent", "results.csv", limit=120).report
    again = evalq.evaluate("planagent", "results.csv", once="k", limit=120)
    assert (again.id, again.path) == (first.id, Path("evalq-runs").absolute() / first.id)
    assert evalq.evaluate("planagent", "results.csv", once="k", limit=121).id != first.id
    assert "command" not in json.loads((rows / "evalq-runs" / first.id / "run.json").read_text())
    with pytest.raises(evalq.errors.UsageError, match="at least 1 record"):
        evalq.evaluate("planagent", "results.csv", limit=0)


def test_a_run_that_was_left_is_resumed(rows: Path) -> None:
    """Without the server that is gone, to the report that it would have had; a finished one is refused."""
    url = f"redis://127.0.0.1:{free_port()}/0"
    (rows / "quick.yaml").write_text("patience_seconds: 0.5\nconnect_seconds: 0.5\n")
    with pytest.raises(evalq.errors.BrokerUnreachable):
        evalq.evaluate("planagent", "results.csv", broker=url, settings="quick.yaml", folder="left")
    run = evalq.resume("left")
    assert (run.state, run.report) == ("done", evalq.evaluate("planagent", "results.csv").report)
    with pytest.raises(evalq.errors.UsageError, match="this run is done"):
        evalq.resume("left")


def test_a_sweep_whose_budget_is_spent_is_resumed_with_a_larger_one(rows: Path) -> None:
    """Paid once: the key's sweep is found again, and makes the calls that are left."""
    with running_agent() as (agent, url):
        write_golden(rows / "golden.json", {"C": {}})
        chat = {"kind": "openai", "base_url": url, "model": "m"}
        (rows / "targets.yaml").write_text(json.dumps({"targets": {"chat": chat}}))

        def ask() -> evalq.Run:
            return evalq.sweep(
                "vs", "golden.json", target="chat", targets="targets.yaml", repeat=3, max_calls=2, workers=1,
                folder="out", once="k",
            )  # fmt: skip

        assert ask().report["records"]["total"] == 2
        assert ask().report["records"]["total"] == 2
        assert len(agent.log) == 2
        with pytest.raises(evalq.errors.UsageError, match="this run is done"):
            evalq.resume("out")
        assert evalq.resume("out", max_calls=3, workers=1).report["records"]["total"] == 3
        assert len(agent.log) == 3


def test_servers_that_are_away_are_errors_of_evalq(rows: Path) -> None:
    """BrokerUnreachable, by every way to a server, and a run begun for it can be resumed."""
    url = f"redis://127.0.0.1:{free_port()}/0"
    (rows / "quick.yaml").write_text("patience_seconds: 0.5\nconnect_seconds: 0.5\n")
    with pytest.raises(evalq.errors.BrokerUnreachable, match="resume with"):
        evalq.evaluate("planagent", "results.csv", broker=url, settings="quick.yaml", folder="left")
    assert evalq.open_run("left").state == "stopped"
    with pytest.raises(evalq.errors.BrokerUnreachable):
        evalq.open_run("left").history(url)


def test_a_sweep_calls_an_agent_and_evaluates_its_answers(rows: Path) -> None:
    """Three calls a case, recorded in the folder, with the report of what is recorded."""
    with running_agent() as (agent, url):
        write_golden(rows / "golden.json", {"C": {}})
        chat = {"kind": "openai", "base_url": url, "model": "m"}
        (rows / "targets.yaml").write_text(json.dumps({"targets": {"chat": chat}}))
        run = evalq.sweep("vs", "golden.json", target="chat", targets="targets.yaml", repeat=3, workers=1, folder="out")
        assert len(agent.log) == 3
    assert (run.state, run.target, run.report["records"]["total"]) == ("done", "chat", 3)
    replayed = evalq.evaluate("vs", "golden.json", options={"outputs": ["out/outputs.jsonl"]})
    assert replayed.report["results"] == run.report["results"]
    assert len(run.records()) == 3
