"""Plug-ins: evaluators and checks that packages register, how they are loaded, and how their failures are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import metadata
from importlib.metadata import EntryPoint, EntryPoints
from typing import TYPE_CHECKING, Any, TypeVar

from evalq.evalcore.errors import ConfigError, UnknownEvaluator

if TYPE_CHECKING:
    import functools

    from evalq.evalcore.contract.evaluator import Evaluator
import contextlib
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

from evalq.evalcore.errors import EvalqError, InfrastructureError, resource_shortage

GROUP = "evalq.evaluators"
CHECKS = "evalq.checks"
"""The entry-point group of checks that packages bring for `evalq checks`."""


_named: dict[str, str] = {}
_KEPT: list[Callable[[], None]] = []
T = TypeVar("T")


@cache
def _installed() -> Any:  # two types by the version of Python, both with `select`
    # To ask reads a file of each package that is installed, whatever the group: once is enough.
    return metadata.entry_points()


def entry_points(group: str) -> EntryPoints:
    """What installed packages register in a group; nothing is imported."""
    found: EntryPoints = _installed().select(group=group)
    return found


@cache
def entries() -> dict[str, EntryPoint]:
    """Registered entry points by name, in alphabetical order; nothing is imported.

    Of several with one name the first by value stands for all: `get` refuses them.
    """
    return {name: points[0] for name, points in _registered().items()}


@cache
def _registered() -> dict[str, list[EntryPoint]]:
    """All entry points of each name, but no two of one value."""
    return _by_name(entry_points(group=GROUP))


def _by_name(points: EntryPoints) -> dict[str, list[EntryPoint]]:
    found: dict[str, dict[str, EntryPoint]] = {}
    for point in sorted(points, key=lambda p: (p.name, p.value)):
        # One value twice is one package that is found twice, such as an editable install, and no rival of itself.
        found.setdefault(point.name, {})[point.value] = point
    return {name: list(points.values()) for name, points in found.items()}


def registered_now() -> tuple[list[EntryPoint], list[EntryPoint]]:
    """What `entries` and `plug_ins` of `CHECKS` would be in a process that begins now: nothing is kept."""
    found = metadata.entry_points()
    evaluators = [points[0] for points in _by_name(found.select(group=GROUP)).values()]
    return evaluators, _with_named(found.select(group=CHECKS), CHECKS)


def plug_ins(group: str) -> list[EntryPoint]:
    """The entry points of any group, by name and value, each once; nothing is imported.

    Those of `CHECKS` are followed by what the settings of this process name.
    """
    return _with_named(entry_points(group=group), group)


def _with_named(points: EntryPoints, group: str) -> list[EntryPoint]:
    found = {(point.name, point.value): point for point in points}
    named = _named if group == CHECKS else {}
    return [found[key] for key in sorted(found)] + [EntryPoint(*pair, group) for pair in sorted(named.items())]


def name_checks(functions: Mapping[str, str]) -> None:
    """Have these functions as checks, too: {name: "module:function"}, in place of those that were named before.

    Called only where a process has read its settings, never for what a cases file or a message says.
    """
    if functions != _named:
        _named.clear()
        _named.update(functions)
        for forget in _KEPT:
            forget()


def renewed(function: Callable[[], T]) -> functools._lru_cache_wrapper[T]:
    """``function`` cached as by `functools.cache`, until other checks are named."""
    kept = cache(function)
    on_naming(kept.cache_clear)
    return kept


def on_naming(forget: Callable[[], None]) -> None:
    """Have ``forget`` called whenever other checks are named: what it empties was made with those before."""
    _KEPT.append(forget)


def names() -> list[str]:
    """Names of all registered evaluators."""
    return list(entries())


@cache
def packages() -> dict[str, str]:
    """{evaluator: the package that registers it, and its version}; nothing is imported."""
    return {name: "" if p.dist is None else f"{p.dist.name} {p.dist.version}" for name, p in entries().items()}


def own() -> list[str]:
    """Names of the evaluators that come with evalq; tests, documents and measurements that go through all go by it."""
    return [name for name, point in entries().items() if point.value.startswith("evalq.")]


@cache
def get(name: str) -> Evaluator[Any, Any]:
    """The evaluator registered as ``name``.

    Raises UnknownEvaluator that lists the known names, or ConfigError or InfrastructureError that say why it fails.
    """
    from evalq.evalcore.contract.evaluator import Evaluator  # not at import: the list of names must come at once

    point = entries().get(name)
    if point is None:
        raise UnknownEvaluator(f"no evaluator {name!r}; there are: {', '.join(names())}")
    rivals = _registered()[name]
    if len(rivals) > 1:
        which = ", ".join(_shown(rival) for rival in rivals)
        raise ConfigError(f"several packages register an evaluator {name!r}: {which}; uninstall all but one")
    evaluator = load(point, "entry point")
    if not isinstance(evaluator, Evaluator) or evaluator.name != name:
        raise ConfigError(f"the entry point {name!r} ({point.value}) is not an Evaluator of that name")
    return evaluator


def _shown(point: EntryPoint) -> str:
    return point.value if point.dist is None else f"{point.value} of {point.dist.name} {point.dist.version}"


# Code that other packages bring: how it is loaded, kept from answering for a command, and told of when it fails.


def load(point: EntryPoint, kind: str) -> Any:
    """What an entry point names.

    Raises ConfigError, with the ``kind`` of thing it is, where that cannot be had; InfrastructureError where this
    machine has too little for it.
    """
    try:
        with stdout_to_stderr():  # libraries greet whoever imports them
            return point.load()
    except Exception as error:  # whatever a package's import raises
        failed = f"the {kind} {point.name!r} ({point.value}) cannot be loaded"
        if lack := resource_shortage(error):  # nothing is wrong with the package, nor with what was asked
            raise InfrastructureError(f"{failed}: {lack}") from error
        raise ConfigError(f"{failed}: {_why(error)}") from error


def _why(error: Exception) -> str:
    # Its own file and line are the ones to look at, not those of the import.
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error}"
    return (str(error) if isinstance(error, ImportError) else "") or brief(error)


def brief(error: BaseException) -> str:
    """An error in a line: of what evalq does not raise itself, with its type and the line of code that raised it."""
    # What evalq raises says where the trouble is.
    return _tellable(str(error)) if isinstance(error, EvalqError) else located(error)


def located(error: BaseException) -> str:
    """An error in a line, whoever raised it: with its type and the line of code, for who wrote that code."""
    told, trace = str(error), traceback.extract_tb(error.__traceback__)
    if trace:
        at = trace[-1]
        told = f"{type(error).__name__}: {told} (in {Path(at.filename).name}:{at.lineno}, {at.name})"
    return _tellable(told)


def _tellable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()  # no server can be told half of a surrogate pair


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """A block whose prints go to standard error: standard output is for the answer of a command."""
    # Only in the main thread: two threads that change the same stream at once could leave it changed.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with contextlib.redirect_stdout(sys.stderr):
        yield
