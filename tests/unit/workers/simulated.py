"""Pacing in simulated time: the real script on a real server; clock, fleet and rate-limited service are made up."""

from __future__ import annotations

import heapq
import random
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from evalq.workers.ledger.keys import RateLimitKeys
from evalq.workers.ledger.scripts import RATE_LIMIT, script_text
from evalq.workers.ratelimit import Ask, PacePolicy, PoolLimits

CLOCK = "local function now_us() return tonumber(ARGV[3]) end"
"""The time comes along with what is asked: to set it before would be a second exchange each time."""
LEASE = 10.0


def _between(times: Sequence[float], start: float, end: float) -> int:
    """How many of the ascending ``times`` lie in [start, end)."""
    return bisect_left(times, end) - bisect_left(times, start)


class Holder:
    """A process of the fleet: as many calls at once as it likes, told and asked for as the limiter does."""

    def __init__(self, name: str, most: int) -> None:
        self.name = name
        self.most = most
        self.in_flight = 0
        self.served = self.served_at = self.told = self.tokens = 0
        self.uncharged = 0.0
        self.refusals: list[tuple[int, float]] = []
        self.dead = False
        self.asks_at = self.asked_at = 0.0


class World:
    """``limit(t)`` calls a second are served, each after ``latency`` seconds; the others are refused.

    A bucket of ``burst`` seconds says which; 0: so many in any second, as tests/agents/server.py does. A refusal takes
    ``refusal`` seconds (None: as long as an answer); a call is sent up to ``late`` seconds late. With ``warns`` a reply
    tells when nothing remains. All times in seconds from 0; ``seed`` draws the jitter.
    ``stepped_back``: how far the server's clock was set back. Afterwards ``sent``, ``served`` and ``refused`` hold
    times.
    """

    def __init__(
        self,
        client: Any,
        limits: PoolLimits,
        limit: Callable[[float], float],
        *,
        holders: int = 2,
        most: int = 100,
        latency: float = 0.1,
        refusal: float | None = None,
        late: float = 0.0,
        burst: float = 0.1,
        tokens: Callable[[random.Random], int] | None = None,
        retry_after: float = -1.0,
        warns: bool = False,
        seed: int = 0,
    ) -> None:
        client.flushall()
        self._client = client
        self._script = client.register_script(script_text(RATE_LIMIT, "pace", CLOCK))
        self._limits, self._limit, self._latency, self._burst = limits, limit, latency, burst
        self._refusal, self._late = refusal, late
        self._tokens, self._retry_after, self._warns = tokens, retry_after, warns
        self._random = random.Random(seed)
        self.holders = [Holder(f"holder{n}", most) for n in range(holders)]
        self.now = self.stepped_back = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._bucket, self._filled_at = 1.0, 0.0
        self._second: deque[float] = deque()
        self.sent: list[float] = []
        self.served: list[float] = []
        self.refused: list[float] = []
        self.spent_tokens: list[tuple[float, int]] = []
        self.at_once = 0
        self.busiest = 0
        for holder in self.holders:
            self._plan(holder, self._random.random() / 10)

    def run(self, until: float) -> None:
        """On to ``until``."""
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = until

    def rate(self, start: float, end: float) -> float:
        """Calls served a second between two times."""
        return _between(self.served, start, end) / (end - start)

    def refused_share(self, start: float, end: float) -> float:
        """Of the calls answered between two times."""
        refused = _between(self.refused, start, end)
        return refused / max(1, refused + _between(self.served, start, end))

    def most_in(self, seconds: float) -> int:
        """The most calls sent in any stretch of ``seconds``."""
        return max((_between(self.sent, at, at + seconds) for at in self.sent), default=0)

    def clock(self) -> int:
        """The server's clock, in microseconds."""
        return int((self.now - self.stepped_back) * 1e6) + 100_000_000_000

    def state(self) -> dict[str, float]:
        """What the pool remembers."""
        found: dict[bytes, bytes] = self._client.hgetall(RateLimitKeys.of("sim").state)
        return {name.decode(): float(value) for name, value in found.items()}

    def _at(self, when: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, event))

    def _plan(self, holder: Holder, when: float) -> None:
        """The holder's next exchange is then, and not when it was planned before."""
        holder.asks_at = when
        self._at(when, partial(self._exchange, holder, when))

    def _exchange(self, holder: Holder, planned: float) -> None:
        if holder.dead or holder.asks_at != planned:
            return
        holder.asked_at = self.now
        wanted = holder.most - holder.in_flight
        ask = Ask(
            holder=holder.name,
            policy=PacePolicy(),
            lease_seconds=LEASE,
            in_flight=holder.in_flight,
            wanted=wanted,
            served=holder.served,
            served_at=holder.served_at,
            told=holder.told,
            tokens=holder.tokens,
            uncharged=holder.uncharged,
            refusals=holder.refusals,
            **msgspec.structs.asdict(self._limits),
        )
        holder.served = holder.served_at = holder.told = holder.tokens = 0
        holder.uncharged, holder.refusals = 0.0, []
        granted, expected, again, _, *starts = self._script(
            RateLimitKeys.of("sim"), [3_600_000, msgspec.json.encode(ask), self.clock()]
        )
        holder.in_flight += len(starts)
        for start in starts:
            late = self._late * self._random.random()
            self._at(self.now + start / 1000 + late, partial(self._send, holder, int(granted), float(expected)))
        pause = max(0.01, again / 1000) * (1 + self._random.random() / 10)
        self._plan(holder, self.now + min(pause, LEASE / 3))

    def _send(self, holder: Holder, granted: int, expected: float) -> None:
        self.sent.append(self.now)
        self.at_once += 1
        self.busiest = max(self.busiest, self.at_once)
        good = self._serves()
        spent = good and self._warns and self._bucket < 1
        whole = self._latency if good or self._refusal is None else self._refusal
        latency = whole * self._random.uniform(0.8, 1.2)
        self._at(self.now + latency, partial(self._answered, holder, granted, expected, good, spent))

    def _serves(self) -> bool:
        limit = self._limit(self.now)
        if not self._burst:
            while self._second and self._second[0] <= self.now - 1:
                self._second.popleft()
            if len(self._second) >= limit:
                return False
            self._second.append(self.now)
            return True
        self._bucket = min(max(1.0, limit * self._burst), self._bucket + (self.now - self._filled_at) * limit)
        self._filled_at = self.now
        good = self._bucket >= 1
        self._bucket -= good
        return good

    def _answered(self, holder: Holder, granted: int, expected: float, good: bool, spent: bool) -> None:
        self.at_once -= 1
        if holder.dead:
            return
        holder.in_flight -= 1
        (self.served if good else self.refused).append(self.now)
        holder.served += good
        if good:
            holder.served_at = max(holder.served_at, granted)
        if not good:
            holder.refusals.append((granted, self._retry_after))
        elif spent:
            holder.refusals.append((granted, -2.0))
        if holder.refusals:
            self._plan(holder, max(self.now, holder.asked_at + 0.01))
        if good and self._tokens is not None:
            tokens = self._tokens(self._random)
            self.spent_tokens.append((self.now, tokens))
            holder.told, holder.tokens = holder.told + 1, holder.tokens + tokens
            holder.uncharged += tokens - expected
