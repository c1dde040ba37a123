"""The server's clock steps, and servers tell nonsense: the pool is slow for seconds at most, never for hours."""

from __future__ import annotations

import pytest

from evalq.workers.ledger.keys import RateLimitKeys
from evalq.workers.ratelimit import PacePolicy, PoolLimits
from tests.integration.harness import Server
from tests.unit.workers.simulated import LEASE, World

HOUR = 3600.0
TIMES = ("at", "next_call", "next_token", "held_at", "stepped_at", "doubled_at", "limited_at", "passing_at")


def _ahead(world: World) -> dict[str, float]:
    """Stored times that lie further ahead of the server's clock than any wait, in seconds."""
    state, now, most = world.state(), world.clock(), PacePolicy().longest_hold_seconds
    found = {name: (state[name] - now) / 1e6 for name in TIMES if name in state}
    return {name: seconds for name, seconds in found.items() if seconds > most}


@pytest.mark.parametrize("back", [5.0, HOUR, 24 * HOUR])
def test_a_clock_that_is_set_back_stops_nobody(server: Server, back: float) -> None:
    """Calls keep their pace, and what a dead holder had comes back after its lease, not after the step."""
    limits = PoolLimits(requests_per_minute=3000, tokens_per_minute=3_000_000, tokens_per_call=100, max_concurrency=20)
    world = World(server.client, limits, lambda _: 1e9, most=20, latency=0.2, tokens=lambda draw: draw.randrange(200))
    world.run(4)
    world.holders[0].dead = True
    lost = world.holders[0].in_flight
    assert lost > 0
    world.stepped_back = back
    world.run(20)
    assert world.rate(4.5, 4 + LEASE) >= 0.8 * min(50, (20 - lost) / 0.24), "nobody waits for the clock"
    assert world.holders[1].in_flight > 20 - lost, "and the dead holder's calls are given back"
    assert _ahead(world) == {}


@pytest.mark.parametrize("name", TIMES)
def test_a_stored_time_far_ahead_is_cut_back(server: Server, name: str) -> None:
    """Whatever a restored or damaged server says, calls start again within two seconds, and refusals count again."""
    limit = [1e9]
    world = World(server.client, PoolLimits(requests_per_minute=600), lambda _: limit[0], latency=0.05)
    world.run(3)
    server.client.hset(RateLimitKeys.of("sim").state, name, str(world.clock() + HOUR * 1e6))
    world.run(5)
    assert world.rate(3.5, 5) >= 8
    assert _ahead(world) == {}
    limit[0], before = 2.0, world.state()["rate"]
    world.run(10)
    assert world.state()["rate"] < before, "a refusal is a step back"


def test_a_holder_far_ahead_is_cut_back(server: Server) -> None:
    """A lease that ends in an hour was written by another clock: its calls are given back after a lease."""
    world = World(server.client, PoolLimits(max_concurrency=10), lambda _: 1e9, holders=1, most=10, latency=0.5)
    server.client.hset(RateLimitKeys.of("sim").holders, "gone", f"10 {world.clock() + int(HOUR * 1e6)}")
    world.run(5)
    assert world.sent == []
    world.run(LEASE + 2)
    assert world.holders[0].in_flight == 10


def test_one_reply_that_claims_a_million_tokens_is_minutes_and_not_days(server: Server) -> None:
    """What it is said to have cost is held against the limit for as long as a refusal may hold the pool, no longer."""
    message = iter([100, 100, (1 << 32) - 1])
    limits = PoolLimits(tokens_per_minute=60_000, tokens_per_call=100)
    world = World(server.client, limits, lambda _: 1e9, holders=1, latency=0.1, tokens=lambda _: next(message, 100))
    world.run(700)
    assert world.rate(2 * PacePolicy().longest_hold_seconds, 700) >= 5
