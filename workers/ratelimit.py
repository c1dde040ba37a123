"""Pacing of live calls: one rate limit and one concurrency limit per target, shared by the whole fleet in Redis.

A process asks for many calls in one round trip. The reply says when each may start, a fraction of a second ahead at
most; the process waits by asyncio. Nobody has to configure a server's limit. The rate steps back when the server
refuses calls, at most once per round trip. It returns quickly to most of the last good rate, then probes higher rates.
Only the clock of the Redis server counts. `workers/ledger/lua/ratelimit/pace.lua` is the exchange. A pool is the state
of one target; it is stored under two keys in Redis, which expire.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from types import TracebackType
from typing import Any

import msgspec
import redis

from evalq.evalcore.errors import BrokerUnreachable
from evalq.workers.fair_shares import Path, Share, Weights
from evalq.workers.ledger.keys import RateLimitKeys
from evalq.workers.ledger.scripts import RATE_LIMIT, script_text
from evalq.workers.processes.identity import unique_name

LIFE_SECONDS = 3600.0
"""How long an unused pool stays in Redis, with the rate that it had reached."""


class PacePolicy(msgspec.Struct, frozen=True):
    """How the rate adapts to the server. Times are in seconds, rates in calls per second.

    The defaults come from simulations and from sweeps by real processes: docs/decisions/0008-pacing-live-calls.md.
    """

    factor: float = 0.8
    """After a refusal, the rate is this fraction of the last good rate."""
    return_to: float = 0.9
    return_seconds: float = 1.0
    """The rate returns to ``return_to`` of the last good rate within this time."""
    probe_calls: float = 280.0
    probe_least_seconds: float = 2.0
    probe_most_seconds: float = 10.0
    """Then it rises more and more slowly to the last good rate. This takes as long as ``probe_calls`` calls for each
    refusal of the last probe, within the two bounds. A probe costs a few refusals; measuring its time in calls keeps
    the refused share below 1 %."""
    leap_seconds: float = 2.5
    """Beyond the last good rate, it rises more and more steeply: it doubles after this time."""
    passing_seconds: float = 1.0
    margin: float = 1.05
    """After a refusal, the good rate is ``margin`` times the calls served in about ``passing_seconds``, and at least
    ``factor`` of the refused rate."""
    start_per_second: float = 20.0
    """The first rate if none is configured; it doubles each round trip until the first refusal."""
    least_per_second: float = 1 / 60
    window: int = 5
    """After this many refusals in a row, and at least one second's worth, the pool waits as Retry-After says."""
    longest_hold_seconds: float = 300.0
    horizon_seconds: float = 0.2
    """How far ahead starts are granted."""
    poll_seconds: float = 0.05
    """How often a process asks again while it waits for the calls of others to end."""


class PoolLimits(msgspec.Struct, frozen=True):
    """The limits of a pool from the targets file; 0 means no limit. The last process that asked sets them for all."""

    requests_per_minute: float = 0.0
    tokens_per_minute: float = 0.0
    max_concurrency: int = 0
    tokens_per_call: int = 1000


class Ask(msgspec.Struct, kw_only=True):
    """A process's request in one exchange: outcomes of calls, and how many calls it wants to start.

    `workers/ledger/lua/ratelimit/pace.lua` reads it, so the field names are wire words. ``told`` is the number of calls
    with a known number of tokens, ``tokens`` is their sum, and ``uncharged`` is that minus the tokens charged already.
    """

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
    """When the newest of the served calls was granted, in the server's microseconds."""
    told: int = 0
    tokens: int = 0
    uncharged: float = 0.0
    refusals: list[tuple[int, float]] = []
    """(when the refused call was granted, seconds to wait; -1: none given; -2: no refusal, but the quota is spent)"""


class Grant(msgspec.Struct, frozen=True):
    """A call that may start now. Its outcome reports ``at`` (the server's microseconds) and ``charged`` tokens back."""

    at: int
    charged: float


_LEAST_PAUSE = 0.01
"""Seconds between two exchanges of a process; what happens meanwhile goes together."""


class _Outcomes:
    """The outcomes of calls since the last exchange; the fields are those of `Ask`."""

    def __init__(self) -> None:
        self.served = self.served_at = self.told = self.tokens = 0
        self.uncharged = 0.0
        self.refusals: list[tuple[int, float]] = []


