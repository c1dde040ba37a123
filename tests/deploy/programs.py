"""Programs that check deployment files, as tests/programs.sh installs them: from Debian, or, apart from evalq, pip."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
CHECKERS = TOP / ".venv" / "checkers" / "bin"


def program(name: str) -> str:
    """The path of a program. Where it is missing: in CI a failure, else a skip, that says how to get it."""
    found = shutil.which(name, path=f"{CHECKERS}{os.pathsep}{os.environ['PATH']}")
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
