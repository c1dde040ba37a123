"""Verdicts that may be looked at after every run up to a known cap: the error is spent over the cap, exactly.

A confidence sequence guards against looking for ever. Where at most ``of`` runs will be made, that guard is more than
is needed, and the error it saves decides more cases. The count of what has probability p is a binomial walk, so the
chance that it ever crosses given limits is a finite sum: the limits are, run by run, the widest whose chance of ever
being crossed at the threshold stays within what may be spent by then (Lan and DeMets 1983). So a verdict depends on
(m, n, of) alone. docs/reference/vs-stopping.md has the proofs, and what it saves.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

__all__ = ["ALPHA", "MOST_LOOKS", "RateLimits", "Walk", "rate_limits", "spent"]

ALPHA = 0.025
"""The error allowed on either side."""
MOST_LOOKS = 5000
"""A cap beyond this is no cap: the limits take time in its square, and a confidence sequence loses little by then."""
_EARLY = 0.3
"""The part of the error that is spent evenly in the log of the runs, so that plain cases stop soon; the rest goes with
the cube of the runs, so that most is there at the end, where close cases are decided."""
_DROPPED = 1e-18
"""A walk's end of less probability is let go, and counted as error."""


class Walk:
    """The count of what has probability ``p``, run by run, as long as it has crossed no limit."""

    def __init__(self, p: float) -> None:
        self._p = p
        self.low = 0  # the count that the first of the chances is about
        self.chances = [1.0]
        self.gone = 0.0
        """The chance that it crossed a limit so far, or was let go."""

    def step(self) -> None:
        """One run more."""
        p, q, before = self._p, 1.0 - self._p, self.chances
        self.chances = [a * q + b * p for a, b in zip([*before, 0.0], [0.0, *before], strict=True)]
        while self.chances and self.chances[-1] < _DROPPED:
            self.gone += self.chances.pop()
        skip = 0
        while skip < len(self.chances) and self.chances[skip] < _DROPPED:
            self.gone += self.chances[skip]
            skip += 1
        del self.chances[:skip]
        self.low += skip

    @property
    def end(self) -> int:
        """The first count above all that it may stand at."""
        return self.low + len(self.chances)

    def at(self, count: int) -> float:
        """The chance that it stands at ``count`` now."""
        index = count - self.low
        return self.chances[index] if 0 <= index < len(self.chances) else 0.0

    def stop_from(self, count: int) -> None:
        """End it where it stands at ``count`` or above."""
        keep = max(0, count - self.low)
        self.gone += sum(self.chances[keep:])
        del self.chances[keep:]

    def stop_to(self, count: int) -> None:
        """End it where it stands at ``count`` or below."""
        drop = max(0, min(len(self.chances), count + 1 - self.low))
        self.gone += sum(self.chances[:drop])
        del self.chances[:drop]
        self.low += drop


def spent(n: int, of: int) -> float:
    """The part of the error that may be spent in ``n`` of ``of`` runs; 1 at the end."""
    early = math.log(1 + n) / math.log(1 + of)
    return _EARLY * early + (1.0 - _EARLY) * (n / of) ** 3


class RateLimits(NamedTuple):
    """By number of runs, from 0: the least count that is surely above the threshold, and the largest surely below it.

    A limit out of reach is n + 1, or -1.
    """

    above: tuple[int, ...]
    below: tuple[int, ...]


@lru_cache(maxsize=256)
def rate_limits(share: float, of: int, alpha: float = ALPHA) -> RateLimits:
    """The limits for a chance of ``share`` in (0, 1) over ``of`` runs at most: either is ever crossed wrongly with
    probability ``alpha`` at most.

    A larger chance is ahead of a smaller one at every run, if both are drawn from the same numbers; so the chance that
    a limit is ever crossed on the wrong side is largest at the threshold itself.
    """
    upper, lower = Walk(share), Walk(share)
    above, below = [1], [-1]
    for n in range(1, of + 1):
        upper.step()
        room, count = alpha * spent(n, of) - upper.gone, upper.end  # beyond it nothing is left to cross
        # Never across the threshold itself: such a limit would call a case by less than was wanted of it.
        while count - 1 > share * n and (more := upper.at(count - 1)) <= room:
            room -= more
            count -= 1
        upper.stop_from(count)
        above.append(count)
        lower.step()
        room, count = alpha * spent(n, of) - lower.gone, lower.low - 1  # below it nothing is left
        while count + 1 < share * n and (more := lower.at(count + 1)) <= room:
            room -= more
            count += 1
        lower.stop_to(count)
        below.append(count)
    return RateLimits(tuple(above), tuple(below))
