"""requirements.lock installs the same for as long as its files can be had, whatever is released meanwhile."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TOP = Path(__file__).parent.parent.parent


def test_what_packages_ask_of_one_another_with_extras_is_locked_with_them() -> None:
    """pip takes ``coverage[toml]`` for a package apart from a locked ``coverage``: once there is a newer one, it is
    refused for want of a hash, and nothing can be installed any more."""
    lock = (TOP / "requirements.lock").read_text(encoding="utf-8")
    locked = {
        canonicalize_name(need.name): need.extras
        for need in map(Requirement, re.findall(r"(?m)^[\w.-]+\S*==\S+", lock))
    }
    assert len(locked) > 100
    asked = [(package, need) for package, extras in locked.items() for need in _needs(package, extras) if need.extras]
    assert len(asked) >= 2, "what celery[redis] asks of kombu, and pytest-cov of coverage, at least"
    missing = [
        f"{package}: {need}" for package, need in asked if not need.extras <= locked[canonicalize_name(need.name)]
    ]
    assert missing == []


def _needs(package: str, extras: set[str]) -> list[Requirement]:
    """What an installed package needs here, with the extras that are locked of it."""
    try:
        needs = [Requirement(line) for line in requires(package) or ()]
    except PackageNotFoundError:
        return []
    wanted = ["", *extras]
    return [need for need in needs if not need.marker or any(need.marker.evaluate({"extra": one}) for one in wanted)]
