"""`evalq list`, of runs that are called anything."""

from __future__ import annotations

import signal
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from evalq.producer.cli import main
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.invocation.finding import find, folders
from evalq.producer.servers import Servers
from evalq.producer.viewing.catalogue import Catalogue, Ledger
from evalq.workers.settings import Settings
from tests.unit.comparing.conftest import Made


def test_a_run_is_one_line_whatever_its_suite_is_called(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither its line ends nor what a terminal would obey."""
    for name in ("one", "two"):
        made(f"evalq-runs/{name}", [("c", True)], suite="night\nly\r\x07\u202e")
    handler = signal.getsignal(signal.SIGTERM)
    capsys.readouterr()
    assert main(["list"]) == 0
    signal.signal(signal.SIGTERM, handler)
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 3
    assert all(" night ly" in line and line.isprintable() for line in lines[:2])


def test_runs_that_out_names_are_listed_by_their_folders(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside ./evalq-runs, the latest is found without a name; somebody else's run.json is left alone."""
    made("evalq-runs/one", [("c", True)])
    made("old", [("c", True)])
    Path("theirs").mkdir()
    Path("theirs/run.json").write_text("{}")
    handler = signal.getsignal(signal.SIGTERM)
    capsys.readouterr()
    assert main(["list"]) == 0
    signal.signal(signal.SIGTERM, handler)
    said = capsys.readouterr()
    assert sorted(line.split()[0] for line in said.out.splitlines()) == sorted(
        ["old", find("evalq-runs/one").info().run]
    )
    assert "theirs" not in said.err
    assert find(None).path.name in ("one", "old")
    assert find(find("old").info().run).path in (Path("old"), Path("evalq-runs/one"))


def test_the_latest_run_is_the_one_that_was_begun_last(here: Path) -> None:
    """Whatever was noted of another one since, or copied: `evalq report` without a RUN means that one."""
    for day, name in enumerate(("one", "three", "two"), start=1):
        with RunFolder.begin(here / "evalq-runs" / name) as folder:
            asked: dict[str, Any] = {"inputs": [], "params": {}, "options": {}}
            started = f"2024-01-0{day}T00:00:00+00:00"
            folder.note(run=name, evaluator="vs", state="open", epoch=0, started=started, request=asked)
    RunFolder(here / "evalq-runs" / "one").note(epoch=1)
    assert [info.run for _, info in folders()] == ["one", "three", "two"]
    assert find(None).path.name == "two"
    with Servers(Settings()) as servers:
        assert [known.run for known in Catalogue([], Ledger(servers)).runs()] == ["two", "three", "one"]


def test_runs_of_one_second_are_in_one_order_everywhere(here: Path) -> None:
    """That in which they were noted in last."""
    for name in ("b", "a", "c"):
        with RunFolder.begin(here / "evalq-runs" / name) as folder:
            asked: dict[str, Any] = {"inputs": [], "params": {}, "options": {}}
            started = "2024-01-01T00:00:00+00:00"
            folder.note(run=name, evaluator="vs", state="open", epoch=0, started=started, request=asked)
        sleep(0.02)
    assert [info.run for _, info in folders()] == ["b", "a", "c"]
    with Servers(Settings()) as servers:
        assert [known.run for known in Catalogue([], Ledger(servers)).runs()] == ["c", "a", "b"]
