"""The rules of pacing, in simulated time against the real script: no sleeping, the same answer each time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from statistics import mean

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalq.workers.ledger.keys import RateLimitKeys
from evalq.workers.ratelimit import PacePolicy, PoolLimits
from tests.integration.harness import Server
from tests.portions import some
from tests.unit.workers.simulated import LEASE, World


def _always(limit: float) -> Callable[[float], float]:
    return lambda _: limit


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    per_second=st.integers(2, 80), at_once=st.integers(1, 30), latency=st.floats(0.02, 2.0), holders=st.integers(1, 4),
    seed=st.integers(0, 9),
)  # fmt: skip
def test_configured_limits_are_never_passed(
    server: Server, per_second: int, at_once: int, latency: float, holders: int, seed: int
) -> None:
    """Whoever asks: no second has more starts than configured (and one), nor any moment more calls at once."""
    limits = PoolLimits(requests_per_minute=60 * per_second, max_concurrency=at_once)
    world = World(server.client, limits, _always(1e9), holders=holders, most=60, latency=latency, seed=seed)
    world.run(10)
    assert world.busiest <= at_once
    assert world.most_in(1.0) <= per_second + 1
    possible = min(per_second, at_once / (latency * 1.2 + 0.06 + 0.3))
    assert world.rate(2, 10) >= 0.8 * possible - 1, "and what they allow is used"


def test_a_configured_limit_may_be_less_than_a_call_a_minute(server: Server) -> None:
    """Also where a call's turn comes later than any refusal may hold the pool."""
    world = World(server.client, PoolLimits(requests_per_minute=0.15), _always(1e9), holders=1, most=1, latency=1.0)
    world.run(810)
    assert [round(later - sooner) for sooner, later in pairwise(world.sent)] == [400, 400]


@pytest.mark.parametrize(("holders", "latency"), some([(2, 0.05), (4, 0.05), (2, 0.3), (4, 0.3)], of=3))
def test_an_unknown_limit_is_found_and_followed(server: Server, holders: int, latency: float) -> None:
    """After 10 s under 1 % is refused and 90 % of the limit used; so again after the limit halved and doubled."""
    world = World(
        server.client, PoolLimits(), lambda t: 25 if 50 <= t < 100 else 50, holders=holders, latency=latency, seed=1
    )
    world.run(180)
    for start, end, limit in ((10, 50, 50), (65, 100, 25), (140, 180, 50)):
        assert world.rate(start, end) >= 0.9 * limit, (start, end)
        assert world.refused_share(start, end) < 0.01, (start, end)


def _bench(server: Server, limit: Callable[[float], float], seed: int) -> World:
    """What tests/bench/pacing.py runs for real: four processes, a server that serves so many calls in any second."""
    return World(
        server.client,
        PoolLimits(),
        limit,
        holders=4,
        most=50,
        latency=0.1,
        refusal=0.003,
        late=0.01,
        burst=0,
        seed=seed,
    )


def test_a_doubled_limit_is_used_within_seconds(server: Server) -> None:
    """Wherever in a probe the fleet is by then: half of the first 10 s is used, 90 % after that, still few refused."""
    first, second, refused = [], [], []
    for seed in some(range(4), of=2):
        at = 30.0 + 1.7 * seed
        world = _bench(server, lambda t, at=at: 50 if t >= at else 25, seed)  # type: ignore[misc]  # a default
        world.run(at + 30)
        first.append(world.rate(at, at + 10) / 50)
        second.append(world.rate(at + 10, at + 30) / 50)
        refused.append(world.refused_share(at + 10, at + 30))
    assert min(first) >= 0.48, first
    assert mean(first) >= 0.54, first
    assert mean(second) >= 0.9, second
    assert mean(refused) < 0.015, refused


def test_a_halved_limit_is_met_in_a_few_round_trips(server: Server) -> None:
    """By what passed and not by many steps: 3 s later the last good rate is at most a fifth above the limit."""
    refused = []
    for seed in some(range(4), of=2):
        at = 20.0 + 0.9 * seed
        world = _bench(server, lambda t, at=at: 25 if t >= at else 50, seed)  # type: ignore[misc]  # a default
        world.run(at + 3)
        assert world.state()["good"] <= 1.2 * 25, seed
        world.run(at + 10)
        assert world.rate(at, at + 10) >= 0.85 * 25, seed
        refused.append(world.refused_share(at, at + 10))
    assert mean(refused) < 0.13, refused


