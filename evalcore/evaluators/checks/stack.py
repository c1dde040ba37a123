"""What goes by the interpreter's stack, of which processes have left a part that differs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["from_anywhere"]

T = TypeVar("T")


def from_anywhere(deed: Callable[[], T]) -> T:
    """What ``deed`` returns or raises, whatever its callers have left of the stack; it may be done a second time.

    A worker's callers take more of it than a command's, and an answer must not count by where it is judged.
    """
    try:
        return deed()
    except RecursionError:
        pass
    with ThreadPoolExecutor(1) as own:  # a thread begins with the whole stack
        return own.submit(deed).result()
