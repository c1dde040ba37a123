"""Pacing: one rate limit and one number of calls at once for each target, shared by the whole fleet in Redis.

A process asks for many calls in one round trip and is told when each may start, a fraction of a second ahead at most;
the waiting is asyncio's. Nobody has to know a server's limit: the rate steps back when calls are refused, at most once
a round trip, returns quickly to most of what was good and probes on from there. Only the server's clock counts.
`workers/ledger/lua/ratelimit/pace.lua` is the exchange; a pool's state lies under two keys in Redis, which expire.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from types import TracebackType
from typing import Any

import msgspec
import redis

from evalq.evalcore.errors import BrokerUnreachable
from evalq.workers.ledger.keys import RateLimitKeys
from evalq.workers.ledger.scripts import RATE_LIMIT, script_text
from evalq.workers.processes.identity import unique_name

LIFE_SECONDS = 3600.0
"""How long a pool that nobody asks is remembered, with the rate that was found."""


class PacePolicy(msgspec.Struct, frozen=True):
    """How the rate follows what the server bears; all times in seconds, rates in calls a second.

    The numbers come from simulations and from sweeps by real processes: docs/decisions/0008-pacing-live-calls.md.
    """

    factor: float = 0.8
    """What is left of the last good rate after a refusal."""
    return_to: float = 0.9
    return_seconds: float = 1.0
    """Back to ``return_to`` of the last good rate within so long."""
    probe_calls: float = 280.0
    probe_least_seconds: float = 2.0
    probe_most_seconds: float = 10.0
    """From there, ever flatter, to all of it: as long as so many calls take for each that the last probe had refused,
    between these bounds. A probe costs a refusal or a few; so it is calls that keep the refused share below 1 %."""
    leap_seconds: float = 2.5
    """After it, ever steeper: twice the rate after so long."""
    passing_seconds: float = 1.0
    margin: float = 1.05
    """Of a refused rate, ``margin`` times what passed in about so long was good, and ``factor`` of it at least."""
    start_per_second: float = 20.0
    """The first rate, where none is configured; it doubles each round trip until the first refusal."""
    least_per_second: float = 1 / 60
    window: int = 5
    """Refusals in a row, at least this many and a second's worth, that make the pool wait as Retry-After says."""
    longest_hold_seconds: float = 300.0
    horizon_seconds: float = 0.2
    """How far ahead starts are granted."""
    poll_seconds: float = 0.05
    """How often a holder asks that waits for others' calls to end."""


class PoolLimits(msgspec.Struct, frozen=True):
    """What a target's file says of its pool; 0 is no limit. What the last process that asked has counts."""

    requests_per_minute: float = 0.0
    tokens_per_minute: float = 0.0
    max_concurrency: int = 0
    tokens_per_call: int = 1000


class Ask(msgspec.Struct, kw_only=True):
    """What a process reports and asks for in one exchange; `workers/ledger/lua/ratelimit/pace.lua` reads it."""

    holder: str
    policy: PacePolicy
    requests_per_minute: float
    tokens_per_minute: float
    max_concurrency: int
    tokens_per_call: int
    lease_seconds: float
    in_flight: int = 0
    wanted: int = 0
    served: int = 0
    served_at: int = 0
    """When the newest of the served calls was granted."""
    told: int = 0
    tokens: int = 0
    uncharged: float = 0.0
    refusals: list[tuple[int, float]] = []
    """(when the refused call was granted, seconds to wait; -1: none given; -2: no refusal, but the quota is spent)"""


class Grant(msgspec.Struct, frozen=True):
    """A call that may start now; ``at`` (the server's microseconds) and ``charged`` tokens go back with its outcome."""

    at: int
    charged: float


_LEAST_PAUSE = 0.01
"""Seconds between two exchanges of a process; what happens meanwhile goes together."""


class _Outcomes:
    """What became of calls since the last exchange."""

    def __init__(self) -> None:
        self.served = self.served_at = self.told = self.tokens = 0
        self.uncharged = 0.0
        self.refusals: list[tuple[int, float]] = []


