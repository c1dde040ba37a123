"""Patterns as this Python reads them, without its warning that a later one may read some of them otherwise.

That warning names a line of evalq, and neither the pattern nor the file that it stands in.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

__all__ = ["compiled", "unwarned"]

_LOCK = Lock()
"""What is shown as a warning is said for all threads at once: blocks that overlap would restore each other's."""


@contextmanager
def unwarned() -> Iterator[None]:
    """A block that reads patterns."""
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """The pattern, with flags of `re`. Raises `re.error`, and what else `re.compile` raises."""
    with unwarned():
        return re.compile(pattern, flags)
