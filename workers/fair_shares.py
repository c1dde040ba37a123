"""Fair shares of what is scarce: a tree of names, such as class, team and run, whose shares are those of their weights.

Of those that wait, the one that has used the least, by its weight, is next. Idle time earns no credit: the share of one
that was idle begins at the share of the others.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Generic, TypeVar

Path = tuple[str, ...]
"""Who asks, from the coarsest share to the finest."""
Weights = Sequence[Mapping[str, float]]
"""{name: weight} for each level of paths; other names have 1."""
T = TypeVar("T")

CLASS_WEIGHTS = {"interactive": 9.0}
"""A merge that waits gets nine tenths, and what runs over night the rest."""
_MOST_IDLE = 100
"""Idle shares that are remembered, at each level."""


class Share(Generic[T]):
    """One name at its level: what it has used by its weight, who waits for it, and the shares below it.

    ``running`` and ``expected`` are what it has at present, and will probably have used at its end.
    """

    def __init__(self, weight: float, weights: Weights, above: Share[T] | None = None) -> None:
        self.weight = weight
        self.ended = self.expected = 0.0
        self.queued = self.running = 0
        self.mean: float | None = None
        self.turns: deque[asyncio.Future[T]] = deque()
        self._weights = weights
        self._above = above
        self._below: dict[str, Share[T]] = {}
        self._begins = 0.0

    @property
    def used(self) -> float:
        """What it has used by its weight, with what it will probably use."""
        return self.ended + self.expected / self.weight

    @property
    def idle(self) -> bool:
        """Whether it neither has nor wants anything."""
        return not (self.queued or self.running)

    def line(self, path: Path) -> list[Share[T]]:
        """The shares from this one down to that of ``path``."""
        line = [self]
        for name in path:
            line.append(line[-1]._child(name))
        return line

    def queue(self, path: Path) -> tuple[list[Share[T]], asyncio.Future[T]]:
        """Wait in the share of ``path``: the shares down to it, and the turn."""
        line = self.line(path)
        turn: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        for share in line:
            share._wait()
        line[-1].turns.append(turn)
        return line, turn

    @staticmethod
    def leave(line: list[Share[T]], turn: asyncio.Future[T]) -> None:
        """Wait no longer."""
        if turn in line[-1].turns:
            line[-1].turns.remove(turn)
            for share in line:
                share.queued -= 1

    def _wait(self) -> None:
        if self.idle and self._above is not None:
            self.ended = max(self.ended, self._above._least())
        self.queued += 1

    def take(self) -> tuple[list[Share[T]], asyncio.Future[T]] | None:
        """Take the turn of the one that has used the least of those that wait; None if nobody waits."""
        while self.queued:
            line: list[Share[T]] = [self]
            while not line[-1].turns:
                # The first of equals is the one that came first.
                waiting = (each for each in line[-1]._below.values() if each.queued)
                line.append(min(waiting, key=lambda each: each.used))
            turn = line[-1].turns.popleft()
            for share in line:
                share.queued -= 1
            if not turn.done():  # it may have been cancelled in this moment
                return line, turn
        return None

    def _child(self, name: str) -> Share[T]:
        child = self._below.get(name)
        if child is None:
            self._forget()
            child = self._below[name] = Share(_weight(self._weights, name), self._weights[1:], self)
        return child

    def _least(self) -> float:
        """Where the share of one that was idle begins: at that of the busy one that has used the least."""
        busy = [each.ended for each in self._below.values() if not each.idle]
        # If all were idle, what one had before the others counts no more.
        self._begins = min(busy) if busy else max((each.ended for each in self._below.values()), default=self._begins)
        return self._begins

    def _forget(self) -> None:
        """Forget idle shares that have used no more than the others: a new one would begin at the same place."""
        if len(self._below) >= _MOST_IDLE:
            least = self._least()
            self._below = {name: each for name, each in self._below.items() if not each.idle or each.ended > least}


def parts(weights: Weights, paths: Collection[Path]) -> dict[Path, float]:
    """{path: the part that it gets while all of ``paths`` want some}."""
    starts = {path[:depth] for path in paths for depth in range(1, len(path) + 1)}
    heavy = {start: _weight(weights[len(start) - 1 :], start[-1]) for start in starts}
    sums: dict[Path, float] = {}
    for start, weight in heavy.items():
        sums[start[:-1]] = sums.get(start[:-1], 0.0) + weight
    of = {start: weight / sums[start[:-1]] for start, weight in heavy.items()}
    return {path: math.prod(of[path[:depth]] for depth in range(1, len(path) + 1)) for path in paths}


def _weight(weights: Weights, name: str) -> float:
    """The weight of a name by the first level of ``weights``."""
    return weights[0].get(name, 1.0) if weights else 1.0
