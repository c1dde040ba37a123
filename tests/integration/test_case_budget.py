"""A case that never succeeds ends at its budget (`case_budget`), inline and on a fleet, over kills and resumes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.model.calls import Prompt, Used
from evalq.evalcore.version import code_version
from evalq.workers.callers.case_use import CaseUse
from evalq.workers.ledger.sweep_model import SweepHeader
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.settings import Settings
from evalq.workers.targets.answers import Answered, Failure
from evalq.workers.targets.price import Price
from evalq.workers.targets.target import CaseBudget
from tests.agents.server import Agent, running_agent
from tests.integration.harness import evalq, running_fleet, running_server, start_evalq, wait_until

BROKEN = json.dumps({"do": "raw", "status": 500, "body": {"error": {"message": "broken"}}})
HANGS = json.dumps({"do": "hang"})
MANY = {"server": {"times": 90, "wait_seconds": 0.01, "factor": 1}}
CHECKS = ("checks", "cases.json", "--target", "chat", "--quiet", "--format", "none", "--out", "run")


@pytest.fixture
def service() -> Iterator[tuple[Agent, str]]:
    """A server that obeys."""
    with running_agent() as started:
        yield started


def write(folder: Path, url: str, question: str, **more: Any) -> None:
    """Three cases, of which the one in the middle asks ``question``."""
    asked = ["one", question, "three"]
    cases = [{"id": f"c{n}", "input": text, "checks": [{"contains": "echo"}]} for n, text in enumerate(asked)]
    (folder / "cases.json").write_text(json.dumps({"cases": cases}))
    entry = {"kind": "openai", "base_url": url, "model": "m", "retries": MANY, **more}
    (folder / "targets.yaml").write_text(json.dumps({"targets": {"chat": entry}}))


def errors(folder: Path) -> dict[str, str]:
    """{case: its error} of what the run recorded."""
    lines = map(json.loads, (folder / "run/outputs.jsonl").read_text().splitlines())
    return {line["case"]: line["error"] for line in lines if "error" in line}


@pytest.mark.parametrize("fleet", [False, True])
def test_a_case_that_never_succeeds_ends_at_its_budget(fleet: bool, service: tuple[Agent, str], tmp_path: Path) -> None:
    """The others have their answers; the report has its case as lost, and the run is incomplete."""
    agent, url = service
    write(tmp_path, url, BROKEN, case_budget={"tries": 3})
    if fleet:
        with running_server(tmp_path) as server, running_fleet(server.url, tmp_path) as workers:
            workers.add(1, "--calls", "4", "--targets", "targets.yaml")
            done = evalq(*CHECKS, cwd=tmp_path, EVALQ_BROKER=server.url)
    else:
        done = evalq(*CHECKS, "--targets", "targets.yaml", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "1 call was never answered (1 server)" in done.stderr
    assert agent.calls[BROKEN] == 3
    found = errors(tmp_path)
    assert list(found) == ["c1"]
    assert found["c1"].endswith("the budget of this case is spent: 3 tries (case_budget)")


def test_tries_that_a_kill_cut_off_count(service: tuple[Agent, str], tmp_path: Path) -> None:
    """Two commands are killed in a call that hangs; the third makes no further call of a case with two tries."""
    agent, url = service
    write(tmp_path, url, HANGS, case_budget={"tries": 2})
    words: tuple[str, ...] = (*CHECKS, "--targets", "targets.yaml")
    for tries in (1, 2):
        process = start_evalq(*words, cwd=tmp_path)
        wait_until(lambda: agent.calls[HANGS] == tries, "it calls")  # noqa: B023 - before the next round
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        words = ("resume", "run", "--targets", "targets.yaml", "--quiet")
    done = evalq(*words, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert agent.calls[HANGS] == 2
    assert "spent: 2 tries (case_budget); the processes that made its tries have ended" in errors(tmp_path)["c1"]


def test_the_ledger_counts_tries_of_dead_processes_and_of_those_that_give_back(tmp_path: Path) -> None:
    """Only tries that began, once each, and no longer than until the process's lease ended."""
    with running_server(tmp_path) as server:
        ledger = SweepLedger(server.client, Settings(broker=server.url))
        ledger.open(SweepHeader("r", "t", code_version(), 2, 1))
        ledger.offer("r", [Prompt("a", "a", "q"), Prompt("b", "a", "q")])
        assert ledger.claim("r", "dead", 2, 0.05)[1] == [0, 1]
        for _ in range(2):  # the reply was lost, and it comes again
            assert ledger.begin("r", "dead", {0: 1}) == {0}

        def taken_back() -> bool:
            ledger.claim("r", "next", 0, 600)
            return not _held(ledger)

        wait_until(taken_back, "its calls go back")
        assert (ledger.used("r", 0).tries, ledger.used("r", 1)) == (1, Used())
        assert 0 <= ledger.used("r", 0).seconds < 5
        assert ledger.claim("r", "next", 2, 600)[1] == [0, 1]
        ledger.begin("r", "next", {0: 1})
        for _ in range(2):
            ledger.keep_used("r", "next", {0: Used(4, 2.5, 0.25)})
        ledger.keep_used("r", "another", {0: Used(9, 9.0, 9.0)})
        ledger.give_back("r", "next", {0: 1})
        assert ledger.used("r", 0) == Used(4, 2.5, 0.25)


