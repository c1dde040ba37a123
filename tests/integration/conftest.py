"""Fixtures of the integration tests: a server, a fleet, and data made once a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from evalq.evalcore.evaluators.cooperation.sample import write_events
from evalq.evalcore.evaluators.planagent.sample import write_rows
from tests.integration.harness import Fleet, Server, evalq, running_fleet, running_server

ROWS, MID_ROWS, EVENTS = 20_000, 8_000, 20_000
Calm = Callable[[str], Path]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of this test's own."""
    with running_server(tmp_path) as started:
        yield started


@pytest.fixture
def fleet(server: Server, data: Path) -> Iterator[Fleet]:
    """No workers yet, on `server`; they may read the folder of `data`."""
    with running_fleet(server.url, data) as started:
        yield started


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with made inputs: rows.csv, mid.csv, small.csv, few.csv, log.jsonl, shuffled.jsonl."""
    folder = tmp_path_factory.mktemp("data")
    for name, rows in (("rows.csv", ROWS), ("mid.csv", MID_ROWS), ("small.csv", 2_000), ("few.csv", 300)):
        with (folder / name).open("w", encoding="utf-8", newline="") as out:
            write_rows(out, rows, seed=7)
    for name, shuffled in (("log.jsonl", False), ("shuffled.jsonl", True)):
        with (folder / name).open("wb") as stream:
            write_events(stream, EVENTS, seed=7, shuffled=shuffled)
    return folder


@pytest.fixture(scope="session")
def calm(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Calm:
    """The folder of an undisturbed inline run over an input of `data`, made when first asked for."""
    folder = tmp_path_factory.mktemp("calm")

    @cache
    def run(name: str) -> Path:
        command = "planagent" if name.endswith(".csv") else "cooperation"
        done = evalq(command, name, "--inline", "--run-dir", folder / name, "--format", "none", cwd=data)
        assert done.returncode == 0, done.stderr
        return folder / name

    return run
