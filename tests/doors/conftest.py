"""Fixtures of the tests that try each door from the wrong side: small data, its undisturbed answer, a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evalq.evalcore.evaluators.planagent.sample import write_rows
from tests.integration.harness import Server, evalq, running_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of this test's own."""
    with running_server(tmp_path) as started:
        yield started


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows.csv, 3,000 rows of a plan agent's results."""
    folder = tmp_path_factory.mktemp("data")
    with (folder / "rows.csv").open("w", encoding="utf-8", newline="") as out:
        write_rows(out, 3_000, seed=7)
    return folder


@pytest.fixture(scope="session")
def calm(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an undisturbed inline run over rows.csv."""
    folder = tmp_path_factory.mktemp("calm") / "run"
    done = evalq("planagent", "rows.csv", "--inline", "--out", folder, "--format", "none", cwd=data)
    assert done.returncode == 0, done.stderr
    return folder
