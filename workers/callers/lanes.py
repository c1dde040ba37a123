"""The calls in flight of one process, shared fairly: a free lane goes to whoever had the fewest seconds of work.

A path names who asks, from the coarsest share to the finest, such as (class, team, run). At each level, those that want
a lane get seconds of work in proportion to their weights. Seconds count, not calls: a sweep of slow calls gets fewer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping

Path = tuple[str, ...]

_FIRST_SECONDS = 1.0
"""The expected length of a call before any has ended."""
_NEWEST_PART = 0.2
"""The part of the newest call in the mean length of a run's calls."""
_MOST_IDLE = 100
"""Shares without calls that are remembered, at each level."""


class Lanes:
    """At most ``total`` calls at once. ``weights`` has {name: weight} for names of any level; others have 1.

    Whoever was idle gets no credit for it: its share begins with that of the others. ``clock`` gives seconds.
    """

    def __init__(
        self, total: int, weights: Mapping[str, float] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.total = total
        self._clock = clock
        self._root = _Share(1.0, weights or {})
        self._mean = _FIRST_SECONDS
        self._known = False

    @property
    def free(self) -> int:
        """Lanes without a call."""
        return self.total - self._root.running

    @contextlib.asynccontextmanager
    async def lane(self, path: Path) -> AsyncIterator[None]:
        """Wait for a lane, and have it for the length of the block."""
        line = self._root.line(path)
        turn: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        for share in line:
            share.wait()
        line[-1].turns.append(turn)
        self._give()
        try:
            expected = await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._end(line, turn.result(), 0.0)  # it was granted in the same moment
            else:
                line[-1].turns.remove(turn)
                for share in line:
                    share.queued -= 1
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
        while self.free > 0 and self._root.queued:
            line = self._root.next()
            expected = self._mean if line[-1].mean is None else line[-1].mean
            for share in line:
                share.queued -= 1
                share.running += 1
                # At once, as all lanes may be given before the first call ends.
                share.expected += expected
            line[-1].turns.popleft().set_result(expected)

    def _end(self, line: list[_Share], expected: float, took: float) -> None:
        for share in line:
            share.running -= 1
            share.expected -= expected
            share.ended += took / share.weight
        self._give()


class _Share:
    """One name at its level: its seconds of work by weight, its calls, and the shares below it."""

    def __init__(self, weight: float, weights: Mapping[str, float], above: _Share | None = None) -> None:
        self.weight = weight
        self.ended = self.expected = 0.0
        self.queued = self.running = 0
        self.mean: float | None = None
        self.turns: deque[asyncio.Future[float]] = deque()
        self._weights = weights
        self._above = above
        self._below: dict[str, _Share] = {}
        self._begins = 0.0

    @property
    def used(self) -> float:
        """Its seconds of work by its weight, with those that its calls in flight will probably take."""
        return self.ended + self.expected / self.weight

    @property
    def idle(self) -> bool:
        """Whether it neither has nor wants a lane."""
        return not (self.queued or self.running)

    def line(self, path: Path) -> list[_Share]:
        """The shares from this one down to that of ``path``."""
        line = [self]
        for name in path:
            line.append(line[-1]._child(name))
        return line

    def wait(self) -> None:
        """Count a call that wants a lane."""
        if self.idle and self._above is not None:
            self.ended = max(self.ended, self._above._least())
        self.queued += 1

    def next(self) -> list[_Share]:
        """The shares down to the one that had the fewest seconds of work and waits."""
        line = [self]
        while not line[-1].turns:
            # The first of equals is the one that came first.
            line.append(min((each for each in line[-1]._below.values() if each.queued), key=lambda each: each.used))
        return line

    def _child(self, name: str) -> _Share:
        child = self._below.get(name)
        if child is None:
            self._forget()
            child = self._below[name] = _Share(self._weights.get(name, 1.0), self._weights, self)
        return child

    def _least(self) -> float:
        """Where the share of one that was idle begins: at that of the one that had the fewest seconds of ended work."""
        busy = [each.ended for each in self._below.values() if not each.idle]
        # If all were idle, what one had before the others counts no more.
        self._begins = min(busy) if busy else max((each.ended for each in self._below.values()), default=self._begins)
        return self._begins

    def _forget(self) -> None:
        """Forget idle shares that had no more work than the others: a new one would begin at the same place."""
        if len(self._below) >= _MOST_IDLE:
            least = self._least()
            self._below = {name: each for name, each in self._below.items() if not each.idle or each.ended > least}


def _mean(before: float, newest: float, known: bool) -> float:
    return before + (newest - before) * _NEWEST_PART if known else newest
