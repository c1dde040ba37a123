"""The hot passes in C, where they were compiled: optional, and equal to the Python that each stands in for."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from types import ModuleType

SOURCES = (
    "answer.h",
    "counts.h",
    "csv.h",
    "json.h",
    "lines.h",
    "log.c",
    "plan.h",
    "rows.c",
    "tables.h",
    "text.h",
    "utf8.h",
    "walk.h",
)
"""Everything that is compiled."""


SLOW = (
    "no compiled code fits this installation, so rows take 7 times and logs 20 times as long: install evalq again "
    "where there is a C compiler (in a checkout `make setup` compiles it)"
)
"""What a person has to know where `compiled` is None."""


@cache
def compiled() -> ModuleType | None:
    """The compiled pass over rows; None where there is none, or it was made of other sources than lie here."""
    try:
        from evalq.evalcore.native import _rows
    except ImportError:
        return None
    return _rows if _fits(_rows.SOURCE) else None


@cache
def compiled_log() -> ModuleType | None:
    """The compiled pass over logs, likewise."""
    try:
        from evalq.evalcore.native import _log
    except ImportError:
        return None
    return _log if _fits(_log.SOURCE) else None


def _fits(source: str) -> bool:
    # In a checkout the sources change under a module that nobody compiled again, and its answers would be old ones.
    return source_digest() == source


def source_digest() -> str:
    """SHA-256 over the sources, as setup.py writes it into the module."""
    digest = hashlib.sha256()
    for name in SOURCES:
        digest.update(name.encode() + b"\0" + Path(__file__).with_name(name).read_bytes())
    return digest.hexdigest()


def way() -> str:
    """Which of the two ways rows are read, for people."""
    if compiled() is not None:
        return "compiled code"
    return f"Python alone: {SLOW}"