@pytest.mark.parametrize("limit", [25, 50, 200])
def test_a_probe_costs_about_one_refusal(server: Server, limit: int) -> None:
    """What passes before a refusal grows with the limit and with what the last probe cost: .4 % is refused."""
    world = _bench(server, _always(limit), seed=5)
    world.run(60)
    assert world.rate(10, 60) >= 0.9 * limit
    assert world.refused_share(10, 60) < 0.0065


def test_one_step_back_a_round_trip(server: Server) -> None:
    """Refusals of calls that were granted before the last step back change nothing."""
    world = World(server.client, PoolLimits(requests_per_minute=6000), _always(0.001), holders=1, latency=0.5)
    world.run(0.58)
    before = world.state()["rate"]
    world.run(0.75)
    assert len(world.refused) > 10
    assert world.state()["rate"] >= before * 0.8 * 0.8, "many refusals of one round trip, at most one step more"


def test_back_to_most_of_the_last_good_rate(server: Server) -> None:
    """A second after the refusal the rate is 90 % of what it was; it creeps up to all of it."""
    world = World(
        server.client, PoolLimits(requests_per_minute=6000), lambda t: 0 if 3 <= t < 3.05 else 1e9, latency=0.02
    )
    world.run(3.0)
    assert world.state()["rate"] == 100
    world.run(3.2)
    good = world.state()["good"]
    assert world.state()["rate"] < 0.9 * good
    world.run(4.3)
    assert 0.9 * good <= world.state()["rate"] <= 0.94 * good
    world.run(3 + PacePolicy().return_seconds + PacePolicy().probe_most_seconds)
    assert 0.99 * good <= world.state()["rate"] <= good


def test_the_pool_waits_only_when_a_whole_window_was_refused(server: Server) -> None:
    """A server that refuses everything is left alone for as long as it asks; one that serves some is not."""
    shut = World(server.client, PoolLimits(requests_per_minute=600), _always(0), latency=0.05, retry_after=20.0)
    shut.run(22)
    held = [at for at in shut.sent if 4 <= at < 19]
    assert held == [], "the pool waits"
    assert len([at for at in shut.sent if at < 4]) >= PacePolicy().window
    assert any(at >= 19 for at in shut.sent), "and comes back"
    half = World(server.client, PoolLimits(requests_per_minute=600), _always(5), latency=0.05, retry_after=20.0)
    half.run(22)
    assert half.rate(4, 22) >= 4, "Retry-After of single calls does not stop the pool"


def test_a_reply_that_says_nothing_remains_is_a_step_back(server: Server) -> None:
    """Without any refusal: the rate that spent all is stepped back from once, and the pool does not wait."""
    world = World(server.client, PoolLimits(requests_per_minute=6000), _always(0), holders=1, most=1, warns=True)
    world.run(0.02)
    while not world.state().get("stepped_at"):
        world.run(world.now + 0.01)
        assert world.now < 1
    assert (len(world.served), len(world.refused)) == (1, 0)
    after = world.state()
    assert after["rate"] <= 0.8 * 100
    assert (after["streak"], after["held_at"]) == (0, 0)
    steady = World(server.client, PoolLimits(), _always(50), latency=0.1, burst=0.5, warns=True, seed=2)
    steady.run(60)
    assert steady.rate(10, 60) >= 45
    assert steady.refused_share(10, 60) < 0.01


def test_a_dead_holder_gives_its_calls_back(server: Server) -> None:
    """Slots of a process that died are free again when its lease ends, and not before."""
    world = World(server.client, PoolLimits(max_concurrency=10), _always(1e9), holders=2, most=10, latency=0.5)
    world.run(3)
    world.holders[0].dead = True
    lost = world.holders[0].in_flight
    assert lost > 0
    world.run(3 + LEASE - 1)
    assert world.holders[1].in_flight <= 10 - lost
    world.run(3 + LEASE + 3)
    assert world.holders[1].in_flight == 10


def test_tokens_are_a_limit_of_their_own(server: Server) -> None:
    """Calls of unforeseen length keep to the tokens a minute, once their mean is known."""
    limits = PoolLimits(tokens_per_minute=60_000, tokens_per_call=100)
    world = World(server.client, limits, _always(1e9), latency=0.1, tokens=lambda draw: draw.randrange(200, 800))
    world.run(60)
    spent = sum(tokens for at, tokens in world.spent_tokens if at >= 5)
    assert 0.9 * 55_000 <= spent <= 1.05 * 55_000
    assert world.refused == []


def test_every_key_expires(server: Server) -> None:
    """A pool that nobody asks any more leaves nothing behind."""
    World(server.client, PoolLimits(max_concurrency=3), _always(1e9)).run(1)
    assert all(0 < server.client.pttl(key) <= 3_600_000 for key in RateLimitKeys.of("sim"))
