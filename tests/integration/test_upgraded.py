"""A worker whose files are installed anew while it runs: no answer of the new code is taken for one of the old."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalq.workers.ledger.detached import Reports
from evalq.workers.ledger.failures import Failures
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.settings import Settings
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

TOP = Path(__file__).parents[2]

ARGS = ("planagent", "small.csv", "--chunk-size", "100", "--format", "none")
RESTART = "were changed while this worker ran (it began as code "


NEW = """
def _new(before):
    def evaluate(self, batch, params):
        outcome = before(self, batch, params)
        outcome.lines[:] = [line[:-1] + b',"new":1}' for line in outcome.lines]
        return outcome
    return evaluate

PlanAgent.evaluate = _new(PlanAgent.evaluate)
"""


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Path]:
    """The code of this tree at another place, where it can be changed."""
    copy = tmp_path / "installed"
    shutil.copytree(TOP / "evalq", copy / "evalq", ignore=shutil.ignore_patterns("__pycache__"))
    yield copy
    shutil.rmtree(copy)


def _upgrade(installed: Path) -> None:
    """Another plan agent, whose records say something else, and another step of the ledger."""
    with (installed / "evalq/evalcore/evaluators/planagent/evaluator.py").open("a") as out:
        out.write(NEW)
    claim = installed / "evalq/workers/ledger/lua/runs/claim.lua"
    claim.write_text("error('the new step')\n" + claim.read_text())


def _lives(server: Server) -> None:
    wait_until(lambda: Heartbeats(server.client).workers(), "the worker lives")


def test_what_a_worker_loads_after_an_upgrade_answers_for_nobody(
    server: Server, fleet: Fleet, data: Path, calm: Calm, tmp_path: Path, installed: Path
) -> None:
    """It says that it is to be restarted, for the run to wait for a worker of its own code; the report is the run's."""
    with running_fleet(server.url, data, PYTHONPATH=str(installed)) as old:
        old.add(1)
        _lives(server)
        _upgrade(installed)
        producer = start_evalq(*ARGS, "--broker", server.url, "--out", tmp_path / "run", cwd=data)
        run = wait_until(lambda: info(tmp_path / "run").get("run"), "the run begins")
        failures = Failures(RunLedger(server.client, Settings()))
        (message,) = wait_until(lambda: failures.counts(run).workers.values(), "the worker has said why")
        assert message.kind == "load"
        assert RESTART in message.reason
        status = evalq("status", tmp_path / "run", "--broker", server.url, cwd=data)
        assert "): restart this worker" in status.stdout
        fleet.add(1)
        _, said = producer.communicate(timeout=PATIENCE)
        assert producer.returncode == 0, said
    same_answer(calm("small.csv"), tmp_path / "run")


def test_a_report_that_an_upgraded_worker_cannot_make_is_reported_and_left_to_watch(
    server: Server, data: Path, calm: Calm, tmp_path: Path, installed: Path
) -> None:
    """What it had loaded computes on; its report is a new process's, of the new code, and that one left it silently."""
    with running_fleet(server.url, data, PYTHONPATH=str(installed)) as old:
        old.add(1)
        done = evalq(*ARGS, "--broker", server.url, "--out", tmp_path / "first", cwd=data)
        assert done.returncode == 0, done.stderr
        _upgrade(installed)
        left = evalq(*ARGS, "--broker", server.url, "--out", tmp_path / "run", "--detach", cwd=data)
        assert left.returncode == 0, left.stderr
        run = info(tmp_path / "run")["run"]
        failures = Failures(RunLedger(server.client, Settings()))
        (message,) = wait_until(lambda: failures.counts(run).workers.values(), "the worker has said why")
        assert message.kind == "report"
        assert RESTART in message.reason
        assert not Reports(RunLedger(server.client, Settings()), Settings()).report(run)
        watched = evalq("watch", tmp_path / "run", "--broker", server.url, cwd=data)
        assert watched.returncode == 0, watched.stderr
    same_answer(calm("small.csv"), tmp_path / "run")
