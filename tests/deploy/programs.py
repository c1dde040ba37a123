"""Checkers of deployment files: programs of this environment, of Debian, and what tests/programs.sh fetches."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
FETCHED = TOP / ".venv" / "programs"


def program(name: str) -> str:
    """The path of a program. Where it is missing: in CI a failure, else a skip, that says how to get it."""
    places = os.pathsep.join([str(Path(sys.executable).parent), str(FETCHED), os.environ["PATH"]])
    found = shutil.which(name, path=places)
    if found:
        return found
    missing = f"{name} is not installed: sh tests/programs.sh"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a checker to its end, at the top of the tree; its exit code is its verdict."""
    environ = os.environ | environment
    return subprocess.run(
        [str(part) for part in command], cwd=TOP, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
