"""Quarantine from the command line: the history of a target is that of its run folders."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import msgspec
import pytest

from evalq.evalcore.errors import ConfigError
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.cases import cases_of
from evalq.producer.suites.suite_file import load_suite
from evalq.workers.ledger.detached import Reports
from evalq.workers.ledger.history import Entry, History, HistoryKey
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.settings import Settings
from tests.integration.harness import Server
from tests.unit.comparing.conftest import Command, Made

POLICY = """
gates:
  - {metric: verification.pass_rate, per_case: {min_passes: 7, of: 10}}
quarantine:
  - {case: shaky, reason: its index is rebuilt at night, until: 2999-12-31}
"""

Called = Callable[[str, Sequence[tuple[str, bool]], str], Path]


@pytest.fixture
def called(made: Made) -> Called:
    """Makes the folder of a run whose answers came from the target `chat` under settings of this digest."""

    times = count()

    def make(name: str, answers: Sequence[tuple[str, bool]], config: str) -> Path:
        folder = made(f"evalq-runs/{name}", answers)
        lines = [
            {"case": case, "repeat": at, "config": config, "attempts": [{"latency_seconds": next(times)}]}
            for at, (case, _) in enumerate(answers)
        ]
        (folder / "outputs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (folder / "cases.json").unlink(missing_ok=True)
        RunFolder.existing(folder).note(target="chat")
        return folder

    return make


def answered(passed: int, of: int) -> list[tuple[str, bool]]:
    """A case that always passes, and one that does so often."""
    return [("firm", True)] * 30 + [("shaky", at < passed) for at in range(of)]


def test_runs_of_one_target_add_up_until_a_case_is_known_to_be_flaky(
    here: Path, called: Called, command: Command
) -> None:
    """Too few answers, then those of other settings: it counts. Enough of the same: it is set aside, and reported."""
    (here / "policy.yaml").write_text(POLICY)
    candidate = str(called("candidate", answered(17, 25), "c"))
    called("first", answered(17, 20), "c")
    assert command("gate", candidate, "--policy", "policy.yaml").code == 4
    called("elsewhere", answered(40, 60), "d")
    done = command("gate", candidate, "--policy", "policy.yaml")
    assert (done.code, "unknown: 17 of 20 answers passed in 1 earlier run" in done.stdout) == (4, True)
    called("second", answered(20, 30), "c")
    done = command("gate", candidate, "--policy", "policy.yaml", "-o", "gate.json")
    assert done.code == 0, done.stdout
    assert "set aside: flaky: 37 of 50 answers passed in 2 earlier runs" in done.stdout
    assert json.loads(Path("gate.json").read_text())["quarantined"][0]["history"] == [37, 50]


def test_runs_that_only_the_ledger_has_are_history_too(
    here: Path, called: Called, command: Command, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One counts once, also where its folder is here; what the ledger cannot tell of a run is passed over."""
    (here / "policy.yaml").write_text(POLICY)
    candidate = str(called("candidate", answered(17, 25), "c"))
    settings = Settings(broker=server.url)
    reports, history = Reports(RunLedger(server.client, settings), settings), History(server.client, settings)
    for name in ("here", "far", "damaged"):
        run = cases_of(RunFolder.existing(called(name, answered(16, 20), "c")))
        history.record(Entry(run.run, HistoryKey("verification", "default", "chat"), {"total": 1}, []))
        reports.keep_cases(run.run, b"{" if name == "damaged" else msgspec.json.encode(run))
        if name != "here":
            shutil.rmtree(here / "evalq-runs" / name)
    assert command("gate", candidate, "--policy", "policy.yaml").code == 4
    monkeypatch.setenv("EVALQ_BROKER", server.url)
    done = command("gate", candidate, "--policy", "policy.yaml")
    assert done.code == 0, done
    assert "set aside: flaky: 32 of 40 answers passed in 2 earlier runs" in done.stdout


def test_folders_that_cannot_be_read_are_no_history(here: Path, called: Called, command: Command) -> None:
    """Nor is one without records, and neither keeps the gate from deciding."""
    (here / "policy.yaml").write_text(POLICY)
    candidate = called("candidate", answered(17, 25), "c")
    broken, bare = called("broken", answered(20, 30), "c"), called("bare", answered(20, 30), "c")
    (broken / "report.json").write_text("{")
    (bare / "records.jsonl").unlink()
    assert command("gate", str(candidate), "--policy", "policy.yaml").code == 4


def test_a_day_needs_no_quotes_in_a_suite_either(here: Path) -> None:
    """YAML takes it for more than text; what is more than a day is refused, and a wrong key has its line."""
    text = (
        f"runs: [{{evaluator: verification, inputs: [in.jsonl]}}]\npolicy:\n{POLICY.replace(chr(10), chr(10) + '  ')}"
    )
    (here / "evalq.yaml").write_text(text)
    policy = load_suite(here / "evalq.yaml").policy
    assert policy is not None
    assert policy.quarantine[0].until == "2999-12-31"
    for written, said in (
        (text.replace("2999-12-31", "2999-12-31 10:00:00"), "a day is needed, such as 2030-12-31"),
        (text.replace("case: shaky", "csae: shaky"), "evalq.yaml:7: policy.quarantine.0.csae: unknown key"),
        (text.replace("2999-12-31", "soon"), "evalq.yaml:7: policy.quarantine.0.until: a day is needed"),
    ):
        (here / "evalq.yaml").write_text(written)
        with pytest.raises(ConfigError, match=re.escape(said)):
            load_suite(here / "evalq.yaml")


def test_what_a_confirmation_was_answered_is_no_history(here: Path, called: Called, command: Command) -> None:
    """It was asked because something looked like a drop: runs of the suite alone tell how flaky a case is."""
    (here / "policy.yaml").write_text(POLICY)
    candidate = str(called("candidate", answered(17, 25), "c"))
    for name, suite in (("first", "default"), ("confirmed", "default-confirm"), ("other", "nightly")):
        RunFolder.existing(called(name, answered(17, 20), "c")).note(suite=suite)
    done = command("gate", candidate, "--policy", "policy.yaml")
    assert (done.code, "unknown: 17 of 20 answers passed in 1 earlier run" in done.stdout) == (4, True)
