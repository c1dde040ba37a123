"""The pace of calls that one process makes alone, without a server: the target's limits, and a step back after a 429.

A fleet shares its pace in Redis (`evalq.workers.ratelimit`), which finds a server's limit more closely.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from evalq.workers.targets.target import Target

_STEP_BACK = 0.8
"""The part of the rate that is kept after a refusal."""
_STEP_SECONDS = 1.0
"""The rate steps back at most once in this time: calls that started before it say nothing about the new rate."""
_DOUBLED_SECONDS = 3.0
"""The rate doubles in this time without a refusal."""
_LEAST_RATE = 0.2
_SHORT_SECONDS = 0.1
_IN_A_ROW = 5
"""So many refusals in a row, and all calls wait as long as Retry-After says."""
_LONGEST_HOLD_SECONDS = 300.0
_WINDOW_SECONDS = 1.0
_REFUSED_SHARE, _LEAST_REFUSED = 0.25, 4
"""The rate steps back once this share of the calls of a window is refused, and so many at least.

A server that refuses a call now and then is not at its limit: the call's own retry is enough.
"""


class Turn(NamedTuple):
    """A call that may start: when it was granted, and the tokens that were charged for it."""

    at: float
    charged: float


class LocalPacer:
    """One target's pace in this process. ``clock`` gives seconds."""

    def __init__(self, target: Target, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = target.max_concurrency
        self._interval = 60.0 / target.requests_per_minute if target.requests_per_minute else 0.0
        self._tokens_a_second = target.tokens_per_minute / 60.0
        self._clock = clock
        self._turn = asyncio.Lock()
        self._ended = asyncio.Event()
        self._in_flight = 0
        self._next = self._held_until = 0.0
        self._rate: float | None = None
        self._stepped = -math.inf
        self._refused_in_a_row = 0
        self._settled: deque[tuple[float, bool]] = deque()
        self._began: float | None = None
        self._charge = float(target.tokens_per_call)
        self._known_tokens = self._known_calls = 0
        # A full minute may be spent at once, as servers count it.
        self._tokens = float(target.tokens_per_minute)
        self._filled = clock()

    async def acquire(self, share: tuple[str, ...] = ()) -> Turn:
        """Wait for a turn, in the order of asking: all calls are of one run, and ``share`` makes no difference."""
        async with self._turn:
            while (wait := self._wait(now := self._clock())) > 0:
                self._ended.clear()
                # A call that ends may change how long to wait.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if wait == math.inf else wait):
                        await self._ended.wait()
            self._in_flight += 1
            self._began = now if self._began is None else self._began
            interval = max(self._interval, 1 / self._current_rate(now) if self._rate else 0.0)
            self._next = max(now, self._next) + interval
            charged = self._charge if self._tokens_a_second else 0.0
            self._tokens -= charged
            return Turn(now, charged)

    def settle(
        self,
        grant: Turn,
        *,
        refused: bool,
        served: bool,
        retry_after_seconds: float | None,
        spent: bool,
        tokens: int | None,
    ) -> None:
        """Report what came of the call: ``refused`` by a rate limit, or ``served``; the ``tokens`` that it took."""
        now = self._clock()
        self._in_flight -= 1
        self._ended.set()
        if tokens is not None:
            self._tokens += grant.charged - tokens
            self._known_tokens, self._known_calls = self._known_tokens + tokens, self._known_calls + 1
            self._charge = self._known_tokens / self._known_calls
        elif not served:
            self._tokens += grant.charged
        if served:
            self._refused_in_a_row = 0
        if served or refused:
            self._settled.append((now, refused))
        while self._settled and self._settled[0][0] < now - _WINDOW_SECONDS:
            self._settled.popleft()
        if refused:
            self._refused_in_a_row += 1
            if retry_after_seconds and self._refused_in_a_row >= _IN_A_ROW:
                self._held_until = max(self._held_until, now + min(retry_after_seconds, _LONGEST_HOLD_SECONDS))
        refusals = sum(refused for _, refused in self._settled)
        # Refusals come before the answers of calls that began with them: those in flight count as not refused.
        known = len(self._settled) + self._in_flight
        at_limit = refused and refusals >= max(_LEAST_REFUSED, _REFUSED_SHARE * known)
        # After ``spent`` the next call at this pace would be refused.
        if (at_limit or spent) and grant.at >= self._stepped and now - self._stepped >= _STEP_SECONDS:
            began = now if self._began is None else self._began
            served_rate = (len(self._settled) - refusals) / min(_WINDOW_SECONDS, max(now - began, _SHORT_SECONDS))
            rate = served_rate if self._rate is None else min(self._current_rate(now), max(served_rate, _LEAST_RATE))
            self._rate, self._stepped = max(_LEAST_RATE, _STEP_BACK * rate), now

    def _current_rate(self, now: float) -> float:
        assert self._rate is not None
        return self._rate * math.exp2(min((now - self._stepped) / _DOUBLED_SECONDS, 40.0))

    def _wait(self, now: float) -> float:
        if self._most and self._in_flight >= self._most:
            return math.inf
        waits = [self._held_until - now, self._next - now]
        if self._tokens_a_second:
            most = self._tokens_a_second * 60.0
            self._tokens = min(most, self._tokens + (now - self._filled) * self._tokens_a_second)
            self._filled = now
            # A call that is larger than a whole minute's tokens starts when the minute is full.
            waits.append((min(self._charge, most) - self._tokens) / self._tokens_a_second)
        return max(waits)
