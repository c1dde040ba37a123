"""Environments of the rivals' own, by pip, and what is installed in them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from evalq.evalcore.version import __version__
from tests.chaos.seen.observers import OBSERVERS, Observer


def environment_of(observer: Observer, folder: Path) -> Path:
    """Where an observer's environment is under ``folder``."""
    return folder / observer.name


def install(folder: Path) -> None:
    """Make what is not there yet."""
    for observer in OBSERVERS:
        venv = environment_of(observer, folder)
        if observer.packages and not (venv / "done").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
            pip = (venv / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check")
            subprocess.run([*pip, *observer.packages], check=True)
            (venv / "done").touch()


def versions(folder: Path) -> dict[str, str]:
    """Each observer's version, with that of the Celery it came with."""
    return {one.name: _version(one, folder) if one.packages else __version__ for one in OBSERVERS}


def _version(observer: Observer, folder: Path) -> str:
    name = observer.packages[0].partition("==")[0]
    script = f"from importlib.metadata import version as v; print(v('{name}'), '(Celery', v('celery') + ')')"
    command = [str(environment_of(observer, folder) / "bin" / "python"), "-c", script]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
