"""Finding evaluators: the entry-point group ``evalq.evaluators``, evalq's own and other packages'."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from evalcore.errors import ConfigError

if TYPE_CHECKING:
    from evalcore.evaluator import Evaluator

__all__ = ["GROUP", "entries", "get", "names"]

GROUP = "evalq.evaluators"


@cache
def entries() -> dict[str, EntryPoint]:
    """Registered entry points by name, in alphabetical order; nothing is imported."""
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda p: (p.name, p.value)):
        if point.name in found and found[point.name].value != point.value:
            raise ConfigError(
                f"two packages register an evaluator {point.name!r}: {found[point.name].value}, {point.value}"
            )
        found[point.name] = point
    return found


def names() -> list[str]:
    """Names of all registered evaluators."""
    return list(entries())


@cache
def get(name: str) -> Evaluator[Any, Any]:
    """The evaluator registered as ``name``. Raises ConfigError that lists the known names, or says why it fails."""
    from evalcore.evaluator import Evaluator  # not at import: the list of names must come at once

    point = entries().get(name)
    if point is None:
        raise ConfigError(f"no evaluator {name!r}; there are: {', '.join(names())}")
    try:
        evaluator = point.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"the entry point {name!r} ({point.value}) cannot be loaded: {error}") from error
    if not isinstance(evaluator, Evaluator) or evaluator.name != name:
        raise ConfigError(f"the entry point {name!r} ({point.value}) is no Evaluator of that name")
    return evaluator
