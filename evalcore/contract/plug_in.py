"""Code that other packages bring: how it is loaded, kept from answering for a command, and told of when it fails."""

from __future__ import annotations

import contextlib
import sys
import threading
import traceback
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from evalq.evalcore.errors import ConfigError, EvalqError, InfrastructureError, resource_shortage

__all__ = ["brief", "load", "located", "unprinted"]


def load(point: EntryPoint, kind: str) -> Any:
    """What an entry point names.

    Raises ConfigError, with the ``kind`` of thing it is, where that cannot be had; InfrastructureError where this
    machine has too little for it.
    """
    try:
        with unprinted():  # libraries greet whoever imports them
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
def unprinted() -> Iterator[None]:
    """A block whose prints go to standard error: standard output is for the answer of a command."""
    # Only in the main thread: two threads that change the same stream at once could leave it changed.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with contextlib.redirect_stdout(sys.stderr):
        yield
