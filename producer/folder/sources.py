"""The inputs of a begun run, which may be gone or be something else by now."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path

import msgspec

from evalq.evalcore.errors import InputChanged, InputError, StorageError
from evalq.evalcore.files import open_input
from evalq.evalcore.model.span import Span, read_span
from evalq.evalcore.naming import is_text
from evalq.evalcore.records.inputs import Source

__all__ = ["absolute", "below_root", "open_source", "read_source", "root_of", "total_bytes"]


def open_source(source: Source) -> BufferedReader:
    """Its bytes. Raises InputChanged where there is no file (any more) that can be read."""
    with _there(source):
        return open_input(source.path)


def read_source(source: Source, span: Span) -> bytes:
    """Those of ``span``; fewer if the file has become shorter. Raises InputChanged as `open_source` does."""
    with _there(source):
        return read_span(source.path, span)


def total_bytes(sources: Sequence[Source]) -> int:
    """Their sizes. Raises InputChanged as `open_source` does."""
    total = 0
    for source in sources:
        with _there(source):
            total += Path(source.path).stat().st_size
    return total


def absolute(source: Source) -> Source:
    """The same from wherever it is read."""
    return msgspec.structs.replace(source, path=str(Path(source.path).absolute()))


def root_of(source: Source) -> Path:
    """The folder a planned path is relative to: the current one, or the input's own where it lies elsewhere."""
    real, here = Path(os.path.realpath(source.path)), Path.cwd().resolve()
    return here if real.is_relative_to(here) else real.parent


def below_root(source: Source) -> str:
    """Where it is below `root_of`. Raises InputError for a link to what no plan can name."""
    # Workers look below roots of their own, and must not follow a link out of them: the plan has no links.
    real = os.path.realpath(source.path)
    if is_text(source.path) and not is_text(real):
        raise InputError("no input", [(source.given, f"it leads to {real!a}, which is not text in UTF-8: rename it")])
    return os.path.relpath(real, root_of(source))


@contextlib.contextmanager
def _there(source: Source) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        reason = "it was there when the run was planned, and is gone: put it back, or start a new run"
        raise InputChanged("an input changed since its run began", [(source.given, reason)]) from None
    except OSError as error:
        # Too many files are open here, or the disk fails: nothing is wrong with this one.
        if error.errno in StorageError.NO_FILES | StorageError.NO_DISK:
            raise
        reason = f"it can no longer be read: {error.strerror or error}"
        raise InputChanged("an input changed since its run began", [(source.given, reason)]) from error
