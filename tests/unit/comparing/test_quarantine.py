"""Quarantine from the command line: the history of a target is that of its run folders."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest

from evalq.producer.folder.run_folder import RunFolder
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
    """Too few answers, then those of other settings: it counts. Enough of the same: it is set aside, and told."""
    (here / "policy.yaml").write_text(POLICY)
    candidate = str(called("candidate", answered(17, 25), "c"))
    called("first", answered(17, 20), "c")
    assert command("gate", candidate, "--policy", "policy.yaml").code == 4
    called("elsewhere", answered(40, 60), "d")
    done = command("gate", candidate, "--policy", "policy.yaml")
    assert (done.code, "unknown: 17 of 20 answers passed in 1 earlier run(s)" in done.stdout) == (4, True)
    called("second", answered(20, 30), "c")
    done = command("gate", candidate, "--policy", "policy.yaml", "-o", "gate.json")
    assert done.code == 0, done.stdout
    assert "set aside: flaky: 37 of 50 answers passed in 2 earlier run(s)" in done.stdout
    assert json.loads(Path("gate.json").read_text())["quarantined"][0]["history"] == [37, 50]


def test_folders_that_cannot_be_read_are_no_history(here: Path, called: Called, command: Command) -> None:
    """Nor is one without records, and neither keeps the gate from deciding."""
    (here / "policy.yaml").write_text(POLICY)
    candidate = called("candidate", answered(17, 25), "c")
    broken, bare = called("broken", answered(20, 30), "c"), called("bare", answered(20, 30), "c")
    (broken / "report.json").write_text("{")
    (bare / "records.jsonl").unlink()
    assert command("gate", str(candidate), "--policy", "policy.yaml").code == 4