class RateLimiter:
    """One process's part in the pool of one target; used inside ``async with``.

    `acquire` waits for a call's turn, `settle` reports how it went. A process that is killed gives its calls back when
    its lease ends, ``lease_seconds`` later. A lost server is waited for ``patience_seconds``.
    """

    def __init__(
        self,
        client: redis.Redis,
        target: str,
        limits: PoolLimits,
        policy: PacePolicy = PacePolicy(),  # noqa: B008 - frozen
        *,
        lease_seconds: float = 10.0,
        patience_seconds: float = 30.0,
    ) -> None:
        self._exchange: Any = client.register_script(script_text(RATE_LIMIT, "pace"))
        self._keys = RateLimitKeys.of(target)
        self._policy = policy
        self._limits = limits
        self._lease = lease_seconds
        self._patience = patience_seconds
        self._holder = unique_name()
        self._waiting: deque[asyncio.Future[Grant]] = deque()
        self._outcomes = _Outcomes()
        self._in_flight = self._promised = 0
        self._crowded = False
        self._wake = asyncio.Event()
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._ask_at = 0.0
        self._lost = ""

    async def __aenter__(self) -> RateLimiter:
        self._task = asyncio.create_task(self._attend(), name="evalq-pacer")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Let nobody wait any more, and report the last outcomes."""
        self._closed = True
        self._wake.set()
        if self._task is not None:
            await self._task
        self._fail(asyncio.CancelledError())

    async def acquire(self) -> Grant:
        """Wait until a call may start. Raises BrokerUnreachable when the server is lost for too long."""
        # No waiting for the next who come: one exchange that succeeds lets calls through again.
        if self._lost:
            raise BrokerUnreachable(self._lost)
        turn: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        if self._wanted == 1:  # else the next exchange is due already
            self._wake.set()
        try:
            return await turn
        except asyncio.CancelledError:
            with contextlib.suppress(ValueError):
                self._waiting.remove(turn)
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._in_flight -= 1  # it was granted in the same moment
            raise

    def settle(
        self,
        grant: Grant,
        *,
        refused: bool = False,
        served: bool = True,
        retry_after_seconds: float | None = None,
        spent: bool = False,
        tokens: int | None = None,
    ) -> None:
        """A granted call has ended: ``served`` or ``refused`` for its rate; ``spent``: by its reply nothing remains."""
        self._in_flight -= 1
        if refused:
            self._outcomes.refusals.append((grant.at, -1.0 if retry_after_seconds is None else retry_after_seconds))
        elif spent:
            self._outcomes.refusals.append((grant.at, -2.0))
        if served and not refused:
            self._outcomes.served += 1
            self._outcomes.served_at = max(self._outcomes.served_at, grant.at)
        if tokens is not None:
            self._outcomes.told += 1
            self._outcomes.tokens += tokens
            self._outcomes.uncharged += tokens - grant.charged
        if self._crowded and self._wanted > 0:
            # Only room was missing, and now there is some: ask at once.
            self._ask_at = 0.0
        if refused or spent or self._crowded:
            self._wake.set()

    @property
    def _wanted(self) -> int:
        """Calls that wait and have no start yet."""
        return len(self._waiting) - self._promised

    async def _attend(self) -> None:
        """Exchange whenever somebody waits, a call was refused or the lease wants prolonging, until closed."""
        loop = asyncio.get_running_loop()
        lost_at: float | None = None
        while not self._closed:
            self._wake.clear()
            try:
                await self._once()
                lost_at, self._lost = None, ""
            except (redis.RedisError, OSError) as error:
                lost_at = lost_at or time.monotonic()
                if time.monotonic() - lost_at > self._patience:
                    self._lost = f"the server that paces calls is lost: {error}"
                    self._fail(BrokerUnreachable(self._lost))
                self._ask_at = loop.time() + 0.25
            await self._rest()
        with contextlib.suppress(redis.RedisError, OSError):
            await self._once()

    async def _rest(self) -> None:
        """Until the next exchange is due, and _LEAST_PAUSE at least."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        # A third of the lease: one exchange may be lost before the places of these calls are given to other processes.
        renewal = began + self._lease / 3
        while not self._closed:
            due = min(self._ask_at, renewal) if self._wanted > 0 else renewal
            if self._outcomes.refusals:
                # A refusal is reported at once: until then every process keeps calling at the rate that was too high.
                due = began
            left = max(due, began + _LEAST_PAUSE) - loop.time()
            if left <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wake.wait()
            self._wake.clear()

    async def _once(self) -> None:
        # Taken out before the exchange: what ends while it is under way belongs to the next one.
        outcomes, self._outcomes = self._outcomes, _Outcomes()
        ask = self._asking(outcomes)
        data = msgspec.json.encode(ask)
        loop = asyncio.get_running_loop()
        try:
            # The Redis client blocks; in a thread it does not hold up the calls in flight.
            answer = await asyncio.to_thread(self._exchange, self._keys, [int(LIFE_SECONDS * 1000), data])
        except BaseException:
            self._take_back(outcomes)
            raise
        at, charged, again, crowded, *starts = answer
        self._ask_at = loop.time() + int(again) / 1000
        self._crowded = bool(crowded)
        grant = Grant(int(at), float(charged) if self._limits.tokens_per_minute else 0.0)
        for start in starts:
            self._in_flight += 1
            self._promised += 1
            loop.call_later(int(start) / 1000, self._start, grant)

    def _start(self, grant: Grant) -> None:
        """A granted start has come: whoever waits longest has it."""
        self._promised -= 1
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(grant)
                return
        # Nobody waits any more: with the next exchange its place is free for another process.
        self._in_flight -= 1

    def _asking(self, outcomes: _Outcomes) -> Ask:
        return Ask(
            holder=self._holder,
            policy=self._policy,
            lease_seconds=self._lease,
            in_flight=self._in_flight,
            wanted=0 if self._closed else max(0, self._wanted),
            served=outcomes.served,
            served_at=outcomes.served_at,
            told=outcomes.told,
            tokens=outcomes.tokens,
            uncharged=outcomes.uncharged,
            refusals=outcomes.refusals,
            **msgspec.structs.asdict(self._limits),
        )

    def _take_back(self, outcomes: _Outcomes) -> None:
        """Report them with the next exchange; reported twice, they do little harm."""
        self._outcomes.served += outcomes.served
        self._outcomes.served_at = max(self._outcomes.served_at, outcomes.served_at)
        self._outcomes.told += outcomes.told
        self._outcomes.tokens += outcomes.tokens
        self._outcomes.uncharged += outcomes.uncharged
        self._outcomes.refusals[:0] = outcomes.refusals

    def _fail(self, error: BaseException) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(error) if isinstance(error, Exception) else turn.cancel()
