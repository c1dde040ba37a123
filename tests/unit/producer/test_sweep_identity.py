"""--once of a live sweep: the same command is the same sweep, and whatever changes its report makes another."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.errors import ConfigError, WireError
from evalq.producer.driving.driver import Driver
from evalq.producer.driving.retries import ServerRetry
from evalq.producer.folder.job import RunExistsError, RunOptions
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.sweep.options import SweepOptions
from evalq.producer.sweep.sweep import Sweep, read_prompts
from evalq.producer.sweep.work import SweepWork
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.processes.identity import driver_token
from evalq.workers.settings import Settings
from tests.agents.server import write_golden
from tests.integration.harness import running_server

CASES: dict[str, dict[str, Any]] = {"A": {"share": 0.5}, "B": {"share": 1.0}}


def _begun(folder: Path, number: int, **other: Any) -> Sweep:
    live: dict[str, Any] = {"target": "t", "repeat": 3} | {
        key: other[key] for key in other.keys() & set(SweepOptions.__struct_fields__)
    }
    asked = {key: other[key] for key in other.keys() & {"limit", "chunk_size", "suite"}}
    request = Request(
        [str(folder / other.get("golden", "golden.json"))], other.get("params", {}), other.get("options", {})
    )
    return Sweep.start(
        plugins.get("vs"),
        request,
        SweepOptions(**live),
        RunOptions(out=folder / f"run{number}", once=other.get("once", "k"), **asked),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A golden set, and one with other expectations of the same prompts."""
    golden = write_golden(tmp_path / "golden.json", CASES)
    told = json.loads(golden.read_text())
    told["test_cases"]["full_vs_tests"][0]["expected"] = {"t_score_range": [0.1, 0.9]}
    (tmp_path / "other.json").write_text(json.dumps(told))
    return tmp_path


OTHERS: list[dict[str, Any]] = [
    {"once": "another"},
    {"target": "u"},
    {"repeat": 4},
    {"stop": "when-decided"},
    {"max_calls": 5},
    {"max_cost": 5.0},
    {"limit": 3},
    {"chunk_size": 2},
    {"suite": "another"},
    {"params": {"min_t_score_spread": 0.5}},
    {"options": {"agent": "02"}},
    {"golden": "other.json"},
]


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: next(iter(other)))
def test_what_changes_the_report_makes_another_sweep(folder: Path, other: dict[str, Any]) -> None:
    """Parameters, expectations and the suite whose history it goes into, too, though every prompt is the same."""
    assert _begun(folder, 1).run != _begun(folder, 2, **other).run


def test_the_same_command_is_the_same_sweep(folder: Path) -> None:
    """In another folder under the same id, in the same one told as begun; a cache changes no report."""
    first = _begun(folder, 1)
    assert first.run == _begun(folder, 2, cache=str(folder / "cache.sqlite")).run
    with pytest.raises(RunExistsError):
        _begun(folder, 1)


def test_another_code_version_is_another_sweep(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrade between two tries of one command never mixes codes in one report."""
    first = _begun(folder, 1)
    monkeypatch.setattr("evalq.producer.sweep.sweep.code_version", lambda: "0" * 12)
    assert first.run != _begun(folder, 2).run


def test_expectations_that_changed_meanwhile_are_refused(folder: Path) -> None:
    """A sweep is resumed with the golden set it was begun with, or not at all."""
    sweep = _begun(folder, 1)
    golden = (folder / "golden.json").read_bytes()
    (folder / "golden.json").write_bytes((folder / "other.json").read_bytes())
    with pytest.raises(ConfigError, match=r"golden\.json: not what it was"):
        Sweep.load(RunFolder(sweep.folder.path))
    (folder / "golden.json").write_bytes(golden)
    assert Sweep.load(RunFolder(sweep.folder.path)).header == sweep.header


def test_prompts_that_changed_in_the_folder_are_not_offered(folder: Path) -> None:
    """The ledger's header says which prompts the sweep has."""
    sweep = _begun(folder, 1)
    prompts = sweep.folder.path / "prompts.jsonl"
    prompts.write_bytes(prompts.read_bytes().replace(b"share", b"shard"))
    with running_server(folder) as server:
        settings = Settings(broker=server.url)
        work = SweepWork(sweep, SweepLedger(server.client, settings, driver_token()))
        with pytest.raises(WireError, match="its prompts are not those it was begun with"):
            Driver(work, ServerRetry(settings)).launch()


CLOSE: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"max_calls": 1_234_567}, {"max_calls": 1_234_568}),
    ({"max_cost": 100.0}, {"max_cost": 100.0001}),
    ({"max_cost": 0.1234567}, {"max_cost": 0.1234568}),
]


@pytest.mark.parametrize(("one", "other"), CLOSE, ids=lambda budget: str(budget))
def test_budgets_differ_in_any_digit(folder: Path, one: dict[str, Any], other: dict[str, Any]) -> None:
    """The second command is not to join the run of the first, which has another budget."""
    assert _begun(folder, 1, **one).run != _begun(folder, 2, **other).run


@pytest.mark.parametrize(("budget", "told"), [(5, "5"), (5.0, "5"), (0.25, "0.25"), (1_000_000, "1e+06"), (0, None)])
def test_budgets_of_six_digits_are_reported_as_ever(folder: Path, budget: float, told: str | None) -> None:
    """Under the same --once key the runs of before are found again."""
    kind = "max_calls" if isinstance(budget, int) else "max_cost"
    assert _begun(folder, 1, **{kind: budget}).header.asked.get(kind.replace("_", " ")) == told


def test_prompts_that_were_cut_say_where_and_what_to_do(tmp_path: Path) -> None:
    """As after a power failure: no error in evalq."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_bytes(b'{"case":"a","agent":"","text":"q"}\n{"case":')
    with pytest.raises(WireError, match=rf"{re.escape(str(prompts))}:2: the file is damaged: .* Start the run anew"):
        list(read_prompts(prompts))
