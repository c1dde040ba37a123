"""`make setup` over a .venv that is there: it keeps its Python, and is made anew where it has none that works."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

TOP = Path(__file__).parents[2]


def _made(folder: Path, *more: str) -> None:
    """What a newer pyproject.toml leads to, up to the packages: these need an index, and take a minute."""
    made = folder / ".venv" / "ready"
    later = (made if made.exists() else folder / "pyproject.toml").stat().st_mtime + 10
    os.utime(folder / "pyproject.toml", (later, later))
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "MAKEFLAGS")}
    done = subprocess.run(
        ["make", "setup", "INSTALL=true", *more], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert subprocess.run([folder / ".venv/bin/python", "-m", "pip", "--version"], capture_output=True).returncode == 0


def test_a_venv_keeps_its_python_and_is_made_anew_where_that_is_gone(tmp_path: Path) -> None:
    """As after a pull; whoever made it with PYTHON=... need not say so again; the same one changes nothing."""
    for name in ("Makefile", "requirements.lock", "pyproject.toml", "setup.py"):
        shutil.copy(TOP / name, tmp_path)
    _made(tmp_path)
    kept = tmp_path / ".venv" / "kept"
    kept.touch()
    _made(tmp_path)
    assert kept.exists()
    python = shutil.which("python3")
    assert python is not None
    _made(tmp_path, f"PYTHON={python}")
    assert kept.exists(), "asked for by name, and the same"
    for link in (tmp_path / ".venv" / "bin").glob("python*"):
        link.unlink()
    _made(tmp_path)
    assert not kept.exists(), "it had no Python"


def _locks(folder: Path, target: str) -> list[str]:
    """The locks from which make would install for ``target``."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "MAKEFLAGS")}
    # A .venv is there, made by nobody: to make one takes longer than all else.
    command = ["make", target, "INSTALL=echo", "UNLESS_MADE=: ||"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.rpartition(" ")[2] for line in done.stdout.splitlines() if "--require-hashes" in line]


def test_the_demo_installs_what_running_needs_and_never_over_what_setup_made(tmp_path: Path) -> None:
    """Once, and not at all after `make setup`; that installs the rest after the demo."""
    for name in ("Makefile", "requirements.lock", "requirements-run.lock", "pyproject.toml", "setup.py"):
        shutil.copy(TOP / name, tmp_path)
    program = tmp_path / ".venv" / "bin" / "evalq"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert _locks(tmp_path, "demo") == ["requirements-run.lock"]
    assert _locks(tmp_path, "demo") == []
    assert _locks(tmp_path, "setup") == ["requirements.lock"]
    assert _locks(tmp_path, "demo") == []
    for stamp in (".venv/ready", ".venv/running"):
        (tmp_path / stamp).unlink()
    assert _locks(tmp_path, "setup") == ["requirements.lock"]
    assert _locks(tmp_path, "demo") == []
