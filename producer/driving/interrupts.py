"""Ctrl-C and SIGTERM while a run is driven: the first ends it in order, and the next do not break that order."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["Interrupts"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Counts interrupts in a block.

    The first is raised there, as KeyboardInterrupt. The second comes while the block ends, at any line of it, so it is
    only noted, for whoever waits there to hurry. The third is raised again: whoever sends it wants out.
    """

    def __init__(self) -> None:
        self._count = 0

    @property
    def again(self) -> bool:
        """Whether a second one came."""
        return self._count > 1

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count in the block. Signals that are ignored stay ignored; off the main thread nothing can be counted."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # SIG_DFL and SIG_IGN are no functions, and what was not set by Python is None: what Python did not handle
        # before is not handled here either.
        before = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}
        for number in before:
            signal.signal(number, self._note)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count != 2:
            raise KeyboardInterrupt
