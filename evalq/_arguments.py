"""What a notebook passes, where no checker has seen it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from pathlib import Path
from typing import Any

from evalq.evalcore.errors import UsageError

__all__ = ["at_least_one", "checked_tags", "mappings", "paths", "texts", "whole"]


def whole(**given: Any) -> None:
    """Raise UsageError for what is neither a whole number nor None."""
    for name, value in given.items():
        try:
            index(0 if value is None else value)  # numpy's are whole numbers, too
        except TypeError:
            raise UsageError(f"{name}={value!r}: a whole number") from None


def at_least_one(**given: Any) -> None:
    """Raise UsageError for what is neither a whole number of 1 or more nor None."""
    whole(**given)
    for name, value in given.items():
        if value is not None and value < 1:
            raise UsageError(f"{name}={value}: at least 1 {'process' if name == 'workers' else 'record'}")


def texts(suite: Any, once: Any) -> None:
    """Raise UsageError for names of a run that are no texts: no folder and no ledger could keep them."""
    for name, value in {"suite": suite, "once": "" if once is None else once}.items():
        if not isinstance(value, str):
            raise UsageError(f"{name}={value!r}: a text")


def checked_tags(tags: Mapping[str, str] | None) -> dict[str, str]:
    """The notes that a run is given. Raises UsageError for what is no text: no folder and no ledger could keep it."""
    given: Any = tags or {}  # no checker has seen what a notebook passes
    if not isinstance(given, Mapping):
        raise UsageError(f"tags={given!r}: a mapping of texts")
    for key, value in given.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise UsageError(f"tags={{{key!r}: {value!r}}}: both are texts")
    return dict(given)


def mappings(**given: Any) -> None:
    """Raise UsageError for what is neither a mapping nor None."""
    for name, value in given.items():
        if value is not None and not isinstance(value, Mapping):
            raise UsageError(f"{name}={value!r}: a mapping")


def paths(inputs: Any, folder: Any) -> list[str]:
    """The inputs, of which one alone needs no list. Raises UsageError for what is no path, of them or of a folder."""
    if not isinstance(folder, str | Path | None):
        raise UsageError(f"folder={folder!r}: a path")
    given = [inputs] if isinstance(inputs, str | Path) or not isinstance(inputs, Iterable) else list(inputs)
    for path in given:
        if not isinstance(path, str | Path):
            raise UsageError(f"inputs={path!r}: a path, or a list of them")
    return [str(path) for path in given]
