"""The examples run as they stand, and print what they promise."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.harness import clean_environment

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(path.parent.name for path in FOLDER.glob("*/run.sh"))
NO_GO = {"two-prompts"}
"""Examples whose gate blocks."""


def test_every_example_is_on_the_first_page() -> None:
    """And has a page of its own that says what it prints."""
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\]\(([\w-]+)/README\.md\)", page)) == EXAMPLES
    assert sorted(path.name for path in FOLDER.iterdir() if path.is_dir()) == EXAMPLES


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_its_page_shows(name: str, tmp_path: Path) -> None:
    """In a copy, by a shell, without a key and without a server."""
    shutil.copytree(FOLDER / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    environment = clean_environment()
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "run.sh"], cwd=tmp_path / name, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == (name in NO_GO), done.stderr
    said = (done.stdout + done.stderr).replace("\\_", "_")
    page = (FOLDER / name / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    for line in shown.splitlines():
        assert line in said


def test_an_agent_of_a_framework_takes_at_most_20_lines() -> None:
    """Each target's function is in a file of its own; the models without a server are not counted."""
    files = sorted(path for path in (FOLDER / "frameworks").glob("*.py") if path.name != "fake_models.py")
    assert len(files) == 6
    targets = (FOLDER / "frameworks" / "targets.yaml").read_text(encoding="utf-8")
    for path in files:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 20
        assert f"'{path.stem}:answer'" in targets
