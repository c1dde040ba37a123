"""What is told of a run that another process drives."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from evalq.evalcore.errors import Driven, Finished

if TYPE_CHECKING:
    from evalq.producer.runs.backend import Backend

__all__ = ["driven_at"]


@contextlib.contextmanager
def driven_at(backend: Backend) -> Iterator[None]:
    """Who is told that another process drives the run is told at which server to watch it."""
    try:
        yield
    except Finished as finished:
        raise Finished(finished.run, backend.server) from None
    except Driven as driven:
        raise Driven(driven.run, driven.by, backend.server) from None