class RateLimiter:
    """One process's client of the pool of one target; use it inside ``async with``.

    `acquire` waits until a call may start, and `settle` reports its outcome. If the process is killed, its calls return
    to the pool when its lease ends, after ``lease_seconds``. If the server is lost, calls wait up to
    ``patience_seconds`` for it.
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
        weights: Weights = (),
    ) -> None:
        self._exchange: Any = client.register_script(script_text(RATE_LIMIT, "pace"))
        self._keys = RateLimitKeys.of(target)
        self._policy = policy
        self._limits = limits
        self._lease = lease_seconds
        self._patience = patience_seconds
        self._holder = unique_name()
        self._waiting = Share[Grant](1.0, weights)
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
        """Cancel all waiting calls, and report the last outcomes."""
        self._closed = True
        self._wake.set()
        if self._task is not None:
            await self._task
        self._fail(asyncio.CancelledError())

    async def acquire(self, share: Path = ()) -> Grant:
        """Wait until a call may start. Raises BrokerUnreachable if the server is lost for too long.

        ``share`` says whose share of the calls it is, see `evalq.workers.fair_shares`.
        """
        # Fail new calls at once while the server is lost. The next successful exchange lets calls through again.
        if self._lost:
            raise BrokerUnreachable(self._lost)
        line, turn = self._waiting.queue(share)
        if self._wanted == 1:  # otherwise an exchange is already scheduled
            self._wake.set()
        try:
            return await turn
        except asyncio.CancelledError:
            self._waiting.leave(line, turn)
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
        """Report the end of a granted call.

        ``served``: it counts for the good rate. ``refused``: the server rejected it for its rate, and
        ``retry_after_seconds`` is the wait that it asked for. ``spent``: the reply says that the quota is used up.
        ``tokens`` is the number that the call used, None if unknown.
        """
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
            # Only the concurrency limit held calls back, and one has just ended: ask at once.
            self._ask_at = 0.0
        if refused or spent or self._crowded:
            self._wake.set()

    @property
    def _wanted(self) -> int:
        """The number of waiting calls without a granted start."""
        return self._waiting.queued - self._promised

    async def _attend(self) -> None:
        """Until closed, exchange when a call waits, a call was refused, or the lease needs renewing."""
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
        """Wait until the next exchange is due, at least _LEAST_PAUSE."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        # Renew after a third of the lease, so that one lost exchange does not give these calls' slots to others.
        renewal = began + self._lease / 3
        while not self._closed:
            due = min(self._ask_at, renewal) if self._wanted > 0 else renewal
            if self._outcomes.refusals:
                # Report a refusal at once: until then, every process keeps calling at the rate that was too high.
                due = began
            left = max(due, began + _LEAST_PAUSE) - loop.time()
            if left <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wake.wait()
            self._wake.clear()

    async def _once(self) -> None:
        # Take the outcomes out before the exchange: calls that end during it belong to the next one.
        outcomes, self._outcomes = self._outcomes, _Outcomes()
        ask = self._asking(outcomes)
        data = msgspec.json.encode(ask)
        loop = asyncio.get_running_loop()
        try:
            # The Redis client blocks, so it runs in a thread and does not delay the calls in flight.
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
        """Give a granted start, whose time has come, to the next call: of its share the one that waits longest."""
        self._promised -= 1
        if (taken := self._waiting.take()) is not None:
            line, turn = taken
            for each in line:
                each.ended += 1 / each.weight
            turn.set_result(grant)
            return
        # No call waits any more; the next exchange frees the slot for other processes.
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
        """Keep the outcomes of a failed exchange for the next one. If both arrive, counting twice does little harm."""
        self._outcomes.served += outcomes.served
        self._outcomes.served_at = max(self._outcomes.served_at, outcomes.served_at)
        self._outcomes.told += outcomes.told
        self._outcomes.tokens += outcomes.tokens
        self._outcomes.uncharged += outcomes.uncharged
        self._outcomes.refusals[:0] = outcomes.refusals

    def _fail(self, error: BaseException) -> None:
        while (taken := self._waiting.take()) is not None:
            _, turn = taken
            turn.set_exception(error) if isinstance(error, Exception) else turn.cancel()
