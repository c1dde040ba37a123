"""Plug-ins: evaluators, checks and kinds of targets of packages, how evalq loads them, and how they fail."""

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
TARGETS = "evalq.targets"
"""The entry-point group of kinds of targets that packages bring for a targets file."""


_named: dict[str, str] = {}
_KEPT: list[Callable[[], None]] = []
SCORE = EntryPoint("score", "evalq.evalcore.evaluators.score:evaluator", GROUP)
"""It is not among `entries`: it evaluates nothing until a user names a function (`evalq.evalcore.contract.scoring`)."""
T = TypeVar("T")


@cache
def _installed() -> Any:  # two types by the version of Python, both with `select`
    # This reads a file of each installed package, for any group: once is enough.
    return metadata.entry_points()


def entry_points(group: str) -> EntryPoints:
    """The entry points of installed packages in a group; nothing is imported."""
    points: EntryPoints = _installed().select(group=group)
    return points


@cache
def entries() -> dict[str, EntryPoint]:
    """Registered entry points by name, in alphabetical order; nothing is imported.

    Of several with one name, the first by value is here, and `get` refuses the name.
    """
    return {name: points[0] for name, points in _registered().items()}


@cache
def _registered() -> dict[str, list[EntryPoint]]:
    """All entry points of each name, but no two of one value."""
    return _by_name(entry_points(group=GROUP))


def _by_name(points: EntryPoints) -> dict[str, list[EntryPoint]]:
    by_value: dict[str, dict[str, EntryPoint]] = {}
    for point in sorted(points, key=lambda p: (p.name, p.value)):
        # One value twice is one package found twice, such as an editable install: not a conflict.
        by_value.setdefault(point.name, {})[point.value] = point
    return {name: list(points.values()) for name, points in by_value.items()}


def registered_now() -> tuple[list[EntryPoint], list[EntryPoint], list[EntryPoint]]:
    """The evaluators, the checks and the kinds of targets that a new process would find; nothing is cached."""
    installed = metadata.entry_points()
    evaluators = [points[0] for points in _by_name(installed.select(group=GROUP)).values()]
    checks, targets = (_with_named(installed.select(group=group), group) for group in (CHECKS, TARGETS))
    return evaluators, checks, targets


def plug_ins(group: str) -> list[EntryPoint]:
    """The entry points of any group, by name and value, each once; nothing is imported.

    Those of `CHECKS` are followed by the functions that this process's settings name.
    """
    return _with_named(entry_points(group=group), group)


def _with_named(points: EntryPoints, group: str) -> list[EntryPoint]:
    by_key = {(point.name, point.value): point for point in points}
    named = _named if group == CHECKS else {}
    return [by_key[key] for key in sorted(by_key)] + [EntryPoint(*pair, group) for pair in sorted(named.items())]


def name_checks(functions: Mapping[str, str]) -> None:
    """Add these functions as checks: {name: "module:function"}, in place of those named before.

    Call this only after reading a process's settings, never for a cases file or a message.
    """
    if functions != _named:
        _named.clear()
        _named.update(functions)
        forget_named()


def forget_named() -> None:
    """Empty the caches that depend on what this process's settings name."""
    for forget in _KEPT:
        forget()


def cached_until_named(function: Callable[[], T]) -> functools._lru_cache_wrapper[T]:
    """``function``, cached as by `functools.cache` until `name_checks` names other checks."""
    cached = cache(function)
    on_naming(cached.cache_clear)
    return cached


def on_naming(forget: Callable[[], None]) -> None:
    """Call ``forget`` whenever `name_checks` names other checks: it empties a cache that depends on them."""
    _KEPT.append(forget)


def names() -> list[str]:
    """Names of all registered evaluators."""
    return list(entries())


@cache
def packages() -> dict[str, str]:
    """{evaluator: the package that registers it, and its version}; nothing is imported."""
    return {name: "" if p.dist is None else f"{p.dist.name} {p.dist.version}" for name, p in entries().items()}


def built_in() -> list[str]:
    """Names of the evaluators that come with evalq."""
    return [name for name, point in entries().items() if point.value.startswith("evalq.")]


@cache
def get(name: str) -> Evaluator[Any, Any]:
    """The evaluator registered as ``name``.

    Raises UnknownEvaluator that lists the known names, or ConfigError or InfrastructureError that say why it fails.
    """
    from evalq.evalcore.contract.evaluator import Evaluator  # not at import: listing names must be fast

    point = SCORE if name == SCORE.name else entries().get(name)
    if point is None:
        raise UnknownEvaluator(f"no evaluator {name!r}; there are: {', '.join(names())}")
    rivals = _registered().get(name, [])
    if name == SCORE.name and rivals:
        raise ConfigError(f"{_shown(rivals[0])} registers an evaluator {name!r}, which is a name of evalq's: rename it")
    if len(rivals) > 1:
        which = ", ".join(_shown(rival) for rival in rivals)
        raise ConfigError(f"several packages register an evaluator {name!r}: {which}; uninstall all but one")
    evaluator = load(point, "entry point")
    if not isinstance(evaluator, Evaluator) or evaluator.name != name:
        raise ConfigError(f"the entry point {name!r} ({point.value}) is not an Evaluator of that name")
    return evaluator


def _shown(point: EntryPoint) -> str:
    return point.value if point.dist is None else f"{point.value} of {point.dist.name} {point.dist.version}"


# Loading code of other packages: its prints go to standard error, its failures become one line.


def load(point: EntryPoint, kind: str) -> Any:
    """The object that an entry point names; ``kind`` says in errors what it is.

    Raises ConfigError if it cannot be loaded, and InfrastructureError if this machine lacks a resource for it.
    """
    try:
        with stdout_to_stderr():  # some libraries print when they are imported
            return point.load()
    except Exception as error:  # any exception of a package's import
        failed = f"the {kind} {point.name!r} ({point.value}) cannot be loaded"
        if lack := resource_shortage(error):  # neither the package nor the request is wrong
            raise InfrastructureError(f"{failed}: {lack}") from error
        raise ConfigError(f"{failed}: {_why(error)}") from error


def _why(error: Exception) -> str:
    # It names the file and line to fix; the line of the import would mislead.
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error}"
    return (str(error) if isinstance(error, ImportError) else "") or brief(error)


def brief(error: BaseException) -> str:
    """An error in a line; one that evalq did not raise, with its type and its line of code."""
    # evalq's own errors already say where the fault is.
    return _encodable(str(error)) if isinstance(error, EvalqError) else error_with_line(error)


def error_with_line(error: BaseException) -> str:
    """Any error in a line, with its type and its line of code, for the author of that code."""
    text, trace = str(error), traceback.extract_tb(error.__traceback__)
    if trace:
        at = trace[-1]
        text = f"{type(error).__name__}: {text} (in {Path(at.filename).name}:{at.lineno}, {at.name})"
    return _encodable(text)


def _encodable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()  # UTF-8 cannot carry half of a surrogate pair


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send prints to standard error: standard output is for a command's result."""
    # Only in the main thread: two threads that change the same stream at once could leave it changed.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with contextlib.redirect_stdout(sys.stderr):
        yield
