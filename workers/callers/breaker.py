"""A circuit breaker: a target that nothing is heard of is not called by every call in turn.

After so many failures in a row that say the target is down, calls are held and one at a time is tried, ever less often,
until one is answered, be it with a refusal.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from evalq.workers.targets import Answer, Failure

__all__ = ["Breaker"]

_OPENS_AFTER = 10
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0


class Breaker:
    """One target's, in one process. ``reason`` is the last failure's, "" while calls go through."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._pause = _FIRST_PAUSE
        self._next = 0.0
        self._opened = 0.0
        self.reason = ""

    @property
    def is_open(self) -> bool:
        """Whether calls are held."""
        return bool(self.reason)

    @property
    def seconds(self) -> float:
        """For how long it has been open."""
        return self._clock() - self._opened if self.is_open else 0.0

    def told(self, result: Answer | Failure) -> None:
        """What became of a call."""
        # A refusal closes it as well: whoever refuses is there.
        if not (isinstance(result, Failure) and result.down):
            self._failures, self.reason, self._pause = 0, "", _FIRST_PAUSE
            return
        self._failures += 1
        if self.is_open:
            self.reason = result.reason
        elif self._failures >= _OPENS_AFTER:
            self.reason, self._opened = result.reason or result.kind, self._clock()
            self._next = self._opened + self._pause

    def holds(self, result: Answer | Failure) -> bool:
        """Whether ``result`` is the target's failure, so that its call is to be made again and bears no blame."""
        return self.is_open and isinstance(result, Failure) and result.down

    def room(self, wanted: int) -> int:
        """How many of ``wanted`` calls may be made now: while it is open one, as a probe, and then none for a while."""
        if not self.is_open or wanted <= 0:
            return wanted
        if self._clock() < self._next:
            return 0
        # The next probe is due however this one ends: of one that hangs until its timeout nothing would be heard.
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._next = self._clock() + self._pause
        return 1