def _held(ledger: SweepLedger) -> int:
    status = ledger.poll("r")
    assert status is not None
    return status.busy


def test_each_part_of_a_budget_ends_a_case() -> None:
    """Tries without an answer, seconds since the first try, and what tries cost; a wait counts beforehand."""
    now = 0.0
    price = Price(prompt_per_million=1.0, completion_per_million=1.0)

    def use(before: Used = Used(), **parts: float) -> CaseUse:  # noqa: B008 - immutable
        return CaseUse(CaseBudget.model_validate(parts), before, clock=lambda: now)

    failed = Failure(kind="server", reason="no")
    free, tries, seconds, cost = use(), use(tries=2), use(seconds=60.0), use(cost=2.0)
    for each in (free, tries, seconds, cost):
        each.begin()
        assert each.spent() == ""
        each.add(failed, price)
        assert each.spent() == ""
        each.add(Answered(text="x", latency_seconds=0.1), price)
        assert each.spent(59.0) == "", "an answer is no try without one, and costs what it says"
        each.add(Failure(kind="bad_output", reason="no", prompt_tokens=1_000_000, completion_tokens=1_000_000), price)
    assert [each.spent() for each in (free, tries, seconds, cost)] == ["", "2 tries", "", "a cost of 2"]
    assert seconds.spent(60.0) == "60 s"
    now = 61.0
    assert (seconds.spent(), free.spent()) == ("60 s", "")
    assert seconds.used == Used(2, 61.0, 2.0)
    assert use(seconds.used, seconds=100.0).spent(39.0) == "100 s", "the seconds of other processes count"
    assert Used.of(seconds.used.wire()) == seconds.used
    assert [Used.of(text) for text in ("", "x", "1 nan 0", "1 2")] == [Used()] * 4


def test_a_budget_of_money_needs_a_price(tmp_path: Path) -> None:
    """Without one it would hold nothing back."""
    write(tmp_path, "http://127.0.0.1:9/v1", "two", case_budget={"cost": 1})
    done = evalq(*CHECKS, "--targets", "targets.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "targets.yaml" in done.stderr
    assert "case_budget: a cost needs a price" in done.stderr


DOWN = json.dumps({"do": "raw", "status": 503, "body": {"error": {"message": "not this one"}}})


def test_a_target_that_refuses_one_case_for_good_ends_by_its_seconds(
    service: tuple[Agent, str], tmp_path: Path
) -> None:
    """It seems to be down, since only that case is left; the seconds of the case pass meanwhile."""
    _, url = service
    write(tmp_path, url, DOWN, case_budget={"seconds": 2})
    done = evalq(*CHECKS, "--targets", "targets.yaml", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "1 call was never answered (1 server)" in done.stderr
    found = errors(tmp_path)
    assert list(found) == ["c1"]
    assert found["c1"].endswith("the budget of this case is spent: 2 s (case_budget)")


def test_the_cases_that_hold_the_end_are_named(service: tuple[Agent, str], tmp_path: Path) -> None:
    """Without a budget the calls end once the target has been down for too long: it was so for one case alone."""
    _, url = service
    write(tmp_path, url, DOWN)
    cases = json.loads((tmp_path / "cases.json").read_text())
    cases["cases"] += [{"id": f"d{n}", "input": f"{n}", "checks": [{"contains": "echo"}]} for n in range(3)]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    done = evalq(*CHECKS, "--repeat", "2", "--targets", "targets.yaml", cwd=tmp_path, EVALQ_DOWN_SECONDS="1")
    assert done.returncode == 3, done.stderr
    assert "10 of 12 outputs are recorded and kept; cases that lack outputs: c1 (2). If the target" in done.stderr
