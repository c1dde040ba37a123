"""What a notebook passes, where no checker has seen it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Real
from operator import index
from pathlib import Path
from typing import Any

from evalq.evalcore.errors import UsageError
from evalq.evalcore.naming import is_text

__all__ = ["amount", "at_least_one", "checked_tags", "paths", "texts", "whole"]


def whole(**given: Any) -> list[Any]:
    """Each as Python has whole numbers, or None. Raises UsageError for anything else."""
    found: list[int | None] = []
    for name, value in given.items():
        try:
            # numpy's are whole numbers, too, but no folder keeps those
            found.append(None if value is None else int(index(value)))
        except TypeError:
            raise UsageError(f"{name}={value!r}: a whole number") from None
    return found


def at_least_one(**given: Any) -> list[Any]:
    """Each as Python has whole numbers of 1 or more, or None. Raises UsageError for anything else."""
    found = whole(**given)
    for name, value in zip(given, found, strict=True):
        if value is not None and value < 1:
            raise UsageError(f"{name}={value}: at least 1 {'process' if name == 'workers' else 'record'}")
    return found


def amount(**given: Any) -> Any:
    """A number as Python has it, or None. Raises UsageError for anything else."""
    ((name, value),) = given.items()
    if value is not None and not isinstance(value, Real):
        raise UsageError(f"{name}={value!r}: a number")
    return None if value is None else float(value)


def texts(suite: Any, once: Any) -> tuple[str, str]:
    """Names of a run. Raises UsageError for those that are no texts: no folder and no ledger could keep them."""
    given = {"suite": suite, "once": "" if once is None else once}
    for name, value in given.items():
        if not isinstance(value, str):
            raise UsageError(f"{name}={value!r}: a text")
        if not is_text(value):
            raise UsageError(f"{name}={value!a}: not text in UTF-8")
    return _plain(given["suite"]), _plain(given["once"])


def checked_tags(tags: Mapping[str, str] | None) -> dict[str, str]:
    """The notes that a run is given. Raises UsageError for what is no text: no folder and no ledger could keep it."""
    given: Any = tags or {}  # no checker has seen what a notebook passes
    if not isinstance(given, Mapping):
        raise UsageError(f"tags={given!r}: a mapping of texts")
    for key, value in given.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise UsageError(f"tags={{{key!r}: {value!r}}}: both are texts")
        if not is_text(key + value):
            raise UsageError(f"tags={{{key!a}: {value!a}}}: not text in UTF-8")
    return {_plain(key): _plain(value) for key, value in given.items()}


def paths(inputs: Any, folder: Any, **mappings: Any) -> list[str]:
    """The inputs, of which one alone needs no list.

    Raises UsageError for what is no path, of them or of a folder, and for what is neither a mapping nor None.
    """
    for name, value in mappings.items():
        if value is not None and not isinstance(value, Mapping):
            raise UsageError(f"{name}={value!r}: a mapping")
    if not isinstance(folder, str | Path | None):
        raise UsageError(f"folder={folder!r}: a path")
    given = [inputs] if isinstance(inputs, str | Path) or not isinstance(inputs, Iterable) else list(inputs)
    for path in given:
        if not isinstance(path, str | Path):
            raise UsageError(f"inputs={path!r}: a path, or a list of them")
    return [str(path) for path in given]


def _plain(text: str) -> str:
    """As Python has texts: numpy's are such, too, but no folder keeps those."""
    return str.__str__(text)
