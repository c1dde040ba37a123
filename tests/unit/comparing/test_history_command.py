"""`evalq history`: drift in words, the same from run folders as from a ledger that counted the runs as they ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import evalq
from evalq.evalcore.compare.drift import DriftState, MeasureState
from evalq.producer.comparing.drifting import drift_lines
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.cases import cases_of
from evalq.workers.ledger.history import Drift, Entry, History, HistoryKey
from evalq.workers.settings import Settings
from tests.integration.harness import Server, running_server
from tests.unit.comparing.conftest import Command, Made

PLACE = HistoryKey("verification", "default")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("server")) as one:
        yield one


def passing(count: int) -> list[tuple[str, bool]]:
    """40 transcripts, of which so many pass."""
    return [(f"{number}", number < count) for number in range(40)]


@pytest.fixture
def runs(made: Made, here: Path) -> list[str]:
    """The ids of five runs in ./evalq-runs: three good ones, then two bad ones."""
    folders = [made(f"evalq-runs/{number}", passing(count)) for number, count in enumerate((36, 35, 34, 5, 6))]
    return [json.loads((folder / "run.json").read_text())["run"] for folder in folders]


def _json(command: Command, *args: str) -> Any:
    done = command("history", "--json", *args)
    assert done.code == 0, done.stderr
    return json.loads(done.stdout)


def test_it_says_since_when_how_large_on_what_evidence_and_what_ends_it(runs: list[str], command: Command) -> None:
    """And names the runs, the newest first; with fewer shown, all are counted all the same."""
    done = command("history", "--runs", "2")
    assert done.code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "verification · default"
    (said,) = [line for line in lines if "pass_rate: " in line]
    assert f"pass_rate: WORSE since run {runs[3]}: the evidence is " in said
    assert (
        f"4 runs after the first run {runs[0]}. The newest run, {runs[4]}, is 53.8 points of 100 worse than all "
        "before it." in said
    )
    assert any("evalq baseline set NAME RUN" in line for line in lines)
    listed = [line.split()[0] for line in lines if "40 records" in line]
    assert listed == [runs[4], runs[3]]


def test_folders_tell_what_a_ledger_tells(runs: list[str], server: Server, here: Path, command: Command) -> None:
    """Every number, of every measure, before and after a baseline is approved."""
    server.client.flushall()
    settings = Settings(broker=server.url)
    for number, run in enumerate(runs):
        History(server.client, settings).record(Entry(run, PLACE, {"total": 40}, []))
        cases = cases_of(RunFolder.existing(here / "evalq-runs" / f"{number}"))
        Drift(server.client, settings).count(PLACE, cases)

    def history(*args: str) -> Any:
        (one,) = _json(command, *args)
        return [{key: value for key, value in state.items() if key != "counted"} for state in one["drift"]], [
            run["run"] for run in one["runs"]
        ]

    assert history() == history("--broker", server.url)
    assert history("--runs", "0") == history("--runs", "0", "--broker", server.url) == (history()[0], [])
    assert history()[0][0]["measures"]["pass_rate"]["since"] == runs[3]
    assert command("baseline", "set", "main", "evalq-runs/4", "--broker", server.url).code == 0
    assert history() == history("--broker", server.url)
    assert history()[0][0]["kind"] == "baseline"


def test_a_newest_run_that_drift_does_not_count_is_reported(made: Made, here: Path, command: Command) -> None:
    """One of answers that were counted before; the next that counts ends it."""
    for number, count in enumerate((36, 35)):
        made(f"evalq-runs/{number}", passing(count))
    assert "newer than what drift counts" not in command("history").stdout
    made("evalq-runs/2", passing(35))
    newest = json.loads((here / "evalq-runs/2/run.json").read_text())["run"]
    printed = command("history", "--runs", "1").stdout
    assert "No drift: " in printed
    assert f"Run {newest} is newer than what drift counts: nothing in it was answered, " in printed
    made("evalq-runs/3", passing(34))
    assert "newer than what drift counts" not in command("history").stdout


def test_a_baseline_of_another_form_is_reported_and_takes_nothing_else_along(
    runs: list[str], here: Path, command: Command
) -> None:
    """As after an upgrade: the histories are shown, the other baselines listed, and it says how to get past it."""
    assert command("baseline", "set", "old", "evalq-runs/0").code == 0
    assert command("baseline", "set", "main", "evalq-runs/0").code == 0
    path = here / "evalq-baselines" / "old" / "verification.json"
    path.write_text(path.read_text().replace('"evalq.cases/2"', '"evalq.cases/1"'))
    done = command("history")
    assert done.code == 0
    assert "WORSE since run" in done.stdout
    assert "the approved run" in done.stdout  # main
    assert "warning: the baseline old cannot be read: " in done.stderr
    assert "evalq baseline set NAME FOLDER" in done.stderr
    for form in ((), ("--json",)):
        done = command("baseline", "list", *form)
        assert (done.code, "main" in done.stdout, "old" in done.stdout) == (3, True, False)
        assert "the baseline old cannot be read: " in done.stderr
    assert command("baseline", "set", "old", "evalq-runs/0").code == 0
    assert command("baseline", "list").code == 0


def test_a_baseline_whose_run_is_not_here_stands_before_them_all(runs: list[str], here: Path, command: Command) -> None:
    """As for who has the repository, and not its first runs."""
    assert command("baseline", "set", "main", "evalq-runs/0").code == 0
    (here / "evalq-runs" / "0").rename(here / "elsewhere")
    (one,) = _json(command)
    assert (one["drift"][0]["reference"], one["drift"][0]["runs"]) == (runs[0], 4)


def test_a_suite_that_is_not_there_and_runs_that_cannot_be_read(runs: list[str], here: Path, command: Command) -> None:
    """The one is refused with those that there are, evalq names the others and skips them."""
    done = command("history", "nightly")
    assert done.code == 2
    assert "suite 'nightly' has no history (known suites: default)" in done.stderr
    (here / "evalq-runs" / "1" / "report.json").write_text("{")
    done = command("history")
    assert "evalq-runs/1 is skipped" in done.stderr
    assert "3 runs after the first run" in done.stdout


def test_without_any_run_it_says_where_it_looked(here: Path, command: Command) -> None:
    """On standard error, with nothing on standard output."""
    done = command("history")
    assert (done.code, done.stdout) == (0, "")
    assert "no run has finished yet in ./evalq-runs" in done.stderr


def test_hostile_names_stay_text(here: Path, made: Made, command: Command) -> None:
    """Of a suite, in a terminal."""
    folder = made("evalq-runs/a", passing(3))
    facts = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**facts, "suite": "\x1b[31mred\u202e"}))
    shown = command("history").stdout
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "red" in shown


def test_words_for_every_state() -> None:
    """Nothing to tell, level, above, several chains by their names or specifications."""

    def state(runs: int, name: str = "", kind: str = "first", **measure: Any) -> DriftState:
        return DriftState(specification="abcdefghijk", name=name, run="r9", reference="r0", kind=kind, runs=runs,
                          measures={"pass_rate": MeasureState(**measure)})  # fmt: skip

    assert list(drift_lines([state(0)])) == [
        "pass_rate: Nothing to compare yet. The next run is compared with the first run r0."
    ]
    (worst, end) = drift_lines([state(3, since="r7", e=10_000.0, change=-0.5)])
    assert worst.startswith(
        "pass_rate: WORSE since run r7: the evidence is 10,000 or more to 1; evalq alerts at 1,000 to 1. "
    )
    (yellow,) = drift_lines([state(3, worse="r7", e=140.0, change=-0.1)])
    assert yellow.startswith(
        "pass_rate: Looks worse since run r7: the evidence is 140 to 1, over 100; evalq alerts at 1,000 to 1. "
    )
    assert "below 100" in end
    shown = [state(1, kind="baseline", e=0.51, change=0.0004), state(2, "smoke", e=12.4, change=0.03)]
    first, second = drift_lines(shown)
    assert first == (
        "abcdefgh: pass_rate: No drift: the evidence is 1 to 1; evalq alerts at 1,000 to 1. 1 run after the approved "
        "run r0. The newest run, r9, is level with all before it."
    )
    assert second == (
        "smoke: pass_rate: No drift: the evidence is 12 to 1; evalq alerts at 1,000 to 1. 2 runs after the first run "
        "r0. The newest run, r9, is 3.0 points of 100 better than all before it."
    )
    versions = [
        msgspec.structs.replace(state(0, name), version=version)
        for name, version in (("", "1"), ("", "2"), ("smoke", "2"))
    ]
    assert [line.partition(": pass_rate")[0] for line in drift_lines(versions)] == [
        "abcdefgh (version 1 of the evaluator)",
        "abcdefgh (version 2 of the evaluator)",
        "smoke",
    ]
    unseen = state(3)
    assert list(drift_lines([unseen])) == list(drift_lines([state(0)]))
    (said,) = drift_lines([state(3, e=0.51, change=-0.2, run="r8")])
    assert said.endswith("The newest run that has it, r8, is 20.0 points of 100 worse than all before it.")


def test_more_is_worse_where_less_is_better(here: Path, command: Command) -> None:
    """Inequality that rose was "27 points below all before it"."""
    for number, other in enumerate((4, 4, 0)):
        rows = [
            {"turn": turn, "agent": agent, "decision": "cooperate", "resources": {"stone": 50 - turn * each}}
            for turn in range(1, 6)
            for agent, each in (("a", 4 + number), ("b", other))
        ]
        (here / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
        evalq.evaluate(
            "cooperation", "log.jsonl", folder=f"evalq-runs/{number}", params={"rules": {"resource_key": "stone"}}
        )
    (said,) = [line for line in command("history").stdout.splitlines() if "gini_coefficient" in line]
    assert "points of 100 worse than all before it" in said
