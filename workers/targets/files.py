"""The files that an entry of the targets file names, each of which may stand for one of every agent."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path

from evalq.evalcore.trust import Thing, Writer, allows

__all__ = ["files_of", "resolved"]


def files_of(folder: Path, pattern: str) -> Iterator[Path]:
    """The files in ``folder`` that a path of its targets file may stand for, whichever agent is called, in order."""
    below = os.path.relpath(folder / pattern, folder)
    found = folder.glob("*".join(glob.escape(part) for part in below.split("{agent}")))
    # Which agent it is an input says.
    return (path for path in sorted(found) if allows(Writer.CASES_FILE, Thing.PATH, path, (folder,)) and _is_file(path))


def resolved(path: Path) -> Path:
    """Where ``path`` leads; a link that leads to itself is a file that cannot be read."""
    # Of such a link Path.resolve raises RuntimeError before Python 3.13.
    return Path(os.path.realpath(path))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # in a folder that may be listed, and not entered
        return False
