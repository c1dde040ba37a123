"""What a target's pool is: its limits, the policy of its rate, and the one exchange that holders have with it.

`workers/ledger/lua/ratelimit/pace.lua` is the exchange; the pool's state lies under two keys in Redis, which expire.
"""

from __future__ import annotations

import msgspec

__all__ = ["LIFE_SECONDS", "Ask", "Grant", "Limits", "Policy"]

LIFE_SECONDS = 3600.0
"""How long a pool that nobody asks is remembered, with the rate that was found."""


class Policy(msgspec.Struct, frozen=True):
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


class Limits(msgspec.Struct, frozen=True):
    """What a target's file says of its pool; 0 is no limit. What the last process that asked has counts."""

    requests_per_minute: float = 0.0
    tokens_per_minute: float = 0.0
    max_concurrency: int = 0
    tokens_per_call: int = 1000


class Ask(msgspec.Struct, kw_only=True):
    """What a process reports and asks for in one exchange; `workers/ledger/lua/ratelimit/pace.lua` reads it."""

    holder: str
    policy: Policy
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
