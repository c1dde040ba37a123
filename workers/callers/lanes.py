"""The calls in flight of one process, shared fairly: a free lane goes to the run that had the fewest seconds of work.

At each level of `evalq.workers.fair_shares`, those that want a lane get seconds of work in proportion to their weights.
Seconds count, not calls: a sweep of slow calls gets fewer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

from evalq.workers.fair_shares import Path, Share, Weights

_FIRST_SECONDS = 1.0
"""The expected length of a call before any has ended."""
_NEWEST_PART = 0.2
"""The part of the newest call in the mean length of a run's calls."""


class Lanes:
    """At most ``total`` calls at once. ``clock`` gives seconds."""

    def __init__(self, total: int, weights: Weights = (), clock: Callable[[], float] = time.monotonic) -> None:
        self.total = total
        self._clock = clock
        self._root = Share[float](1.0, weights)
        self._mean = _FIRST_SECONDS
        self._known = False

    @property
    def free(self) -> int:
        """Lanes without a call."""
        return self.total - self._root.running

    @contextlib.asynccontextmanager
    async def lane(self, path: Path) -> AsyncIterator[None]:
        """Wait for a lane, and have it for the length of the block."""
        line, turn = self._root.queue(path)
        self._give()
        try:
            expected = await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._end(line, turn.result(), 0.0)  # it was granted in the same moment
            self._root.leave(line, turn)
            raise
        began = self._clock()
        try:
            yield
        finally:
            took = self._clock() - began
            self._mean, self._known = _mean(self._mean, took, self._known), True
            line[-1].mean = _mean(line[-1].mean or took, took, line[-1].mean is not None)
            self._end(line, expected, took)

    def _give(self) -> None:
        """Give the free lanes to those that wait."""
        while self.free > 0 and (taken := self._root.take()) is not None:
            line, turn = taken
            expected = self._mean if line[-1].mean is None else line[-1].mean
            for share in line:
                share.running += 1
                # At once, as all lanes may be given before the first call ends.
                share.expected += expected
            turn.set_result(expected)

    def _end(self, line: list[Share[float]], expected: float, took: float) -> None:
        for share in line:
            share.running -= 1
            share.expected -= expected
            share.ended += took / share.weight
        self._give()


def _mean(before: float, newest: float, known: bool) -> float:
    return before + (newest - before) * _NEWEST_PART if known else newest
