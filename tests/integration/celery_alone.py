"""An environment with Celery and nothing of evalq's, as another team has it, on another Python where there is one."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

_PYTHONS = ("/usr/bin/python3", str(Path(sys.base_prefix) / "bin" / "python3"))


def python(environment: dict[str, str]) -> str:
    """A Python that can import Celery and its Redis client in ``environment``, another one than this if it can."""
    for path in _PYTHONS:
        with contextlib.suppress(OSError):
            found = subprocess.run(
                [path, "-c", "import celery, redis"], env=environment, cwd="/", check=False, stderr=subprocess.DEVNULL
            )
            if found.returncode == 0:
                return path
    raise AssertionError(f"none of {_PYTHONS} runs Celery alone")


def celery_alone(folder: Path) -> dict[str, str]:
    """The environment for `python`: ``folder`` gets links to Celery, its Redis client, and all that these need."""
    for name in _needed("celery", {"redis"}):
        for file in metadata.distribution(name).files or ():
            top = Path(file.parts[0])
            there = Path(str(metadata.distribution(name).locate_file(top))).resolve()
            if ".." in file.parts or not there.exists() or (folder / top).exists():
                continue
            (folder / top).symlink_to(there)
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder), "PYTHONNOUSERSITE": "1", "LANG": "C.UTF-8"}


def _needed(name: str, extras: set[str]) -> set[str]:
    found, waiting = set[str](), [(name, extras)]
    while waiting:
        each, wanted = waiting.pop()
        try:
            requires = metadata.requires(each) or []
        except metadata.PackageNotFoundError:  # for another system, or another Python
            continue
        if each in found and not wanted:
            continue
        found.add(each)
        for line in requires:
            extra = re.search(r"extra == ['\"]([^'\"]+)['\"]", line)
            if extra and extra[1] not in wanted:
                continue
            parts = re.match(r"([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?", line)
            assert parts is not None
            more = set(filter(None, (parts[2] or "").split(",")))
            if parts[1] not in found or more:
                waiting.append((parts[1], more if parts[1] not in found else set()))
    return found
