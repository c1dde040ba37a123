"""Both locks install the same for as long as their files can be had, whatever is released, and on any machine."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TOP = Path(__file__).parent.parent.parent


def _locked(name: str) -> dict[str, Requirement]:
    lines = re.findall(r"(?m)^[\w.-]+\S*==[^\\\n]+", (TOP / name).read_text(encoding="utf-8"))
    return {canonicalize_name(need.name): need for need in map(Requirement, lines)}


LOCKED = _locked("requirements.lock")
RUNNING = _locked("requirements-run.lock")
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))
PYTHONS = ["3.11.0", "3.11.2", "3.11.3", "3.12.0", "3.13.0", "3.14.0"]
MACHINES = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"},
    "linux-arm": {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "aarch64"},
    "mac": {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64"},
    "windows": {"sys_platform": "win32", "platform_system": "Windows", "platform_machine": "AMD64"},
}


def test_what_packages_ask_of_one_another_with_extras_is_locked_with_them() -> None:
    """pip takes ``coverage[toml]`` for a package apart from a locked ``coverage``: once there is a newer one, it is
    refused for want of a hash, and nothing can be installed any more."""
    assert len(LOCKED) > 100
    asked = [(package, need) for package in LOCKED for need in _needs(package, {}) if need.extras]
    assert len(asked) >= 2, "what celery[redis] asks of kombu, and pytest-cov of coverage, at least"
    missing = [
        f"{package}: {need}"
        for package, need in asked
        if not need.extras <= LOCKED[canonicalize_name(need.name)].extras
    ]
    assert missing == []


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("locked", "most"), [(LOCKED, 200), (RUNNING, 60)], ids=["all", "running"])
def test_what_packages_ask_for_on_another_python_or_machine_is_locked_too(
    machine: str, python: str, locked: dict[str, Requirement], most: int
) -> None:
    """redis asks for async-timeout before 3.11.3 alone, which Debian 12 has: what is missing is refused by pip."""
    there = {**MACHINES[machine], "python_full_version": python, "python_version": python.rpartition(".")[0]}
    here = {package for package, need in locked.items() if not need.marker or need.marker.evaluate(there)}
    assert most / 2 < len(here) < most
    missing = [
        f"{package}: {need}"
        for package in sorted(here)
        for need in _needs(package, there)
        if canonicalize_name(need.name) not in here
    ]
    assert missing == []


def test_the_lock_of_running_is_a_part_of_the_other() -> None:
    """What evalq needs and what builds it, in the same versions; nothing of an extra."""
    assert RUNNING.keys() < LOCKED.keys()
    assert {name: str(need.specifier) for name, need in RUNNING.items()} == {
        name: str(LOCKED[name].specifier) for name in RUNNING
    }
    wanted = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
    assert {canonicalize_name(Requirement(need).name) for need in wanted} <= RUNNING.keys()
    assert not {"pandas", "pyarrow", "pytest", "mypy", "matplotlib", "deepeval"} & RUNNING.keys()


def test_what_builds_the_docs_has_a_lock_of_its_own() -> None:
    """Its extra is locked there with hashes, and neither of the other locks grows by it."""
    wanted = {canonicalize_name(Requirement(need).name) for need in PROJECT["project"]["optional-dependencies"]["docs"]}
    docs = _locked("docs/requirements.lock")
    assert wanted <= docs.keys()
    assert not (wanted | {"mkdocs"}) & {*LOCKED, *RUNNING}
    assert (TOP / "docs" / "requirements.lock").read_text(encoding="utf-8").count("--hash=sha256:") > len(docs)


def _needs(package: str, there: dict[str, str]) -> list[Requirement]:
    """What a package that is installed here needs ``there``, with the extras that are locked of it."""
    wanted = ["", *LOCKED[canonicalize_name(package)].extras]
    return [
        need
        for need in _asked(package)
        if not need.marker or any(need.marker.evaluate({**there, "extra": one}) for one in wanted)
    ]


@cache
def _asked(package: str) -> list[Requirement]:
    try:
        return [Requirement(line) for line in requires(package) or ()]
    except PackageNotFoundError:
        return []
