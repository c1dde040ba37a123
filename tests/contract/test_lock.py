"""requirements.lock installs the same for as long as its files can be had, whatever is released, and on any machine."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TOP = Path(__file__).parent.parent.parent
LOCK = (TOP / "requirements.lock").read_text(encoding="utf-8")
LOCKED = {
    canonicalize_name(need.name): need for need in map(Requirement, re.findall(r"(?m)^[\w.-]+\S*==[^\\\n]+", LOCK))
}
MACHINES = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"},
    "linux-arm": {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "aarch64"},
    "mac": {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64"},
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


@pytest.mark.parametrize("python", ["3.11.0", "3.11.2", "3.11.3", "3.12.0", "3.13.0", "3.14.0"])
@pytest.mark.parametrize("machine", MACHINES)
def test_what_packages_ask_for_on_another_python_or_machine_is_locked_too(machine: str, python: str) -> None:
    """redis asks for async-timeout before 3.11.3 alone, which Debian 12 has: what is missing is refused by pip."""
    there = {**MACHINES[machine], "python_full_version": python, "python_version": python.rpartition(".")[0]}
    here = {package for package, need in LOCKED.items() if not need.marker or need.marker.evaluate(there)}
    assert len(here) > 100
    missing = [
        f"{package}: {need}"
        for package in sorted(here)
        for need in _needs(package, there)
        if canonicalize_name(need.name) not in here
    ]
    assert missing == []


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
