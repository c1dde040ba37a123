"""Params whose value is a list or set of patterns: one of those known by name, or one of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

__all__ = ["by_name", "name_of"]

T = TypeVar("T")


def by_name(given: Any, known: Mapping[str, T]) -> T | Any:
    """What ``given`` names; anything but a name as plain data for strict validation. Raises ValueError."""
    if not isinstance(given, str):
        return _with_tuples(given)
    if given not in known:
        raise ValueError(f"no such name (there are: {', '.join(known)}; or give one of your own)")
    return known[given]


def name_of(value: T, known: Mapping[str, T]) -> str | None:
    """The name that stands for ``value``, where it has one."""
    return next((name for name, named in known.items() if named == value), None)


def _with_tuples(given: Any) -> Any:
    # Strict validation takes a list for a tuple in JSON itself, but not in what a validator hands on.
    if isinstance(given, list):
        return tuple(map(_with_tuples, given))
    if isinstance(given, dict):
        return {key: _with_tuples(value) for key, value in given.items()}
    return given
