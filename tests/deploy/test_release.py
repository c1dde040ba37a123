"""What a release and the project's own forms say: of this version, with these Pythons, and as the forge reads it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.contract import test_lock
from tests.deploy.programs import TOP, program, run

PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FORGE = TOP / ".github"
CHANGES = """# Changelog

## [Unreleased]

## [{0}] - 2026-12-01

The first one.

### Added

- All of it.

## [0.0.1] - 2026-01-01

- Nothing.
"""


def _release(folder: Path, tag: str, changes: str) -> subprocess.CompletedProcess[str]:
    """deploy/release.py in a tree with this project's pyproject.toml and these changes."""
    (folder / "deploy").mkdir()
    for name in ("deploy/release.py", "pyproject.toml"):
        (folder / name).write_bytes((TOP / name).read_bytes())
    (folder / "CHANGELOG.md").write_text(changes)
    command = [sys.executable, str(folder / "deploy" / "release.py"), tag]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_notes_of_a_release_are_its_part_of_the_changelog(tmp_path: Path) -> None:
    """And nothing of what is older or not released."""
    done = _release(tmp_path, f"v{PROJECT['version']}", CHANGES.format(PROJECT["version"]))
    assert (done.returncode, done.stdout) == (0, "The first one.\n\n### Added\n\n- All of it.\n"), done.stderr


@pytest.mark.parametrize(
    ("tag", "heading", "reason"),
    [
        ("v9.9.9", "{0}", "the tag is 'v9.9.9'"),
        ("{0}", "{0}", "tag v"),
        ("v{0}", "9.9.9", "has 0 headings"),
        ("v{0}", "{0}] - 2026-12-01\n\n## [{0}", "has 2 headings"),
    ],
)
def test_a_tag_that_does_not_fit_is_refused(tmp_path: Path, tag: str, heading: str, reason: str) -> None:
    """Another version, no version, and a version without its changes; nothing is printed that could be published."""
    version = PROJECT["version"]
    done = _release(tmp_path, tag.format(version), CHANGES.format(heading.format(version)))
    assert (done.returncode, done.stdout, reason in done.stderr) == (1, "", True), done.stderr


def test_every_python_that_is_promised_is_tested_and_locked() -> None:
    """In the project's metadata, its CI, the wheels' tests, and the locks' tests: the same ones."""
    prefix = "Programming Language :: Python :: 3."
    promised = {f"3.{name.removeprefix(prefix)}" for name in PROJECT["classifiers"] if name.startswith(prefix)}
    workflow = yaml.safe_load((FORGE / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    assert set(workflow["jobs"]["tests"]["strategy"]["matrix"]["python"]) == promised
    assert {min(promised), max(promised)} <= set(workflow["jobs"]["installed"]["strategy"]["matrix"]["python"])
    wheels = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["cibuildwheel"]["build"]
    assert {f"3.{name.removeprefix('cp3').removesuffix('-*')}" for name in wheels} == promised
    assert {python.rpartition(".")[0] for python in test_lock.PYTHONS} == promised
    assert PROJECT["requires-python"] == f">={min(promised)}"


def test_it_names_its_makers() -> None:
    """And no address, as long as there is none."""
    assert (PROJECT["authors"], PROJECT["license"]) == ([{"name": "The evalq developers"}], "MIT")
    assert "urls" not in PROJECT


def test_the_forms_are_as_the_forge_reads_them() -> None:
    """By its own schemas."""
    forms = sorted(path for path in (FORGE / "ISSUE_TEMPLATE").iterdir() if path.name != "config.yml")
    assert len(forms) >= 2
    for schema, files in (
        ("github-issue-forms", forms),
        ("github-issue-config", [FORGE / "ISSUE_TEMPLATE" / "config.yml"]),
        ("github-workflows", sorted((FORGE / "workflows").iterdir())),
    ):
        done = run(program("check-jsonschema"), "--builtin-schema", f"vendor.{schema}", *files)
        assert done.returncode == 0, done.stdout + done.stderr
