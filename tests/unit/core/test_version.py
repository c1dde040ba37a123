"""The code version stands for everything that an answer or the ledger depends on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evalcore.version import code_version

TOP = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two packages that count, elsewhere."""
    folder = tmp_path_factory.mktemp("copy")
    for package in ("evalcore", "workers"):
        shutil.copytree(TOP / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def _version_of(folder: Path) -> str:
    command = [sys.executable, "-c", "from evalcore.version import code_version; print(code_version())"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_copy_is_the_same_version(copy: Path) -> None:
    """Where the code lies does not matter."""
    assert _version_of(copy) == code_version()


@pytest.mark.parametrize(
    "name", ["evalcore/stats.py", "evalcore/evaluators/vs/agents.yaml", "workers/lua/commit.lua", "workers/tasks.py"]
)
def test_any_change_is_another_version(copy: Path, name: str) -> None:
    """Code, data that answers depend on, and the ledger's scripts."""
    before = (copy / name).read_bytes()
    (copy / name).write_bytes(before + b"\n")
    try:
        assert _version_of(copy) != code_version()
    finally:
        (copy / name).write_bytes(before)
