"""Suites as tests over a real fleet: begun when tests are collected, waited for at the end, and ended with pytest."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalq.workers.ledger.history import History, HistoryKey
from evalq.workers.settings import Settings
from tests.integration.harness import PATIENCE, Server, clean_environment, running_fleet, wait_until
from tests.portions import some
from tests.unit.api.sessions import PLAIN, keep_modules, session_here
from tests.unit.comparing.conftest import BAD, GOOD

__all__ = ["keep_modules"]  # a fixture

pytest_plugins = ["pytester"]

EXAMPLES = Path("evalcore/evaluators/vs/examples").resolve()
BESIDE = f"""
import time
from pathlib import Path

def test_the_suite_is_evaluated_beside_this_test():
    deadline = time.monotonic() + {PATIENCE}
    while not list(Path("evalq-runs").glob("pytest/*/*/run.json")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
"""
"""Passes only where the run was begun before any test of the suite."""


@pytest.fixture
def here(pytester: pytest.Pytester, server: Server, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a session whose suites go to the server."""
    monkeypatch.setenv("EVALQ_BROKER", server.url)
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(PLAIN))  # for the processes that xdist starts
    pytester.makepyfile(test_beside=BESIDE)
    return pytester.path


def _suite(here: Path, name: str = "nightly.yaml", **more: Any) -> Path:
    lines = [{"id": f"c{number % 3}", "actual_output": GOOD if number % 3 else BAD} for number in range(30)]
    (here / "answers.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    run = {"evaluator": "verification", "inputs": ["answers.jsonl"]}
    (here / name).write_text(json.dumps({"suite": "plugin", "runs": [run], **more}))
    return here / name


def test_processes_of_xdist_share_a_run_of_the_fleet(
    pytester: pytest.Pytester, here: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun by the process that starts them, beside other tests; one run, whatever -n, and every case once.

    Of one key it is that run in another checkout, too, when nobody evaluates any more.
    """
    monkeypatch.setenv("EVALQ_ONCE", "a commit")
    _suite(here, policy={"gates": [{"metric": "verification.pass_rate", "min": 0.9}]})
    with running_fleet(server.url, here) as fleet:
        fleet.add(1)
        ran = pytester.runpytest_subprocess(*PLAIN, "--evalq", "nightly.yaml", "test_beside.py", "-n", "2")
    ran.assert_outcomes(passed=4, failed=2)
    ran.stdout.fnmatch_lines(["0 of 10 answers pass; every answer has to", "*# NO-GO: verification-*"])
    (entry,) = History(server.client, Settings()).entries(HistoryKey("verification", "plugin", ""))
    assert entry.records["total"] == 30
    assert len(list(here.glob("evalq-runs/pytest/*/*/run.json"))) == 1
    again = here / "again"
    again.mkdir()
    monkeypatch.chdir(again)
    _suite(again, policy={"gates": [{"metric": "verification.pass_rate", "min": 0.9}]})
    session_here(pytester, "--evalq", "nightly.yaml").assert_outcomes(passed=3, failed=2)
    assert len(list(again.glob("evalq-runs/pytest/*/*/cases.json"))) == 1


def test_cases_of_a_live_target_are_known_before_it_is_asked(
    pytester: pytest.Pytester, here: Path, server: Server
) -> None:
    """Of the golden set: listed, then asked of a program by the fleet's callers, and each a test."""
    shutil.copy(EXAMPLES / "golden.yaml", here)
    shutil.copy(EXAMPLES / "outputs.jsonl", here)
    (here / "agent.py").write_text(AGENT)
    target = {"kind": "command", "argv": [sys.executable, "-I", "-S", str(here / "agent.py")]}
    (here / "targets.yaml").write_text(json.dumps({"targets": {"agent": target}}))
    run = {"evaluator": "vs", "golden": "golden.yaml", "level": "Light", "target": "agent", "repeat": 1}
    (here / "live.yaml").write_text(json.dumps({"runs": [run]}))
    listed = session_here(pytester, "--evalq", "live.yaml", "--collect-only", "-q")
    assert [line for line in listed.outlines if "::" in line] == [
        "live.yaml::vs::records",
        *(f"live.yaml::vs::LIGHT-0{number}" for number in range(1, 10)),
    ]
    assert not (here / "evalq-runs").exists()
    with running_fleet(server.url, here) as fleet:
        fleet.add(1, "--calls", "4", "--targets", "targets.yaml")
        ran = session_here(pytester, "--evalq", "live.yaml", "test_beside.py", "-v")
    ran.assert_outcomes(passed=10, failed=1)
    assert ran.outlines.index(next(line for line in ran.outlines if "beside" in line and "PASSED" in line)) < (
        ran.outlines.index(next(line for line in ran.outlines if "::LIGHT-01 FAILED" in line))
    )


AGENT = """
import json, os, sys

asked = json.load(sys.stdin)
for line in open(os.path.join(os.path.dirname(__file__), "outputs.jsonl")):
    known = json.loads(line)
    if (known["case"], known["repeat"]) == (asked["case"], 0):
        print(json.dumps({} if asked["case"] == "LIGHT-01" else known["output"]))
"""


@pytest.fixture
def waiting(here: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A session that waits for a run that nobody evaluates, and the run's folder."""
    _suite(here)
    command = [sys.executable, "-m", "pytest", *PLAIN, "--evalq", "nightly.yaml", "test_beside.py", "-v"]
    environment = clean_environment(EVALQ_BROKER=os.environ["EVALQ_BROKER"])
    with (here / "told").open("w+") as message:
        process = subprocess.Popen(command, cwd=here, env=environment, stdout=message, text=True, process_group=0)
        try:
            wait_until(lambda: "PASSED" in (here / "told").read_text(), "the other test is done")
            wait_until(lambda: "::records" in (here / "told").read_text(), "the first test of the suite waits")
            named = "evalq-runs/pytest/*/[!.]*/run.json"  # a folder that is being made has a name with a dot
            (run,) = wait_until(lambda: list(here.glob(named)), "its run has its folder")
            yield process, run
        finally:
            process.kill()
            process.wait()


def _state(run: Path) -> str:
    return str(json.loads(run.read_text())["state"])


@pytest.mark.parametrize("number", some([signal.SIGINT, signal.SIGKILL], of=2))
def test_what_is_waited_for_ends_with_the_session(
    here: Path, waiting: tuple[subprocess.Popen[str], Path], number: signal.Signals
) -> None:
    """Ctrl-C, or killed: nothing goes on in the background, what is done is kept, and it is said how to resume."""
    process, run = waiting
    wait_until(lambda: _state(run) == "open", "the run is in the ledger")
    process.send_signal(number)
    code = process.wait(PATIENCE)
    wait_until(lambda: _state(run) == "interrupted", "the run is interrupted")
    if number is signal.SIGINT:
        assert code == pytest.ExitCode.INTERRUPTED
        message = (here / "told").read_text()
        assert "evalq: nightly.yaml: interrupted; resume with: evalq resume" in message
        assert f"evalq resume {run.parent.relative_to(here)} --broker" in message
